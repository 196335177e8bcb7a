"""What tells the trials of a search apart besides method and plan: the settings that were drawn, by
short names, the network's own (width, depth) first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bitfront.search.ledger.entry import Entry

NETWORK = "model."
# Of the settings in the name of a run: more than a list of runs shows.
LONGEST = 48


def settings_of(entry: Entry) -> dict[str, str]:
    """Everything drawn for a trial but method and plan: `width`, `lr`, ... and its value as text.
    Parameters of methods share a name: a trial has one method."""
    named = _named(entry.drawn, entry.spec.method)
    return {head: text_of(entry.drawn[name]) for name, head in named.items()}


def _named(drawn: Mapping[str, Any], method: str) -> dict[str, str]:
    """Short names, by whole name: the last part where no other setting has the same one."""
    names = sorted((n for n in drawn if n != "method"), key=lambda n: not n.startswith(NETWORK))
    own = [n for n in names if n.startswith(f"{method}.")]
    others = [n for n in names if n not in own]
    shared = Counter(map(_last, others))
    heads = {n: _last(n) if shared[_last(n)] == 1 else n for n in others}
    return heads | {n: n if _last(n) in shared else _last(n) for n in own}


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def text_of(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def columns(rows: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """The settings of several trials, a column each; a dash where one does not concern a trial."""
    heads = list(dict.fromkeys(head for row in rows for head in row))
    return {head: [row.get(head, "-") for row in rows] for head in heads}


def varying(rows: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Those columns that tell some of the trials apart."""
    return {head: cells for head, cells in columns(rows).items() if len(set(cells)) > 1}


def in_a_line(settings: Mapping[str, str], longest: int | None = None) -> str:
    """`width=8 lr=0.02`; with `longest` as many whole ones as that leaves room for."""
    told = ""
    for head, text in settings.items():
        longer = f"{told} {head}={text}".strip()
        if longest is not None and len(longer) > longest:
            return f"{told} …".strip()
        told = longer
    return told
