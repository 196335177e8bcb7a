"""Which point of a front becomes a recipe: the best within a budget, the cheapest that reaches a
quality, the knee. The recipe is made in export.py."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bitfront.search.front import best_under_budget, cheapest_reaching, knee
from bitfront.search.ledger.entry import Entry
from bitfront.search.results.results import Results
from bitfront.search.session.repeats import cautious
from bitfront.trainables.errors import UserError, did_you_mean


def best_within(results: Results, text: str) -> Entry:
    """The point of the front with the best quality within `40%` of the flops, within a count of the
    cost that is optimized, or within one of a named cost, `bytes=50k`. Points of fewer seeds count
    with a lower quality."""
    cost, budget = _budget(text, results.cost_name, results.front[0].costs)
    _, both = results.quality_and(cost)
    points = [[cautious(e, results.config.quality), e.costs[cost]] for e in results.front]
    index = best_under_budget(points, both, budget)
    if index is None:
        cheapest = min(e.costs[cost] for e in results.front)
        raise UserError(
            f"no point of the front has {cost} <= {budget:g}; the cheapest has {cheapest:.4g}",
            _meant_percent(cost, budget),
        )
    return results.front[index]


def cheapest_with(results: Results, text: str) -> Entry:
    """The cheapest point of the front that reaches a quality, `0.97` or `97%`."""
    wanted = _number(text.rstrip("%"), "--min-accuracy")
    wanted = wanted / 100 if text.endswith("%") or wanted > 1 else wanted
    quality = results.config.quality
    if not quality.share:
        raise UserError(f"--min-accuracy is a share, this search is for {quality.label}")
    points, both = results.quality_and(results.cost_name)
    index = cheapest_reaching(points, both, wanted)
    if index is None:
        best = quality.text(max(point[0] for point in points))
        raise UserError(f"no point of the front reaches {100 * wanted:g} %; the best has {best}")
    return results.front[index]


def knee_of(results: Results) -> Entry:
    """The point where the front bends most."""
    return results.front[knee(results.front_values, results.config.front_objectives)]


def _budget(text: str, cost: str, known: Iterable[str]) -> tuple[str, float]:
    """(cost, most of it) of `40%`, of a count of that cost, or of `bytes=50k`."""
    named, equals, rest = text.partition("=")
    if equals:
        if named not in known:
            raise UserError(f"--budget {text}: no cost '{named}', {did_you_mean(named, known)}")
        return named, _count(rest)
    if not text.endswith("%"):
        return cost, _count(text)
    share = _number(text.removesuffix("%"), "--budget")
    if not 0 < share <= 100:
        raise UserError(
            f"--budget {text}: percentages are of the dearest network of the search in full "
            "precision, which costs 100 %",
            f"did you mean {share - 100:g}%?" if 100 < share < 200 else "for example --budget 40%",
        )
    return "flops_pct", share


def _meant_percent(cost: str, budget: float) -> str | None:
    """A hint where a budget is too small for any network because its % is missing."""
    if cost.endswith("_pct") or not 0 < budget <= 100:
        return None
    share = 100 * budget if budget < 1 else budget
    return f"a budget without % is a count of {cost}; did you mean {share:g}%?"


def _count(text: str) -> float:
    """A count, in thousands with `k`, in millions with `M`."""
    factor = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}.get(text[-1:], 1.0)
    return factor * _number(text if factor == 1.0 else text[:-1], "--budget")


def _number(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{option} {text}: not a number or a percentage")
    return value
