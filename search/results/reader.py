"""Makes a `SearchView` of a ledger, for figures, report and live page. Reading a search again costs
only what is new in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bitfront.search.config.known import is_cost
from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.inheriting import look_in_words
from bitfront.search.deciding.limits import limits_in_words
from bitfront.search.ledger.entry import Entry, training_seconds
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import LedgerReader
from bitfront.search.ledger.states import TrialState
from bitfront.search.live.busy import BusyClock, span
from bitfront.search.live.turn import read_turn
from bitfront.search.recipes.finals import FILE, final_trainings
from bitfront.search.results.figure_data import budgets, figure_labels, front_points
from bitfront.search.results.growth import Growth
from bitfront.search.results.labels import metric_label
from bitfront.search.results.layers import network_key, networks
from bitfront.search.results.results import Results, ideal_point
from bitfront.search.results.settings import (
    in_a_line,
    settings_in_words,
    settings_of,
    shown_settings,
)
from bitfront.search.results.stored import stored_config
from bitfront.search.results.view import Axis, Budget, HypervolumeStep, SearchView, TrialView
from bitfront.search.session.early_stopping import rung_epoch
from bitfront.trainables.data import dataset_title
from bitfront.trainables.metrics import Metric
from bitfront.trainables.own_code import shown


class SearchReader:
    """Reads one search again and again."""

    def __init__(self, folder: SearchFolder) -> None:
        self.folder = folder
        self._config: tuple[int, SearchConfig, str] | None = None
        config = self._stored_config()
        folder.check_ledger()
        self._ledger = LedgerReader(
            folder.ledger_url, config.name, config.objectives, folder.known_owner
        )
        self._growth: Growth | None = None
        self._trials: dict[int, tuple[Entry, TrialView]] = {}
        self._view: SearchView | None = None
        self._finals = 0

    def read(self) -> SearchView:
        """The search as it is now; the same view again where nothing has changed."""
        before = self._config
        changed = self._ledger.read() or self._stored_config() is not (before and before[1])
        running = self._view is not None and self._view.state == "running"
        runs = self.folder.running
        finals = _stamp(self.folder)
        if changed or self._view is None or running is not runs or finals != self._finals:
            self._finals = finals
            self._view = self._made()
        turn = read_turn(self.folder.path) if runs else None
        if turn != self._view.turn:
            self._view = replace(self._view, turn=turn)
        return self._view

    def _stored_config(self) -> SearchConfig:
        """The configuration; parsed again only when its file has changed."""
        file = self.folder.config_file
        written = file.stat().st_mtime_ns if file.exists() else 0
        if self._config is None or self._config[0] != written:
            config = stored_config(self.folder)
            self._config = written, config, config.dump()
        return self._config[1]

    def _made(self) -> SearchView:
        """A view of the ledger as it was read last."""
        assert self._config is not None
        results = Results.from_reader(self.folder, self._config[1], self._ledger)
        if self._growth is not None and len(results.entries) < len(self._growth.steps):
            self._growth = None  # the search was deleted and started again
        if self._growth is None and results.entries:
            self._growth = Growth(results.config, results.reference)
        steps = self._growth.followed(results.entries) if self._growth is not None else []
        trials = [self._trial(e, results) for e in results.entries]
        return _view(results, trials, steps, self._config[2])

    def _trial(self, entry: Entry, results: Results) -> TrialView:
        """The view of a trial; the one from before where the trial has not changed."""
        known = self._trials.get(entry.number)
        if known is None or known[0] is not entry:
            known = entry, _trial_view(entry, results)
            self._trials[entry.number] = known
        return known[1]


def view_of(results: Results) -> SearchView:
    """A view of these results."""
    trials = [_trial_view(entry, results) for entry in results.entries]
    steps = Growth(results.config, results.reference).followed(results.entries) if trials else []
    return _view(results, trials, steps, results.config.dump())


def _view(
    results: Results, trials: list[TrialView], steps: Sequence[HypervolumeStep], yaml: str
) -> SearchView:
    config = results.config
    saving = results.saving
    clock = BusyClock(s for e in results.entries if (s := span(e.started, e.ended, e.seconds)))
    first = min((e.started for e in results.entries if e.started is not None), default=0.0)
    return SearchView(
        name=config.name,
        description=config.description,
        dataset=dataset_title(config.task.dataset),
        model=shown(config.task.model.name),
        state=results.state,
        trials=trials,
        points=front_points(results),
        labels=figure_labels(results),
        front=[entry.id for entry in results.front],
        objectives=[axis_of(name, results) for name in config.objectives],
        objective_values={e.id: e.values for e in results.points if e.values is not None},
        quality=metric_axis(results.figure_quality),
        cost=axis_of(results.shown_cost, results),
        reference=results.reference,
        ideal=ideal_point(config),
        hypervolume=[step._replace(seconds=clock.at(first + step.seconds)) for step in steps],
        budgets=[Budget(*budget) for budget in budgets(results)],
        networks=networks(results),
        budget_of_trials=config.search.budget,
        epochs=config.task.epochs,
        seconds=training_seconds(results.entries),
        rungs=config.search.rungs,
        stopping=saving.sentence() if saving is not None else None,
        model_health=results.model.sentence() if results.model else "",
        outlook=results.outlook.sentence() if results.outlook else "",
        ended_by=results.ended_by.sentence() if results.ended_by else "",
        limits=limits_in_words(config, results.points),
        failing=[str(pattern) for pattern in results.failing],
        yaml=yaml,
        environment=results.environment,
        commands=commands(results),
        full_flops=results.full_flops if results.entries else None,
        measured_on=results.benched.describe() if results.benched is not None else "",
        tries=tries_in_words(results),
        finals=final_trainings(results.folder, skip_damaged=True),
        clock=clock,
    )


def tries_in_words(results: Results) -> list[str]:
    """The most promising points that were not tried, one in a line each; none for a search that is
    complete because its space is."""
    if results.outlook is None:
        return []
    quality = metric_axis(results.config.quality)
    lines = []
    for each in results.outlook.tries:
        settings = in_a_line(settings_in_words(each.params, str(each.params.get("method", ""))))
        costs = [f"{axis_of(n, results).text(v)} {n}" for n, v in each.costs.items()]
        if results.full_flops and "flops" in each.costs:
            costs = [f"{100 * each.costs['flops'] / results.full_flops:.3g} % of the flops"]
        point = " ".join(filter(None, [shown(str(each.params.get("method", ""))), settings]))
        expected = f"{quality.short} {quality.text(each.quality)} expected"
        lines.append(f"{point} {each.plan}: {', '.join([*costs, expected])}")
    return lines


def axis_of(name: str, results: Results) -> Axis:
    """The axis of a metric or of a cost."""
    if is_cost(name):
        return Axis(name, results.label_of(name), maximize=False, short=name)
    return metric_axis(results.config.kind.metric(name))


def metric_axis(metric: Metric) -> Axis:
    """The axis of a metric."""
    return Axis(metric.name, metric_label(metric), metric.maximize, metric.share, metric.bare)


def commands(results: Results) -> list[tuple[str, str]]:
    """(command, what it does): those that repeat the search and those that continue from it."""
    name = results.config.name
    again = [(f"bitfront resume {name}", "continue where it stopped")]
    point = [
        (f"bitfront export {name} --budget 40%", "a point of the front as recipe.yaml"),
        ("bitfront train recipe.yaml", "final training, packed checkpoint"),
    ]
    return [
        (f"bitfront run search.yaml --name {name}", "the same search again, elsewhere"),
        *(again if results.state == "interrupted" else []),
        (f"bitfront front {name} --plot", "the front in the terminal"),
        (f"bitfront ui {name}", "its runs in MLflow"),
        *(point if results.front else []),
    ]


def _stamp(folder: SearchFolder) -> int:
    """When the record of final trainings was written; 0 where there is none."""
    try:
        return (folder.path / FILE).stat().st_mtime_ns
    except OSError:
        return 0


def _curve(entry: Entry, metric: str) -> list[tuple[int, float]]:
    """(epoch, value) of every epoch after which a metric was measured."""
    rows = (row for row in entry.history if "epoch" in row and metric in row)
    return [(int(row["epoch"]), row[metric]) for row in rows]


def _trial_view(entry: Entry, results: Results) -> TrialView:
    quality, spec = results.figure_quality.name, entry.spec
    curve = _curve(entry, quality)
    at = dict(curve)
    rungs = {r: rung_epoch(r, spec.task.epochs) for r in results.config.search.rungs}
    return TrialView(
        id=entry.id,
        number=entry.number,
        state=entry.state,
        method=shown(spec.method),
        plan=spec.plan,
        network=network_key(spec.task),
        seed=spec.seed,
        params=shown_settings(entry.drawn),
        values={**entry.costs, **entry.metrics},
        epochs=spec.task.epochs,
        curve=curve,
        train_curve=_curve(entry, f"train_{results.config.kind.quality.bare}"),
        rungs={share: at[epoch] for share, epoch in rungs.items() if epoch in at},
        stopped_at=entry.metrics.get("stopped_at"),
        paused_at=entry.rung if entry.state == TrialState.PAUSED else None,
        look=look_in_words(entry, results.config.quality),
        would_stop_at=entry.metrics.get("would_stop_at"),
        failure=entry.failure,
        message=entry.message,
        started=entry.started,
        ended=entry.ended,
        seconds=entry.seconds,
        settings=settings_of(entry),
    )
