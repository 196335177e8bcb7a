"""Tables, numbers and lines for people at a terminal."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from search.progress import duration
from search.results import Results
from search.study import Entry
from search.urls import redacted
from trainables.kinds import Metric

NUMERIC = set("0123456789.,%-+ ")


def width() -> int:
    return shutil.get_terminal_size((80, 24)).columns


def show(text: str) -> None:
    print(redacted(text))


def show_json(data: Any) -> None:
    print(redacted(json.dumps(data, indent=2, allow_nan=False)))


def percent(fraction: float | None, digits: int = 1) -> str:
    return "-" if fraction is None else f"{100 * fraction:.{digits}f}"


def count(value: float) -> str:
    """12,345 in full; millions and more with three digits."""
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= limit:
            return f"{value / limit:.3g} {suffix}"
    return f"{value:,.0f}"


def shortened(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(1, room - 1)] + "…"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], flexible: int = -1) -> str:
    """Aligned columns, numbers to the right; the `flexible` column gives way when the terminal
    is too narrow."""
    if not rows:
        return "(none)"
    cells = [list(map(str, row)) for row in rows]
    widths = [max(len(str(r[i])) for r in [headers, *cells]) for i in range(len(headers))]
    if flexible >= 0:
        excess = sum(widths) + 2 * (len(widths) - 1) - width()
        room = max(8, widths[flexible] - max(0, excess))
        widths[flexible] = min(widths[flexible], room)
        for row in cells:
            row[flexible] = shortened(row[flexible], room)
    right = [all(set(row[i]) <= NUMERIC for row in cells) for i in range(len(headers))]

    def line(row: Sequence[str]) -> str:
        parts = [
            cell.rjust(w) if r else cell.ljust(w)
            for cell, w, r in zip(row, widths, right, strict=True)
        ]
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([line(headers), rule, *(line(row) for row in cells)])


def front_table(entries: Sequence[Entry], quality: Metric) -> str:
    rows = [
        [
            e.id,
            e.spec.method,
            e.spec.plan,
            measured(e, quality),
            "-" if e.confidence is None else f"{100 * e.confidence:.0f}",
            f"{e.costs['flops_pct']:.1f}",
            count(e.costs["flops"]),
            count(e.costs["bytes"]),
        ]
        for e in entries
    ]
    shown = short(quality)
    headers = ["trial", "method", "plan", f"val {shown}", "sure %", "flops %", "flops", "bytes"]
    return table(headers, rows, flexible=2)


def short(quality: Metric) -> str:
    """A metric at the head of a column."""
    return {"accuracy": "acc"}.get(quality.bare, quality.bare) + quality.unit


def measured(entry: Entry, quality: Metric) -> str:
    """With its spread and the number of seeds where there are several."""
    mean = quality.number(entry.metrics.get(quality.name))
    if entry.seeds == 1 or entry.spread is None:
        return mean
    return f"{mean} ± {quality.number(entry.spread)} ({entry.seeds})"


def expectation(entry: Entry, quality: Metric) -> str:
    """What training the point again should give."""
    mean = f"{quality.text(entry.metrics[quality.name])} validation {quality.label}"
    if entry.spread is None:
        return mean
    basis = f"mean of {entry.seeds} seeds" if entry.seeds > 1 else "one seed, not confirmed"
    points = " points" if quality.share else ""
    within = quality.number(2 * entry.spread) + points
    return f"{mean} ({basis}); trained again, expect within {within} of it"


def front_summary(results: Results) -> str:
    """The front with what it was measured against."""
    config = results.config
    reference = ", ".join(
        f"{name} {value:.4g}"
        for name, value in zip(config.objectives, results.reference, strict=True)
    )
    lines = [
        f"Front of {config.name}: {len(results.front)} of {results.counts()['complete']} complete "
        f"trials",
        "",
        front_table(results.front, config.quality),
        "",
        textwrap.fill(
            f"hypervolume {100 * results.hypervolume_share:.2f} % of the box from the reference "
            f"({reference}) to a perfect, free network",
            width(),
        ),
        "flops: MixBin convention, % of the full-precision network of the same size",
        textwrap.fill(
            "sure: the probability that no other point is better and no dearer; "
            "± over seeds, their number in brackets",
            width(),
        ),
    ]
    if results.stopping is not None:
        lines.append(textwrap.fill(results.stopping.sentence(), width()))
    return "\n".join(lines)


def next_commands(results: Results) -> str:
    name = results.config.name
    lines = ["Next:"]
    if results.state == "interrupted":
        lines.append(f"  bitfront resume {name}".ljust(43) + " continue where it stopped")
    lines += [
        f"  bitfront ui {name}".ljust(43) + " compare the runs in MLflow",
        f"  bitfront export {name} --budget 40%".ljust(43) + " a point of the front as recipe.yaml",
        "  bitfront train recipe.yaml".ljust(43) + " final training, packed checkpoint",
    ]
    return "\n".join(lines)


def status_line(results: Results) -> list[str]:
    s = results.status_json()
    trials = s["trials"]
    failures = ", ".join(f"{k} {v}" for k, v in s["failures"].items())
    started = [e.started for e in results.entries if e.started]
    ended = [e.ended for e in results.entries if e.ended]
    spent = duration(max(ended) - min(started)) if started and ended else "-"
    done = trials["complete"] + trials["pruned"] + trials["failed"]
    return [
        s["search"],
        s["state"],
        f"{done}/{s['budget']}",
        str(trials["running"]),
        f"{trials['failed']}" + (f" ({failures})" if failures else ""),
        results.config.quality.number(results.best, 1),
        str(s["front"]),
        percent(s["hypervolume_share"]),
        spent,
    ]


STATUS_HEADERS = ["search", "state", "trials", "run", "failed", "best", "front", "hv %", "time"]
