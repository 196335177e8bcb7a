"""What a click on a point shows of its trial, as data for the report and the live page. How it
looks is in `page.js` and `live.pieces`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitfront.search.ledger.states import TrialState
from bitfront.search.results.figure_data import MISSES
from bitfront.search.results.points import FrontPoint
from bitfront.search.results.view import Axis, SearchView, TrialView
from bitfront.trainables.plan import LEVELS

# A click on a trial beyond these shows nothing: the page would grow too large.
MOST_TRIALS = 1500


def click_data(views: Sequence[SearchView]) -> dict[str, Any]:
    """The data of `page.js`: trials by id, the layers of every network, the meaning of levels."""
    networks: dict[str, list[tuple[str, str]]] = {}
    trials: dict[str, dict[str, Any]] = {}
    for view in views:
        front = [view.by_id[key] for key in view.front]
        others = [t for t in view.trials if t.id not in view.on_front]
        for trial in [*front, *others][:MOST_TRIALS]:
            trials[trial.id] = trial_data(view, trial)
        for key, layers in view.networks.items():
            networks[key] = [(layer.name, layer.stage) for layer in layers]
    return {"trials": trials, "networks": networks, "levels": LEVELS}


def trial_data(view: SearchView, trial: TrialView) -> dict[str, Any]:
    """The plan of a trial, its network, rows of (name, text) and the commands that export it."""
    point = view.point_of.get(trial.id)
    extra = point.extra if point is not None else {}
    own = view.quality.text(trial.values.get(view.quality.name))
    means = []
    if point is not None and point.seeds > 1:
        means = [(f"mean of {point.seeds} seeds", measured(view, point))]
        own += " (this trial)"
    rows = [
        ("state", _state(trial)),
        ("method", trial.method),
        ("network", trial.network),
        (view.quality.label, own),
        *means,
        *((axis.label, axis.text(trial.values.get(axis.name))) for axis in shown_costs(view)),
        *((name, extra[name]) for name in ("sure %", MISSES) if name in extra),
        *((name, f"{v:.4g}" if isinstance(v, float) else str(v)) for name, v in _settings(trial)),
    ]
    done = trial.state == TrialState.COMPLETE
    command = f"bitfront export {view.name} --trial {trial.id}\nbitfront train recipe.yaml"
    return {
        "plan": trial.plan,
        "network": trial.network,
        "rows": rows,
        "command": command if done else "",
    }


def _state(trial: TrialView) -> str:
    """What became of a trial, with the reason."""
    if trial.stopped_at is not None:
        return f"stopped at {100 * trial.stopped_at:g} % of training"
    if trial.paused_at is not None:
        return f"paused at {100 * trial.paused_at:g} % of training, may go on"
    if trial.look is not None and trial.state == TrialState.PAUSED:
        return f"looked at: {trial.look}; no point of the front until trained from scratch"
    if trial.failure is not None:
        return f"failed: {trial.failure}, {trial.message or ''}"[:300]
    return trial.state


def _settings(trial: TrialView) -> list[tuple[str, Any]]:
    """The sampled settings besides the method, by their full names."""
    return [(name, value) for name, value in trial.params.items() if name != "method"]


def shown_costs(view: SearchView) -> list[Axis]:
    """The cost on the axis of the front, and all objectives besides the quality."""
    axes = [view.cost, *(a for a in view.objectives if a.name != view.quality.name)]
    return list({axis.name: axis for axis in axes}.values())


def measured(view: SearchView, point: FrontPoint) -> str:
    """The quality of a point, with its spread over seeds where that is known."""
    spread = "" if point.spread is None else f" ± {view.quality.number(point.spread)}"
    return view.quality.text(point.accuracy) + spread
