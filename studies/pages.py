"""The page of a study: prose, and blocks that are written from kept files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bitfront.dashboards.figures.style import GRID, PALETTE, canvas, saved, titled, words
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from studies.fronts import Arm
from studies.steps import Place, Study

PAGE = "README.md"
BLOCK = re.compile(r"(<!-- numbers: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MARKS = "osD^vPX"


def page(study: Study, place: Place) -> str:
    """The page of the repository with the numbers of the kept files."""
    text = (place.folder / PAGE).read_text(encoding="utf-8")
    found = [match[1] for match in BLOCK.findall(text)]
    if sorted(found) != sorted(study.blocks):
        raise UserError(f"{place.folder / PAGE}: its numbers are {found}, not {[*study.blocks]}")

    def filled(match: re.Match[str]) -> str:
        return f"{match[1]}{study.blocks[match[2]](place).strip()}\n{match[3]}"

    return BLOCK.sub(filled, text)


def write(study: Study, place: Place) -> Path:
    """Write page and figures."""
    path = place.out / PAGE
    write_atomically(path, page(study, place).encode())
    study.draw(place)
    return path


def missing(place: Place, steps: Sequence[str]) -> str:
    """What a block says where steps have not been done; empty where all have."""
    left = [step for step in steps if not place.has(step)]
    return f"Not measured yet: {', '.join(f'`{step}`' for step in left)}." if left else ""


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows as Markdown; all but the first column to the right."""
    names = list(rows[0])
    rule = "|".join(["---", *["--:"] * (len(names) - 1)])
    cells = [" | ".join(row[name] for name in names) for row in rows]
    return "\n".join([f"| {' | '.join(names)} |", f"|{rule}|", *(f"| {c} |" for c in cells)])


def percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f}"


def fronts(arms: Sequence[Arm], path: Path, title: str) -> None:
    """The points of every arm, and its front as a line."""
    figure, axes = canvas(8, 5, 100)
    for arm, colour, mark in zip(arms, PALETTE, MARKS, strict=False):
        axes.scatter(
            [p.flops_pct for p in arm.points], [100 * p.accuracy for p in arm.points],
            s=14, color=colour, marker=mark, alpha=0.5, linewidths=0,
        )  # fmt: skip
        best = sorted(
            (p for p in arm.points if arm.within(p.flops_pct) == p), key=lambda p: p.flops_pct
        )
        axes.step(
            [p.flops_pct for p in best], [100 * p.accuracy for p in best],
            where="post", color=colour, label=arm.name,
        )  # fmt: skip
    axes.set_xlabel("FLOPs, MixBin convention, % of full precision", **words())
    axes.set_ylabel("validation accuracy, %", **words())
    axes.grid(color=GRID)
    axes.legend(loc="lower right")
    titled(axes, title)
    saved(figure, path)
