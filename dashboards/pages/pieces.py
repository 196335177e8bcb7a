"""Pieces of HTML that the report and the comparison share: sections, tables, captions. The page
around them is made in `page`."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from typing import Any

from bitfront.search.results.view import SearchView

Section = tuple[str, str, str]
"""(name, title, HTML)"""


def section(name: str, title: str, body: str) -> str:
    """A section with its heading; the anchor of its link is `s-NAME`."""
    return f'<section id="s-{name}">\n<h2>{escaped(title)}</h2>\n{body}\n</section>'


def reproduction(view: SearchView) -> str:
    """YAML, environment and commands that repeat a search."""
    commands = "\n".join(f"{c:<44} # {what}" for c, what in view.commands)
    rows = [[name, text] for name, text in view.environment.items()]
    environment = table(["", ""], rows) if rows else "<p>not recorded</p>"
    return (
        f"<p>Save the YAML as <code>search.yaml</code>.</p>\n<pre>{escaped(commands)}</pre>\n"
        f"<details><summary>search.yaml</summary><pre>{escaped(view.yaml)}</pre></details>\n"
        f"<details><summary>environment</summary>{environment}</details>"
    )


def direction(view: SearchView) -> str:
    """Where the better points of a front are, as a sentence."""
    up = "Up" if view.quality.maximize else "Down"
    return f"{up} and to the left is better; pale points are dominated."


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Any]],
    wide: Collection[int] = (),
    ids: Sequence[str] = (),
) -> str:
    """A table. Columns in `wide` may take several lines; a row can be clicked where `ids` has the
    trials of the rows."""

    def style(i: int) -> str:
        numbers = all(not isinstance(r[i], str) or r[i][:1].isdigit() or r[i] == "-" for r in rows)
        return "wide" if i in wide else "number" if numbers else "word"

    styles = [style(i) for i in range(len(headers))]

    def cells(row: Sequence[Any], kind: str) -> str:
        pairs = zip(row, styles, strict=True)
        return "".join(f'<{kind} class="{s}">{escaped(str(v))}</{kind}>' for v, s in pairs)

    head = cells(headers, "th")
    lines = []
    for k, row in enumerate(rows):
        trial = f' data-trial="{escaped(ids[k])}"' if ids else ""
        lines.append(f"<tr{trial}>{cells(row, 'td')}</tr>")
    body = "\n".join(lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n{body}</table></div>'


def panel() -> str:
    """The place where `page.js` shows the trial that was clicked."""
    return '<div id="trial" hidden></div>\n'


def caption(text: str) -> str:
    """A line of explanation."""
    return f'<p class="faint">{escaped(text)}</p>\n'


def escaped(text: str) -> str:
    """Plain text for HTML."""
    return html.escape(text)
