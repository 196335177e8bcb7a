"""Two searches side by side, and a search beside the rows of its paper, as tables. What is compared
is in `bitfront.search.results`."""

from __future__ import annotations

import textwrap
from typing import Any

from bitfront.search.results.comparison import BUDGETS, Comparison
from bitfront.search.results.labels import OWN_SHARE
from bitfront.search.results.paper import PaperComparison, train_examples
from bitfront.terminal.tables import short, table, width
from bitfront.trainables.data import dataset_title
from bitfront.trainables.own_code import shown


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


def paper_text(comparison: PaperComparison) -> str:
    """Every row of the paper with the trial that answers it, and what both were trained on."""
    config, paper = comparison.ours.config, comparison.paper
    unit = ", %" if comparison.metric.share else ""
    epochs = f", {paper.epochs} epochs" if paper.epochs else ""
    count = train_examples(config)
    examples = "" if count is None else f"{count:,} training examples, "
    heads = [
        f"paper: {paper.title}, {paper.table}: {paper.dataset}, {paper.model}{epochs}, "
        f"test set{unit}",
        f"ours: search {config.name}: {dataset_title(config.task.dataset)}, "
        f"{examples}{shown(config.task.model.name)}, "
        f"{config.task.epochs} epochs, {paper.metric} (hard-binarized){unit}",
    ]
    if paper.note:
        heads.append(f"note: {paper.note}")
    lines = [textwrap.fill(line, width(), subsequent_indent="  ") for line in heads]
    headers = ["row", "flops %", "paper", "flops %", "ours", "diff", "trial"]
    return "\n".join([*lines, "", table(headers, _paper_rows(comparison), flexible=0)])


def _paper_rows(comparison: PaperComparison) -> list[list[str]]:
    number = comparison.metric.number
    rows = []
    for row in comparison.rows():
        theirs, ours = row["paper"], row["ours"] or {}
        spread = f" ± {number(theirs['spread'])}" if theirs["spread"] is not None else ""
        gap = number(row["difference"])
        rows.append(
            [
                theirs["label"],
                _cost(theirs["flops_pct"]),
                number(theirs["value"]) + spread,
                _cost(ours.get(OWN_SHARE)),
                number(ours.get("value")),
                gap if gap.startswith("-") else f"+{gap}",
                ours.get("trial", "-"),
            ]
        )
    return rows


def _cost(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
