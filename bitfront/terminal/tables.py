"""Tables, numbers and wrapped lines for a terminal. What is in them is decided in the modules
beside this one."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bitfront.search.urls import redacted

if TYPE_CHECKING:
    from bitfront.search.ledger.entry import Entry
    from bitfront.trainables.metrics import Metric

# Columns that a description beside a row needs to be read.
PROSE_ROOM = 40
NUMERIC = set("0123456789.,%-+ ")
COLOURS = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
LEVEL_COLOURS = {"F": "bold", "S": "green", "W": "yellow", "B": "blue", "A": "cyan"}
STATE_COLOURS = {"running": "cyan", "complete": "green", "interrupted": "yellow", "broken": "red"}


def width() -> int:
    """Columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def bounded() -> bool:
    """Whether lines have to fit a width, that of a terminal or of COLUMNS: a pipe takes any."""
    return sys.stdout.isatty() or os.environ.get("COLUMNS", "") not in ("", "0")


def show(text: str) -> None:
    """Print a text unchanged except for its secrets, and flush the output."""
    print(redacted(text), flush=True)


def say(text: str) -> None:
    """Print sentences, each line of them wrapped at the terminal's width."""
    show("\n".join(filled(line) for line in text.split("\n")))


def show_json(data: Any) -> None:
    """Print data as JSON, without secrets."""
    print(redacted(json.dumps(data, indent=2, allow_nan=False)))


def percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction in percent, `-` where there is none."""
    return "-" if fraction is None else f"{100 * fraction:.{digits}f}"


def count(value: float) -> str:
    """A count as text: `12,345` in full, from a million on with three digits, `4.56 M`; a small
    number that is not whole, such as milliseconds, with four digits."""
    if value < 1000 and not float(value).is_integer():
        return f"{value:.4g}"
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= limit:
            return f"{value / limit:.3g} {suffix}"
    return f"{value:,.0f}"


def several(number: int, what: str) -> str:
    """A number of things in words, `1 seed` or `3 seeds`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def filled(text: str, indent: str = "  ") -> str:
    """The text wrapped at the terminal's width. Words are never split, so that paths and names stay
    whole; later lines are indented by `indent` more than the first."""
    first = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(
        text.lstrip(),
        width(),
        initial_indent=first,
        subsequent_indent=first + indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shortened(text: str, room: int) -> str:
    """The text cut to `room` characters and ended by an ellipsis: after a whole word, unless the
    first word is too long."""
    if len(text) <= room:
        return text
    cut = text[: max(1, room - 1)]
    before, space, _ = cut.rpartition(" ")
    whole = text[len(cut)] == " " or not space or not before.strip()
    return (cut if whole else before).rstrip() + "…"


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    flexible: int = -1,
    optional: Sequence[int] = (),
    paint: Mapping[int, Callable[[str], str]] = MappingProxyType({}),
    prose: Sequence[int] = (),
) -> str:
    """A table with aligned columns, numbers to the right. On a narrow terminal the `optional`
    columns are left out in their order, then the `flexible` column is cut; cells of `prose` columns
    are wrapped instead. `paint` colours the cells of a column."""
    if not rows:
        return "(none)"
    cells = [list(map(str, row)) for row in rows]
    widths = column_widths(headers, cells)
    kept = kept_columns(widths, optional)
    if flexible >= 0:
        room = max(8, width() - total_width([widths[i] for i in kept if i != flexible]) - 2)
        widths[flexible] = min(widths[flexible], room)
        for row in cells:
            row[flexible] = shortened(row[flexible], room)
    right = [all(set(row[i]) <= NUMERIC for row in cells) for i in range(len(headers))]
    if prose:
        return _prose_table(headers, cells, widths, right, prose)

    def line(row: Sequence[str], painted: bool = True) -> str:
        parts = [row[i].rjust(widths[i]) if right[i] else row[i].ljust(widths[i]) for i in kept]
        parts[-1] = parts[-1].rstrip()
        if painted:
            parts = [paint[i](p) if i in paint else p for i, p in zip(kept, parts, strict=True)]
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * widths[i] for i in kept)
    return "\n".join([line(headers, painted=False), rule, *map(line, cells)])


def described_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], told: Sequence[str], head: str
) -> str:
    """A table whose rows have a description: in a last column called `head` where there is room for
    it, else below the row."""
    if width() - total_width(column_widths(headers, rows)) - 2 >= PROSE_ROOM:
        whole = [[*row, text] for row, text in zip(rows, told, strict=True)]
        return table([*headers, head], whole, prose=(len(headers),))
    if not rows:
        return table(headers, rows)
    above, rule, *lines = table(headers, rows).split("\n")
    below = [filled(f"  {text}", "") for text in told]
    pairs = [each for pair in zip(lines, below, strict=True) for each in pair]
    return "\n".join([above, f"  {head}", rule, *pairs])


