"""Two searches side by side, as a table. What is compared is in `bitfront.search.results`; a search
beside the rows of its paper is in `papers`."""

from __future__ import annotations

import textwrap
from typing import Any

from bitfront.search.results.comparison import BUDGETS, Comparison
from bitfront.terminal.tables import filled, short, table, width


def comparison_text(comparison: Comparison) -> str:
    """Both searches in columns, with the difference."""
    report = comparison.as_json()
    sides = [report["a"], report["b"]]
    reference = ", ".join(f"{k} {v:.4g}" for k, v in report["reference"].items())
    heads = [
        f"{letter}  {side['search']}: {side['dataset']}, {side['model']}"
        for letter, side in zip("AB", sides, strict=True)
    ]
    lines = [textwrap.fill(h, width(), subsequent_indent="   ") for h in heads]
    lines += ["", table(["", "A", "B", "B - A"], _rows(comparison, sides), flexible=0)]
    lines.append(textwrap.fill(f"reference: {reference}", width()))
    full = comparison.full_flops
    if full is not None:
        dearest = f"the dearest full-precision network of both, {full:,.0f} flops"
        lines.append(textwrap.fill(f"% flops: of {dearest}", width()))
    lines += [filled(f"warning: {caution}") for caution in report["cautions"]]
    return "\n".join(lines)


def _rows(comparison: Comparison, sides: list[dict[str, Any]]) -> list[list[str]]:
    shares = [100 * s["hypervolume_share"] for s in sides]
    rows = [
        _epochs([s["epochs"] for s in sides]),
        _row("complete trials", [s["trials"] for s in sides], "{:d}"),
        _row("points on the front", [s["front"] for s in sides], "{:d}"),
        _row("of them on the joint front", [s["on_joint_front"] for s in sides], "{:d}"),
        _row("hypervolume, % of the box", shares, "{:.2f}"),
    ]
    quality = comparison.a.config.quality
    scale, form = (100, "{:.2f}") if quality.share else (1, "{:.4g}")
    for budget in BUDGETS:
        best = [s["best_under_budget"][str(budget)] for s in sides]
        scaled = [None if b is None else scale * b for b in best]
        rows.append(_row(f"best val {short(quality)} at <= {budget} % flops", scaled, form))
    return rows


def _epochs(ranges: list[list[int]]) -> list[str]:
    """The epochs of a trial in both searches; a difference where neither draws them."""
    if all(low == high for low, high in ranges):
        return _row("epochs per trial", [low for low, _ in ranges], "{:d}")
    shown = [f"{low}" if low == high else f"{low}-{high}" for low, high in ranges]
    return ["epochs per trial", *shown, "-"]


def _row(head: str, values: list[Any], form: str) -> list[str]:
    """Both numbers and their difference; a dash where one is missing."""
    shown = ["-" if v is None else form.format(v) for v in values]
    missing = any(v is None for v in values)
    difference = "-" if missing else form.replace(":", ":+").format(values[1] - values[0])
    return [head, *shown, difference]
