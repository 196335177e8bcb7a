"""Accuracy on the training and validation part over the epochs, a method at a time, means over
seeds (as Figure 6 of BayesBiNN). Curves of all trials are in `curves`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.dashboards.figures import FIGURES, Subject
from bitfront.dashboards.figures.style import GRID, canvas, look, saved, titled, words
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView
from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class MeanCurve:
    """Mean and standard deviation over seeds after every epoch; the deviation of one seed is 0."""

    epochs: Sequence[int]
    means: Sequence[float]
    spreads: Sequence[float]


@dataclass(frozen=True)
class MethodCurves:
    """The curves of one setting of a method."""

    method: str
    seeds: int
    train: MeanCurve
    validation: MeanCurve


def mean_curve(curves: Iterable[Curve]) -> MeanCurve:
    """The mean over curves at the epochs that all of them have."""
    known = [dict(curve) for curve in curves]
    epochs = sorted(set.intersection(*(set(curve) for curve in known))) if known else []
    columns = [[curve[epoch] for curve in known] for epoch in epochs]
    spreads = [statistics.stdev(c) if len(c) > 1 else 0.0 for c in columns]
    return MeanCurve(epochs, [statistics.fmean(c) for c in columns], spreads)


def method_curves(view: SearchView) -> list[MethodCurves]:
    """For each method the curves of the setting that was trained with most seeds, of several the
    one of best quality. Trials that end with their best epoch report that one in place of the last,
    which is left out."""
    settings: dict[tuple[str, ...], list[TrialView]] = {}
    for trial in view.trials:
        if trial.state == TrialState.COMPLETE and trial.curve:
            named = (f"{key}={value}" for key, value in sorted(trial.settings.items()))
            settings.setdefault((trial.method, trial.plan, *named), []).append(trial)
    sign = 1 if view.quality.maximize else -1
    best: dict[str, tuple[tuple[int, float], list[TrialView]]] = {}
    for (method, *_), trials in settings.items():
        reached = sign * statistics.fmean(trial.curve[-1][1] for trial in trials)
        rank = (len({trial.seed for trial in trials}), reached)
        if method not in best or rank > best[method][0]:
            best[method] = rank, trials
    return [
        MethodCurves(
            method,
            len(trials),
            mean_curve(_whole(trial, trial.train_curve) for trial in trials),
            mean_curve(_whole(trial, trial.curve) for trial in trials),
        )
        for method, (_, trials) in sorted(best.items())
    ]


def _whole(trial: TrialView, curve: Curve) -> Curve:
    """The curve without a last point that is of another epoch."""
    best = trial.values.get("best_epoch")
    moved = best is not None and best < trial.epochs
    return [(epoch, value) for epoch, value in curve if not moved or epoch < trial.epochs]


def training_image(view: SearchView, title: str, path: str | Path) -> Path:
    """Write a solid line for the validation part and a dashed one for the training part of each
    method, with a band of one standard deviation."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = canvas(8, 5.2)
    for index, each in enumerate(method_curves(view)):
        colour = look(index)[0]
        seeds = "1 seed" if each.seeds == 1 else f"{each.seeds} seeds"
        label = f"{each.method}, validation, {seeds}"
        _line(axes, view, each.validation, colour, "-", label)
        if each.train.epochs:
            _line(axes, view, each.train, colour, "--", f"{each.method}, training")
    axes.grid(color=GRID)
    axes.set_xlabel("epoch", **words())
    axes.set_ylabel(view.quality.label.removeprefix("validation "), **words())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    titled(axes, title)
    axes.legend(frameon=False)
    return saved(figure, path)


def _line(
    axes: Axes, view: SearchView, curve: MeanCurve, colour: str, style: str, label: str
) -> None:
    shown = view.quality.shown
    pairs = list(zip(curve.means, curve.spreads, strict=True))
    axes.plot(curve.epochs, [shown(m) for m, _ in pairs], style, color=colour, label=label)
    low, high = [shown(m - s) for m, s in pairs], [shown(m + s) for m, s in pairs]
    axes.fill_between(curve.epochs, low, high, color=colour, alpha=0.15, linewidth=0)


@FIGURES.register
class TrainingKind:
    """`bitfront figure --kind training`."""

    name = "training"
    doc = "quality on the training and validation part over epochs, of each method"

    @staticmethod
    def draw(subject: Subject, path: Path) -> None:
        """Write the curves of a search; a UserError where no trial has one."""
        view = subject.view()
        if not method_curves(view):
            raise UserError(f"search '{view.name}' has no complete trial with a curve")
        training_image(view, subject.titled(view.title), path)
