"""What a search looks like, from its ledger: the plain data that pictures, the report and the live
page are made of. Reading the same search again costs only what is new."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from bitfront.dashboards.view import Axis, Budget, HypervolumeStep, Layer, SearchView, TrialView
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import LedgerReader
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.results import (
    COST_LABELS,
    Results,
    ideal_point,
    metric_label,
    stored_config,
)
from bitfront.search.results.settings import settings_of
from bitfront.search.session.early_stopping import rung_epoch
from bitfront.trainables.metrics import Metric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bitfront.trainables.plan import PlanLayer
    from bitfront.trainables.task import Task


class SearchReader:
    """One search, looked at again and again."""

    def __init__(self, folder: SearchFolder) -> None:
        self.folder = folder
        self._config: tuple[int, SearchConfig, str] | None = None
        config = self._stored_config()
        self._ledger = LedgerReader(folder.ledger_url, config.name, config.objectives)
        self._growth: Growth | None = None
        self._trials: dict[int, tuple[Entry, TrialView]] = {}
        self._view: SearchView | None = None

    def read(self) -> SearchView:
        """The search as it is now; the same view again where nothing has changed."""
        before = self._config
        changed = self._ledger.read() or self._stored_config() is not (before and before[1])
        running = self._view is not None and self._view.state == "running"
        if changed or self._view is None or running is not self.folder.running:
            self._view = self._made()
        return self._view

    def _stored_config(self) -> SearchConfig:
        """Read again only when its file was written again."""
        file = self.folder.config_file
        written = file.stat().st_mtime_ns if file.exists() else 0
        if self._config is None or self._config[0] != written:
            config = stored_config(self.folder)
            self._config = written, config, config.dump()
        return self._config[1]

    def _made(self) -> SearchView:
        assert self._config is not None
        results = Results.from_reader(self.folder, self._config[1], self._ledger)
        if self._growth is not None and len(results.entries) < len(self._growth.steps):
            self._growth = None  # the search was deleted and begun anew
        if self._growth is None and results.entries:
            self._growth = Growth(results.config, results.reference)
        steps = self._growth.followed(results.entries) if self._growth is not None else []
        trials = [self._trial(e, results) for e in results.entries]
        return _view(results, trials, steps, self._config[2])

    def _trial(self, entry: Entry, results: Results) -> TrialView:
        known = self._trials.get(entry.number)
        if known is None or known[0] is not entry:
            known = entry, _trial_view(entry, results)
            self._trials[entry.number] = known
        return known[1]


def view_of(results: Results) -> SearchView:
    """The search of these results."""
    trials = [_trial_view(entry, results) for entry in results.entries]
    steps = Growth(results.config, results.reference).followed(results.entries) if trials else []
    return _view(results, trials, steps, results.config.dump())


def _view(
    results: Results, trials: list[TrialView], steps: Sequence[HypervolumeStep], yaml: str
) -> SearchView:
    config = results.config
    stopping = results.stopping
    starts = [t.started for t in trials if t.started is not None]
    ends = [t.ended for t in trials if t.ended is not None]
    return SearchView(
        name=config.name,
        description=config.description,
        dataset=config.task.dataset,
        model=config.task.model.name,
        state=results.state,
        trials=trials,
        points=results.figure_points(),
        labels=results.figure_labels(),
        front=[entry.id for entry in results.front],
        objectives=[axis_of(name, results) for name in config.objectives],
        objective_values={e.id: e.values for e in results.points if e.values is not None},
        quality=metric_axis(results.figure_quality),
        cost=axis_of(results.shown_cost, results),
        reference=results.reference,
        ideal=ideal_point(config),
        hypervolume=steps,
        budgets=[Budget(*budget) for budget in results.budgets()],
        networks=networks(results),
        budget_of_trials=config.search.trials,
        epochs=config.task.epochs,
        seconds=max(ends) - min(starts) if starts and ends else 0.0,
        rungs=config.search.early_stopping.rungs if config.search.early_stopping else (),
        stopping=stopping.sentence() if stopping is not None else None,
        yaml=yaml,
        environment=results.environment,
        commands=commands(results),
        full_flops=results.full_flops if results.entries else None,
    )


def axis_of(name: str, results: Results) -> Axis:
    """Of a metric or a cost."""
    if name in COST_LABELS:
        return Axis(name, results.label_of(name), maximize=False, short=name)
    return metric_axis(results.config.kind.metric(name))


def metric_axis(metric: Metric) -> Axis:
    return Axis(metric.name, metric_label(metric), metric.maximize, metric.share, metric.bare)


def commands(results: Results) -> list[tuple[str, str]]:
    """What reproduces the search, and what goes on from it."""
    name = results.config.name
    again = [(f"bitfront resume {name}", "continue where it stopped")]
    return [
        (f"bitfront run search.yaml --name {name}", "the same search again, elsewhere"),
        *(again if results.state == "interrupted" else []),
        (f"bitfront front {name} --plot", "the front in the terminal"),
        (f"bitfront ui {name}", "its runs in MLflow"),
        (f"bitfront export {name} --budget 40%", "a point of the front as recipe.yaml"),
        ("bitfront train recipe.yaml", "final training, packed checkpoint"),
    ]


def _trial_view(entry: Entry, results: Results) -> TrialView:
    quality, spec = results.figure_quality.name, entry.spec
    curve = [
        (int(row["epoch"]), row[quality])
        for row in entry.history
        if "epoch" in row and quality in row
    ]
    at = dict(curve)
    stopping = results.config.search.early_stopping
    rungs = (
        {share: rung_epoch(share, spec.task.epochs) for share in stopping.rungs} if stopping else {}
    )
    return TrialView(
        id=entry.id,
        number=entry.number,
        state=entry.state,
        method=spec.method,
        plan=spec.plan,
        network=network_key(spec.task),
        seed=spec.seed,
        params=entry.drawn,
        values={**entry.costs, **entry.metrics},
        epochs=spec.task.epochs,
        curve=curve,
        rungs={share: at[epoch] for share, epoch in rungs.items() if epoch in at},
        stopped_at=entry.metrics.get("stopped_at"),
        would_stop_at=entry.metrics.get("would_stop_at"),
        failure=entry.failure,
        message=entry.message,
        started=entry.started,
        ended=entry.ended,
        settings=settings_of(entry),
    )


# --- networks -----------------------------------------------------------------------------------


def network_key(task: Task) -> str:
    """A network by its name and parameters."""
    params = ", ".join(f"{k} {v}" for k, v in sorted(task.model.params.items()))
    return f"{task.model.name} {params}".strip()


def networks(results: Results) -> dict[str, Sequence[Layer]]:
    """The layers of every network that was tried, from the ledger; of one that was written before
    ledgers kept them, the network is built again."""
    tasks = {network_key(entry.spec.task): entry.spec.task for entry in results.entries}
    found: dict[str, Sequence[Layer]] = {}
    for key, task in tasks.items():
        known = results.networks.of(task)
        layers = known if known is not None else _layers(task.model_dump_json())
        found[key] = [Layer(layer.name, layer.block, layer.stage) for layer in layers]
    return found


@lru_cache(maxsize=256)
def _layers(task: str) -> tuple[PlanLayer, ...]:
    from bitfront.trainables.cost import task_cost_table
    from bitfront.trainables.task import Task

    table = task_cost_table(Task.model_validate_json(task))
    return tuple(table.plan_layers)


# --- hypervolume over time ----------------------------------------------------------------------


class Growth:
    """The hypervolume after every trial that ended, as a share of the box from the reference to
    a perfect, free network. A point with several seeds counts with its mean."""

    def __init__(self, config: SearchConfig, reference: Sequence[float]) -> None:
        import numpy as np

        self._signs = np.array([o.sign for o in config.front_objectives], dtype=float)
        self._limit = np.array(reference, dtype=float) * self._signs
        self._box = float(np.prod(self._limit - np.array(ideal_point(config)) * self._signs))
        self._losses: NDArray[np.float64] = np.empty((64, len(self._signs)))
        self._rows: dict[str, int] = {}
        self._seeds: dict[str, int] = {}
        self._front: NDArray[np.float64] = np.empty((0, len(self._signs)))
        self._counted: set[str] = set()
        self._first: float | None = None
        self.steps: list[HypervolumeStep] = []

    def followed(self, entries: Sequence[Entry]) -> list[HypervolumeStep]:
        """Count what has ended since the last look."""
        new = [e for e in entries if e.ended is not None and e.id not in self._counted]
        if self._first is None:
            self._first = min((e.started for e in entries if e.started is not None), default=None)
        for entry in sorted(new, key=lambda e: (e.ended or 0.0, e.number)):
            self._counted.add(entry.id)
            share = self.steps[-1].share if self.steps else 0.0
            if entry.state == TrialState.COMPLETE and entry.values is not None:
                share = self._counted_in(entry.point, entry.values, share)
            seconds = (entry.ended or 0.0) - (self._first or 0.0)
            self.steps.append(HypervolumeStep(len(self._counted), seconds, share))
        return list(self.steps)

    def _counted_in(self, point: str, values: Sequence[float], share: float) -> float:
        """The share with this trial in it."""
        import moocore
        import numpy as np

        losses = np.array(values, dtype=float) * self._signs
        if point in self._rows:
            row = self._rows[point]
            self._seeds[point] += 1
            self._losses[row] += (losses - self._losses[row]) / self._seeds[point]
        else:
            row = len(self._rows)
            if row == len(self._losses):
                self._losses = np.concatenate([self._losses, np.empty_like(self._losses)])
            self._rows[point], self._seeds[point], self._losses[row] = row, 1, losses
            if (self._front <= losses).all(1).any():
                return share
        all_losses = self._losses[: len(self._rows)]
        self._front = all_losses[moocore.is_nondominated(all_losses)]
        return float(moocore.hypervolume(self._front, ref=self._limit)) / self._box
