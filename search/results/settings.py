"""The sampled settings of trials besides method and plan, under short names; those of the network
(width, depth) first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bitfront.search.ledger.entry import Entry
from bitfront.trainables.own_code import shown

NETWORK = "model."
# Characters of settings in the name of an MLflow run: its list of runs shows no more.
LONGEST = 48


def settings_of(entry: Entry) -> dict[str, str]:
    """Value as text by short name (`width`, `lr`) of the settings sampled for a trial, besides
    method and plan. A trial has one method: parameters of different methods may share a name."""
    return settings_in_words(entry.drawn, entry.spec.method)


def settings_in_words(drawn: Mapping[str, Any], method: str) -> dict[str, str]:
    """The same for what was drawn, or may be."""
    return {head: text_of(drawn[name]) for name, head in _named(drawn, method).items()}


def _named(drawn: Mapping[str, Any], method: str) -> dict[str, str]:
    """Short name by full name: the last part, where no other setting has the same last part."""
    names = sorted((n for n in drawn if n != "method"), key=lambda n: not n.startswith(NETWORK))
    own = [n for n in names if n.startswith(f"{method}.")]
    others = [n for n in names if n not in own]
    shared = Counter(map(_last, others))
    heads = {n: _last(n) if shared[_last(n)] == 1 else n for n in others}
    heads |= {n: n if _last(n) in shared else _last(n) for n in own}
    return {name: shown(head) for name, head in heads.items()}


def _last(name: str) -> str:
    """The part of a name behind its last dot."""
    return name.rpartition(".")[2]


def text_of(value: Any) -> str:
    """A value as text, numbers in three digits, code of the user's own without its hash."""
    return f"{value:.3g}" if isinstance(value, float) else shown(str(value))


def shown_settings(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with code of the user's own, in names and values, without its hash."""
    return {shown(k): shown(v) if isinstance(v, str) else v for k, v in drawn.items()}


def columns(rows: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """The settings of several trials by column; a dash where a trial does not have one."""
    heads = list(dict.fromkeys(head for row in rows for head in row))
    return {head: [row.get(head, "-") for row in rows] for head in heads}


def varying(rows: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """The columns in which trials differ."""
    return {head: cells for head, cells in columns(rows).items() if len(set(cells)) > 1}


def in_a_line(settings: Mapping[str, str], longest: int | None = None) -> str:
    """`width=8 lr=0.02`; with `longest` only as many settings as fit into so many characters."""
    line = ""
    for head, text in settings.items():
        longer = f"{line} {head}={text}".strip()
        if longest is not None and len(longer) > longest:
            return f"{line} …".strip()
        line = longer
    return line
