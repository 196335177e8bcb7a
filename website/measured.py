"""What was measured of a method and what its papers print, read from benchmarks/results,
docs/results and the rows that ready-made searches carry."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from bitfront.search.results.paper import PaperComparison
from bitfront.search.results.published import kept
from bitfront.search.session.rows import whole_setting
from bitfront.spaces.ready_made import searches
from bitfront.trainables.methods import METHODS
from website.sources import ROOT

RESULTS = ROOT / "benchmarks" / "results"
RUNS = ROOT / "docs" / "results" / "runs"


@dataclass(frozen=True)
class Experiment:
    """A table of benchmarks/results with a row per method."""

    title: str
    file: str
    column: str
    command: str


ACCURACIES = (
    Experiment(
        "CIFAR-10, ResNet-20 of 91.73 % fine-tuned on 10,000 examples, 2 epochs, binary weights",
        "pcpp-cifar10-*.csv",
        "test accuracy, %",
        "python -m benchmarks.pcpp cifar10 --subset 10000 --threads 1",
    ),
    Experiment(
        "Fashion-MNIST, 9,600 examples, 10 epochs, binary weights, 5 seeds",
        "pcpp-fashion-*.csv",
        "accuracy, %",
        "python -m benchmarks.pcpp fashion",
    ),
    Experiment(
        "MNIST, 10,000 examples, an MLP of width 128, 5 epochs, all layers binary, 3 seeds",
        "optimizers-accuracy-*.csv",
        "test accuracy, %",
        "python -m benchmarks.optimizers accuracy",
    ),
)
STEPS = Experiment(
    "A step over one of Adam on the same network, CPU time",
    "optimizers-steps-*.csv",
    "relative to Adam",
    "python -m benchmarks.optimizers steps",
)
LEVELS = (("cresnet20", "training-cpu-clock-*.csv"), ("tinyvit", "training-tinyvit-*.csv"))


@cache
def _table(pattern: str) -> list[dict[str, str]]:
    (path,) = RESULTS.glob(pattern)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def accuracies(name: str) -> Iterator[list[str]]:
    """(experiment, this method, the other methods, command) of every experiment it was part of."""
    for experiment in ACCURACIES:
        rows = {row["method"].split(",")[0]: row for row in _table(experiment.file)}
        if name in rows:
            others = [
                f"{other} {row[experiment.column]}" for other, row in rows.items() if other != name
            ]
            found = rows[name]
            spread = f" ± {found['std']}" if found.get("std") else ""
            own = f"**{found[experiment.column]}{spread} %**"
            yield [experiment.title, own, ", ".join(others), f"`{experiment.command}`"]


def times(name: str) -> Iterator[list[str]]:
    """(what, ratios) of the times of a training step."""
    for network, pattern in LEVELS:
        rows = {row["variant"]: row for row in _table(pattern)}
        found = {
            level: rows[f"{name} {level}"]["time relative to fp"]
            for level in "WBA"
            if f"{name} {level}" in rows
        }
        if found:
            told = ", ".join(f"{level} {ratio}" for level, ratio in found.items())
            yield [f"A step of {network} over one in full precision, CPU time", told]
    ratios = [
        row[STEPS.column] + (f" ({row['jacobian']} Jacobian)" if row["jacobian"] else "")
        for row in _table(STEPS.file)
        if row["method"] == name
    ]
    if ratios and name != "fp":
        yield [STEPS.title, ", ".join(ratios)]


@cache
def printed() -> dict[str, list[dict[str, Any]]]:
    """The rows of papers by method, those that were run here first: search, table, row, printed and
    our number."""
    read = [kept.with_rows_of_today(kept.read(path)) for path in sorted(RUNS.glob("*.json"))]
    known = {results.config.name for results in read}
    read += [kept.not_run(path) for name, path in searches().items() if name not in known]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in METHODS}
    for results in read:
        if results.config.paper is None:
            continue
        comparison = PaperComparison(results)
        for row, told in zip(comparison.paper.rows, comparison.rows(), strict=True):
            method = _method(comparison, whole_setting(comparison.paper, row))
            if method in found and row.value is not None:
                found[method].append(_told(comparison, told))
    for rows in found.values():
        rows.sort(key=lambda row: row["ours"] is None)
    return found


def _method(comparison: PaperComparison, where: Any) -> str | None:
    space = comparison.ours.config.space
    method = where.get("method", space.get("method"))
    if isinstance(method, list):
        method = method[0] if len(method) == 1 else None
    return None if method is None else str(method)


def _told(comparison: PaperComparison, row: dict[str, Any]) -> dict[str, Any]:
    number = row["numbers"][0]
    return {
        "search": comparison.ours.config.name,
        "table": f"{comparison.paper.table}, {comparison.paper.dataset}",
        "measures": f"{comparison.metric.label}, {comparison.paper.part}",
        "row": row["paper"]["label"],
        "printed": _with_spread(comparison, number["paper"], number["paper_spread"]),
        "ours": number["value"] and _with_spread(comparison, number["value"], number["spread"]),
        "seeds": number["seeds"],
        "unlike": ", ".join(row["not_comparable"]),
    }


def _with_spread(comparison: PaperComparison, value: float, spread: float | None) -> str:
    metric = comparison.metric
    return metric.number(value) + ("" if spread is None else f" ± {metric.number(spread)}")
