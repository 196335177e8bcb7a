"""What the driver of a search keeps of what its trials tell."""

from bitfront.search.config.space import build_space
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.results import Results
from bitfront.search.session.session import Session
from bitfront.trainables.worker.worker import Worker

# What Ray adds to every result.
OF_RAY = {"training_iteration": 3, "time_total_s": 1.5, "pid": 7, "timestamp": 1, "date": "today"}


def finished(config, path):
    """A search of one trial, which is trained here as a worker would, with its ledger entry."""
    folder = SearchFolder(path / config.name)
    folder.path.mkdir()
    folder.config_file.write_text(config.dump())
    session = Session(config, build_space(config), folder, None)
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
