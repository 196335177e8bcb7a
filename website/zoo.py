"""The method zoo: a page per method with its equations, F and B drawn, its paper, parameters and
what was measured of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import latex2mathml.converter

from bitfront.trainables.methods import METHODS
from bitfront.trainables.papers import citation, paper_of
from website import drawings, measured
from website.equations import latex, notes
from website.sources import ROOT, anchor

# More rows of papers than this would bury the rest; those of all are in docs/results/papers.md.
MOST_ROWS = 12
FAMILIES = {
    "full precision": "Full precision",
    "pcpp": "Latents with a forward and a backward quantizer",
    "optimizers": "Optimizers of binary weights",
    "pruning": "Pruning",
    "adversarial": "Against attacks",
}

UNDRAWN = (
    "There is nothing to draw: no weight is a function of one latent here; the equations are all."
)
INTRODUCTION = """\
# The methods

A method says how a layer becomes binary. Each has a page with its equations, its quantizers drawn
by the code that trains with them, its paper, its parameters and what was measured of it. Names
are those of `space.method` in a [YAML](../yaml.md); `bitfront methods` lists them in a terminal.
[One of your own](../own.md#a-method-of-your-own) is a class of ten lines.

F is the forward quantizer, what a layer multiplies with in training; B is the backward one, by
what the gradient of the latent is multiplied. Whatever F is, evaluation takes the sign.
"""


def place_of(name: str) -> str:
    """The page of a method."""
    return f"zoo/{name.replace('+', '-plus')}.md"


def navigation() -> list[dict[str, Any]]:
    """The pages by family, for the navigation."""
    return [
        {title: [{name: place_of(name)} for name in _of_family(family)]}
        for family, title in FAMILIES.items()
    ]


def pages() -> dict[str, str]:
    """All pages, by their place."""
    return {place_of(name): page(name) for name in METHODS} | {"zoo/index.md": index()}


def linked(text: str) -> str:
    """The catalog with a link to the page of every method in its table of methods."""
    for name in METHODS:
        text = text.replace(f"\n| `{name}` |", f"\n| [`{name}`]({place_of(name)}) |", 1)
    return text


def index() -> str:
    """The page of all methods, by family."""
    lines = [INTRODUCTION]
    for family, title in FAMILIES.items():
        rows = []
        for name in _of_family(family):
            method = METHODS.get(name)
            link = f"[`{name}`]({place_of(name).removeprefix('zoo/')})"
            rows.append([link, "".join(method.levels), method.doc, _cited(method.paper)])
        lines += [f"## {title}\n", table(["method", "levels", "what it does", "paper"], rows)]
    return "\n".join(lines)


def page(name: str) -> str:
    """The page of one method."""
    method, note = METHODS.get(name), notes().get(name, {})
    lines = [
        f"# {name}\n",
        f"{method.doc[0].upper()}{method.doc[1:]}.\n",
        f"**Paper:** {_cited(method.paper, whole=True)}<br>",
        f"**Levels:** {' '.join(method.levels)} &nbsp; **starts from pretrained weights:** "
        f"{'yes' if method.from_weights else 'no'}\n",
        *_equations(name),
    ]
    drawn = drawings.quantizer(name, note.get("value"))
    if drawn:
        lines += ["## Forward and backward\n", f"{drawn}\n", _caption(note)]
    else:
        lines += ["## Forward and backward\n", f"{UNDRAWN}\n"]
    if "use" in note:
        use = note["use"].strip().replace("benchmarks", "[benchmarks](../benchmarks.md)")
        lines += ["## What it is good at\n", f"{use}\n"]
    lines += ["## Parameters\n", *_parameters(name)]
    lines += ["## Measured\n", *_measured(name)]
    return "\n".join(lines)


def _equations(name: str) -> list[str]:
    """The equations as MathML, which browsers show without a script."""
    lines = [latex2mathml.converter.convert(text, display="block") for text in latex(name)]
    if not lines:
        return []
    section = _section(notes()[name]["section"])
    return ["## Equations\n", *(f"{line}\n" for line in lines), f"{section}\n"]


def _section(number: str) -> str:
    """A link to a section of the page of equations."""
    for line in (ROOT / "docs" / "methods.md").read_text().splitlines():
        if line.startswith(("## ", "### ")) and line.split()[1].rstrip(".") == number:
            heading = line.lstrip("# ")
            link = f"[{heading}](../methods.md#{anchor(heading)})"
            return f"Where they come from, with numbers worked out by hand: {link}."
    raise ValueError(f"docs/methods.md has no section {number}")


def _caption(note: dict[str, Any]) -> str:
    if "curve" in note:
        return "Drawn from the equations: what the latent becomes (F), its gradient's factor (B).\n"
    if "value" in note:
        return (
            "From the beginning of training (blue) to its end (orange), at five points of the "
            "default schedule.\n"
        )
    return "The same throughout training.\n"


def _parameters(name: str) -> list[str]:
    params = METHODS.get(name).describe()["params"]
    if not params:
        return ["It has none.\n"]
    rows = [
        [f"`{name}.{key}`", p["doc"], word(p["default"]), p["accepts"], p["range"]]
        for key, p in params.items()
    ]
    return [table(["key", "what it is", "default", "accepted", "worth searching"], rows)]


def _measured(name: str) -> list[str]:
    """What benchmarks and runs of the papers' rows say of it; every number with its command."""
    lines = []
    accuracies = list(measured.accuracies(name))
    if accuracies:
        lines.append(table(["experiment", "this method", "others, %", "command"], accuracies))
    times = list(measured.times(name))
    if times:
        lines.append(table(["time", "ratio"], times))
    rows = measured.printed()[name]
    shown = rows[:MOST_ROWS]
    if shown:
        lines.append("Rows of papers, and the same rows run here where they were:\n")
        lines.append(
            table(
                ["search", "table", "row", "of", "printed", "ours", "seeds", "ours differs in"],
                [
                    [
                        f"`{row['search']}`",
                        row["table"],
                        row["row"],
                        row["measures"],
                        row["printed"],
                        row["ours"] or "not run",
                        str(row["seeds"] or "-"),
                        row["unlike"] or "-",
                    ]
                    for row in shown
                ],
            )
        )
    if len(rows) > len(shown):
        lines.append(
            f"{len(rows) - len(shown)} more: [the papers' tables](../results/papers.md).\n"
        )
    return lines or ["Nothing of it has been measured here on its own.\n"]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; bars in its cells would begin others."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |")
    return "\n".join(lines) + "\n"


def _of_family(family: str) -> list[str]:
    return [name for name, method in METHODS.items() if method.family == family]


def _cited(text: str, whole: bool = False) -> str:
    paper = paper_of(text) if text else None
    if paper is None:
        return citation(text)
    told = paper.text if whole else f"{paper.short}, {paper.place}"
    return f"[{told}]({paper.link})" if paper.link else told


def word(value: Any) -> str:
    """A value as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
