"""What the driver of a search keeps of what its trials tell."""

from mlflow import MlflowClient

from bitfront.search.config.space import build_space
from bitfront.search.ledger.entry import Entry, training_seconds
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.results import Results
from bitfront.search.session.session import Session
from bitfront.search.tracking.tracker import Tracker
from bitfront.terminal.status import status_row
from bitfront.trainables.methods.base import Method
from bitfront.trainables.worker.worker import Worker

# What Ray adds to every result.
OF_RAY = {"training_iteration": 3, "time_total_s": 1.5, "pid": 7, "timestamp": 1, "date": "today"}


def finished(config, path, tracker=None):
    """A search of one trial, which is trained here as a worker would, with its ledger entry."""
    folder = SearchFolder(path / config.name)
    folder.path.mkdir(exist_ok=True)
    folder.config_file.write_text(config.dump())
    session = Session(config, build_space(config), folder, tracker)
    entry = session.ask()
    trial = Worker(config=session.trial_config(entry))
    result = {"done": False}
    while not result["done"]:
        result = {**trial.step(), **OF_RAY}
        if not result["done"]:
            session.report(entry.id, result)
    session.finish(entry.id, result)
    session.close()
    (read,) = Results.of(folder).entries
    return read, trial._training.history


def test_everything_training_measured_is_in_the_ledger_and_nothing_else(make_config, tmp_path):
    config = make_config("task.keep=best", "search.trials=1", "space.method=bnn++")
    read, history = finished(config, tmp_path)
    assert read.metrics == history[-1]
    assert 1 <= read.metrics["best_epoch"] <= 3
    assert read.history == history


def test_the_best_epoch_is_told_only_where_it_is_kept(make_config, tmp_path):
    read, _ = finished(make_config("search.trials=1"), tmp_path)
    assert "best_epoch" not in read.metrics
    assert not set(read.metrics) & {*OF_RAY, "worker", "resumed_from", "measured"}


def test_a_new_diagnostic_value_reaches_the_ledger_and_mlflow(make_config, tmp_path, monkeypatch):
    """Nothing but the method knows of it."""
    values = iter((0.25, 0.5, 0.75))
    known = Method.diagnose
    monkeypatch.setattr(
        Method, "diagnose", lambda self: {**known(self), "flip_speed": next(values)}
    )
    config = make_config("search.trials=1", "space.method=bnn++")
    folder = SearchFolder(tmp_path / config.name)
    folder.path.mkdir()
    tracker = Tracker(config, folder.identity, tmp_path)
    tracker.start([])
    read, _ = finished(config, tmp_path, tracker)
    assert tracker.close("complete", {}, "") is None
    assert read.metrics["flip_speed"] == 0.75
    assert [row["flip_speed"] for row in read.history] == [0.25, 0.5, 0.75]
    client = MlflowClient(tracker.uri)
    (run,) = client.search_runs([tracker.mirror.experiment_id], "tags.`bitfront.kind` = 'trial'")
    curve = client.get_metric_history(run.info.run_id, "flip_speed")
    assert [(m.step, m.value) for m in curve] == [(1, 0.25), (2, 0.5), (3, 0.75)]


def test_the_time_of_a_resumed_trial_is_the_time_it_was_trained(make_space, tmp_path, monkeypatch):
    """It is interrupted after two epochs of 10 s, resumed an hour later, and ends after a third."""
    now = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    config, space = make_space()
    rows = [{"epoch": e, "val_accuracy": 0.5, "val_loss": 1.0, "seconds": 10.0} for e in (1, 2, 3)]
    folder.config_file.write_text(config.dump())
    first = Session(config, space, folder, None)
    entry = first.ask()
    for row in rows[:2]:
        now += 10
        first.report(entry.id, row)
    now += 3600
    second = Session(config, space, folder, None)
    assert second.ask().id == entry.id
    now += 10
    second.finish(entry.id, {**rows[-1], "history": rows})
    ended = second.ledger.entries[entry.id]
    assert ended.seconds == 30
    assert training_seconds([ended]) == 30
    (row,) = [r for r in [status_row(Results.of(folder))] if r]
    assert row[-1] == "30 s"


def test_trials_at_the_same_time_count_once():
    def trial(started, ended, seconds=None):
        history = [] if seconds is None else [{"epoch": 1, "seconds": seconds}]
        return Entry("0", 0, TrialState.COMPLETE, {}, {}, "", started=started, ended=ended,
                     history=history)  # fmt: skip

    together = [trial(0, 10), trial(5, 12), trial(3, 8)]
    assert training_seconds(together) == 12
    assert training_seconds([*together, trial(100, 110)]) == 22
    assert training_seconds([*together, trial(12, 1000, seconds=50)]) == 62
    assert training_seconds([trial(0, None)]) == training_seconds([]) == 0
