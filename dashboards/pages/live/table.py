"""The table of trials as data for the browser, which sorts, filters and exports it (`live.js`)."""

from __future__ import annotations

import math
import time
from typing import Any

from bitfront.dashboards.pages.panel import shown_costs
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import Axis, SearchView, TrialView


def trial_table(view: SearchView) -> dict[str, Any]:
    """Columns and rows. Numbers are those of the ledger; a column says how they are shown. Settings
    that are the same in all trials have no column."""
    settings = _varying(view)
    axes = [view.quality, *shown_costs(view)]
    columns = [
        {"name": "trial", "kind": "id"},
        {"name": "state", "kind": "word"},
        *([{"name": "method", "kind": "word"}] if len(view.methods) > 1 else []),
        *({"name": name, "kind": "word"} for name in settings),
        *(_column(axis) for axis in axes),
        {"name": "seconds", "kind": "number"},
        {"name": "plan", "kind": "letters"},
    ]
    # Running ones first, then the newest.
    newest = sorted(view.trials, key=lambda t: (t.state != TrialState.RUNNING, -t.number))
    rows = [
        [
            trial.id,
            _state(view, trial),
            *([trial.method] if len(view.methods) > 1 else []),
            *(trial.settings.get(name, "") for name in settings),
            *(_rounded(trial.values.get(axis.name)) for axis in axes),
            _seconds(view, trial),
            trial.plan,
        ]
        for trial in newest
    ]
    front = [trial.id for trial in newest if trial.id in view.on_front]
    return {"search": view.name, "columns": columns, "rows": rows, "front": front}


def _column(axis: Axis) -> dict[str, Any]:
    return {"name": axis.short or axis.name, "kind": "percent" if axis.percent else "number"}


def _varying(view: SearchView) -> list[str]:
    """The settings that differ between trials, or that only some of them have."""
    values: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for trial in view.trials:
        for name, text in trial.settings.items():
            values.setdefault(name, set()).add(text)
            counts[name] = counts.get(name, 0) + 1
    return [n for n in values if len(values[n]) > 1 or counts[n] < len(view.trials)]


def _state(view: SearchView, trial: TrialView) -> str:
    """The state of a trial, with the reason of a failure and the progress of a running one."""
    if trial.failure:
        return f"failed: {trial.failure}"
    if trial.state == TrialState.RUNNING:
        if view.state != "running":
            return "interrupted"
        curve = view.curve_of(trial)
        return f"running, epoch {curve[-1][0] if curve else 0}/{trial.epochs}"
    return str(trial.state)


def _seconds(view: SearchView, trial: TrialView) -> float | None:
    if trial.state == view.state == TrialState.RUNNING and trial.started is not None:
        return round(time.time() - trial.started)
    return None if trial.seconds is None else float(f"{trial.seconds:.3g}")


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
