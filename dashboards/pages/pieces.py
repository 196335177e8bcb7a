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

    def cells(row: Sequence[Any]) -> str:
        parts = zip(row, headers, styles, strict=True)
        # The name of a column stands beside the value where rows are stacked on a narrow screen.
        return "".join(
            f'<td class="{style}" data-label="{escaped(head)}">{_button(i, v, bool(ids))}</td>'
            for i, (v, head, style) in enumerate(parts)
        )

    pairs = zip(headers, styles, strict=True)
    head = "".join(f'<th scope="col" class="{style}">{escaped(h)}</th>' for h, style in pairs)
    lines = []
    for k, row in enumerate(rows):
        trial = f' data-trial="{escaped(ids[k])}"' if ids else ""
        lines.append(f"<tr{trial}>{cells(row)}</tr>")
    body = "\n".join(lines)
    named = escaped(", ".join(filter(None, headers)) or "environment")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{named}"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _button(column: int, value: Any, clicked: bool) -> str:
    """The text of a cell; a button in the first one of a row that can be clicked."""
    text = escaped(str(value))
    return f'<button class="plain">{text}</button>' if clicked and column == 0 else text


def panel() -> str:
    """The place where `page.js` shows the trial that was clicked."""
    return '<div id="trial" hidden></div>\n'


def caption(text: str) -> str:
    """A line of explanation."""
    return f'<p class="faint">{escaped(text)}</p>\n'


def escaped(text: str) -> str:
    """Plain text for HTML."""
    return html.escape(text)
