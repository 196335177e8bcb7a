"""Ledgers of version 0.1, read as if they were written today. Their `flops_pct` is a percentage of
each trial's own network, which is `flops_own_pct` now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bitfront.search.config.bounds import REFERENCE_FACTOR
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.results.labels import OWN_SHARE


def as_meant(config: SearchConfig, entries: Iterable[Entry]) -> SearchConfig:
    """The configuration of a search that version 0.1 started, with `flops_pct` in objectives and
    limits replaced by `flops_own_pct`. Where all trials have one network both are the same."""
    several = any(name.startswith("model.") for name in config.space)
    if not several or not any(e.restated or OWN_SHARE not in e.costs for e in entries):
        return config

    def renamed(keys: dict[str, Any]) -> dict[str, Any]:
        return {OWN_SHARE if k == "flops_pct" else k: v for k, v in keys.items()}

    named = {key: renamed(getattr(config, key)) for key in ("objectives", "limits")}
    return config.model_copy(update=named)


def restate(config: SearchConfig, entries: Sequence[Entry], reference: Sequence[float]) -> None:
    """Give every trial its percentage of the dearest network, where it has only that of its own."""
    if all(OWN_SHARE in entry.costs for entry in entries):
        return
    full = _full_flops(config, entries, reference)
    for entry in entries:
        entry.restate(full)


def _full_flops(
    config: SearchConfig, entries: Sequence[Entry], reference: Sequence[float]
) -> float:
    """The flops of the dearest full-precision network, for a ledger that does not store them: from
    the reference point, or from any trial where there is one network, or from the space."""
    names = list(config.objectives)
    if "flops" in names and any(reference):
        return round(reference[names.index("flops")] / REFERENCE_FACTOR)
    own = (e.costs.get(OWN_SHARE, e.costs["flops_pct"]) for e in entries)
    tried = max(100 * e.costs["flops"] / share for e, share in zip(entries, own, strict=True))
    if not any(name.startswith("model.") for name in config.space):
        return round(tried)
    from bitfront.search.config.space import build_space

    return build_space(config).full_flops