def _prose_table(
    headers: Sequence[str],
    cells: list[list[str]],
    widths: list[int],
    right: list[bool],
    prose: Sequence[int],
) -> str:
    """A table whose `prose` columns share the width that the others leave, in proportion to the
    width they would need."""
    taken = total_width(widths) - sum(widths[i] for i in prose)
    room, needed = max(16 * len(prose), width() - taken), sum(widths[i] for i in prose)
    if needed > room:
        for i in prose:
            longest = max(len(word) for row in cells for word in row[i].split() or [""])
            share = room * widths[i] // needed
            widths[i] = min(widths[i], max(share, min(longest, room // len(prose))))
        while sum(widths[i] for i in prose) > room:
            widths[max(prose, key=lambda i: widths[i])] -= 1

    def lines(row: Sequence[str]) -> list[str]:
        broken = [_broken(c, widths[i]) if i in prose else [c] for i, c in enumerate(row)]
        return [
            "  ".join(
                part.rjust(widths[i]) if right[i] else part.ljust(widths[i])
                for i, part in enumerate(parts)
            ).rstrip()
            for parts in zip_longest(*broken, fillvalue="")
        ]

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([*lines(headers), rule, *(line for row in cells for line in lines(row))])


def _broken(text: str, room: int) -> list[str]:
    """The lines of a cell: broken between words, and at hyphens only in a word longer than
    `room`."""
    words = " ".join(_at_hyphens(word, room) for word in text.split())
    return textwrap.wrap(words, room, break_on_hyphens=False, break_long_words=False) or [""]


def _at_hyphens(word: str, room: int) -> str:
    """The word with spaces after some hyphens, so that each part fits into `room`."""
    if len(word) <= room:
        return word
    lines = [""]
    for piece in re.findall(r"[^-]*-|[^-]+", word):
        if lines[-1] and len(lines[-1]) + len(piece) > room:
            lines.append("")
        lines[-1] += piece
    return " ".join(lines)


def column_widths(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The characters that each column takes."""
    return [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]


def total_width(widths: Sequence[int]) -> int:
    """The characters that columns take with the gaps between them."""
    return sum(widths) + 2 * (len(widths) - 1)


def kept_columns(widths: Sequence[int], optional: Sequence[int]) -> list[int]:
    """The indices of the columns that are shown: all if they fit, else without as many of the
    optional ones as needed."""
    kept = list(range(len(widths)))
    for column in optional:
        if total_width([widths[i] for i in kept]) <= width():
            break
        kept.remove(column)
    return kept


def coloured() -> bool:
    """Whether the output is a terminal with colours; NO_COLOR switches them off (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def painted(text: str, colour: str) -> str:
    """Text in one of `COLOURS`."""
    return f"\033[{COLOURS[colour]}m{text}\033[0m"


def painted_plan(text: str) -> str:
    """A plan with its letters in the colours of their levels; digits stay plain."""
    return "".join(painted(c, LEVEL_COLOURS[c]) if c in LEVEL_COLOURS else c for c in text)


def painted_state(text: str) -> str:
    """The state of a trial or a search in its colour."""
    colour = STATE_COLOURS.get(text.strip())
    return painted(text, colour) if colour else text


def short(quality: Metric) -> str:
    """The heading of a metric's column: `acc %`."""
    bare = quality.bare.removeprefix("robust_")
    return {"accuracy": "acc"}.get(bare, bare) + quality.unit


def measured(entry: Entry, quality: Metric) -> str:
    """The quality of a point as text, with spread and number of its seeds where it has several."""
    mean = quality.number(entry.metrics.get(quality.name))
    if entry.own_spread is None:
        return mean
    return f"{mean} ± {quality.number(entry.own_spread)} ({entry.seeds})"


def expectation(entry: Entry, quality: Metric, noise: float | None) -> str:
    """What training the point again should give. `noise` is the spread over seeds, of all points of
    the search together; None where no point has two."""
    mean = f"{quality.text(entry.metrics[quality.name])} validation {quality.label}"
    basis = "one seed, not confirmed"
    if entry.own_spread is not None:
        basis = f"mean of {entry.seeds} seeds, ± {quality.number(entry.own_spread)}"
    if noise is None:
        return f"{mean} ({basis})"
    points = " points" if quality.share else ""
    within = quality.number(2 * noise) + points
    return (
        f"{mean} ({basis})\n  trained again, expect within {within} of it: twice the seed noise of "
        "this search"
    )


def defaults(params: Mapping[str, Mapping[str, Any]]) -> str:
    """Parameters and their defaults in a line: `depth=20, width=16`."""
    return ", ".join(f"{name}={described['default']}" for name, described in params.items())
