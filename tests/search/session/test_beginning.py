"""A search that never began leaves nothing behind, and one without trials may become another."""

import signal

import optuna
import pytest
import yaml

from bitfront.cli import main
from bitfront.search.ledger import folder as home
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.reader import read_entries
from bitfront.search.results.stored import stored_config
from bitfront.search.session.beginning import has_trials
from bitfront.trainables.errors import UserError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _no_ledger(monkeypatch):
    monkeypatch.setenv(home.LEDGER, "")  # `prepare` sets it for good


@pytest.fixture
def tiny(tmp_path, tiny_yaml):
    """The file of a search."""
    path = tmp_path / "tiny.yaml"
    path.write_text(tiny_yaml)
    return str(path)


@pytest.fixture
def runs(tmp_path):
    """The home, which is not there yet."""
    return tmp_path / "bitfront-runs"


@pytest.fixture
def driving(monkeypatch):
    """Trials run as the test says, without Ray."""

    def drive(run_trials):
        monkeypatch.setattr("bitfront.search.cluster.tuner.run_trials", run_trials)

    return drive


def raising(error):
    def run_trials(session, address):
        raise error

    return run_trials


def all_trials(session, address):
    """As Ray would, in no time."""
    while (entry := session.ask()) is not None:
        row = {"epoch": 3, "val_accuracy": 0.5, "val_loss": 1.0, "seconds": 0.1}
        session.finish(entry.id, {**row, "history": [row]})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["task.dataset=mnist", "task.data_dir=/nowhere"], "mnist"),
        (["resources.cpus=4096"], "a trial wants 4096 CPUs"),
        (["storage=/dev/null/shared"], "cannot be used"),
    ],
    ids=["data", "resources", "storage"],
)
def test_what_can_be_checked_is_checked_before_anything_is_made(tiny, runs, capsys, words, told):
    sets = [word for each in words for word in ("--set", each)]
    assert main(["run", tiny, *sets]) == 2
    assert told in capsys.readouterr().err
    assert not runs.exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [(UserError("a trial wants 1 rocket"), 2), (KeyboardInterrupt(), 130), (RuntimeError("?"), 1)],
    ids=["user error", "ctrl-C", "bug"],
)
def test_a_start_that_fails_leaves_no_folder_no_study_and_no_run(
    tiny, runs, tmp_path, driving, error, code
):
    driving(raising(error))
    shared = f"sqlite:///{tmp_path}/shared.db"
    assert main(["run", tiny]) == code
    assert not runs.exists()
    assert main(["run", tiny, "--ledger", shared]) == code
    assert not runs.exists()
    assert optuna.get_all_study_names(shared) == []
    assert not list(tmp_path.rglob("*.part"))


def test_a_start_that_fails_can_be_corrected(tiny, runs, driving, capsys):
    driving(raising(UserError("a trial wants 1 rocket")))
    assert main(["run", tiny]) == 2
    driving(all_trials)
    corrected = ["--set", "task.epochs=2", "--set", "objectives={val_loss: min, flops: min}"]
    assert main(["run", tiny, *corrected, "--set", "tracking.enabled=false"]) == 0
    assert "Front of tiny" in capsys.readouterr().out


def test_a_database_that_cannot_be_opened_leaves_no_folder(tiny, runs, capsys):
    assert main(["run", tiny, "--ledger", "sqlite:////no/such/folder/x.db"]) == 2
    assert "the ledger cannot be opened" in capsys.readouterr().err
    assert not runs.exists()


def test_a_folder_that_was_there_before_stays_as_it_was(tiny, runs, driving):
    folder = runs / "tiny"
    folder.mkdir(parents=True)
    (folder / "identity").write_text("abcdef123456")
    (runs / "others").mkdir()
    driving(raising(KeyboardInterrupt()))
    assert main(["run", tiny]) == 130
    assert [path.name for path in folder.iterdir()] == ["identity"]
    assert (runs / "others").exists()


def killed(runs, make_space, *assignments):
    """The folder of a driver that was killed before the first trial."""
    config, space = make_space(*assignments)
    folder = SearchFolder(runs / "tiny")
    folder.path.mkdir(parents=True)
    folder.config_file.write_text(config.dump())
    Ledger(folder.ledger_url, config, space)
    return config, folder


CHANGED = [
    "--set", "task.epochs=2", "--set", "search.trials=4",
    "--set", "objectives={val_accuracy: max, flops: min, bytes: min}",
    "--set", "tracking.enabled=false",
]  # fmt: skip


def test_a_search_that_was_killed_before_its_first_trial_may_change(
    tiny, runs, make_space, driving, capsys
):
    _, folder = killed(runs, make_space)
    driving(all_trials)
    assert main(["run", tiny, *CHANGED]) == 0
    stored = stored_config(folder)
    assert (stored.task.epochs, stored.search.trials, len(stored.objectives)) == (2, 4, 3)
    entries = read_entries(folder.ledger_url, "tiny")
    assert [len(entry.values) for entry in entries] == [3] * 4
    assert main(["run", tiny, *CHANGED, "--set", "task.epochs=5"]) == 2
    assert "exists with another configuration: task.epochs: 2 -> 5" in capsys.readouterr().err


def test_a_search_without_trials_may_move_to_another_database(
    tiny, runs, make_space, driving, tmp_path
):
    _, folder = killed(runs, make_space)
    driving(all_trials)
    words = ["--ledger", f"sqlite:///{tmp_path}/other.db", "--set", "tracking.enabled=false"]
    assert main(["run", tiny, *words]) == 0
    assert folder.ledger_url == f"sqlite:///{tmp_path}/other.db"
    assert has_trials(folder)


def test_a_change_that_does_not_start_either_is_taken_back(tiny, runs, make_space, driving):
    config, folder = killed(runs, make_space)
    before = sorted(path.name for path in folder.path.iterdir())
    driving(raising(UserError("a trial wants 1 rocket")))
    assert main(["run", tiny, *CHANGED]) == 2
    assert yaml.safe_load(folder.config_file.read_text()) == yaml.safe_load(config.dump())
    left = {path.name for path in folder.path.iterdir()} - {"lock", "identity"}
    assert sorted(left - {"ledger.db-shm", "ledger.db-wal"}) == [
        name for name in before if name not in ("ledger.db-shm", "ledger.db-wal")
    ]


def test_the_run_an_older_version_left_in_mlflow_goes_when_the_search_changes(
    tiny, runs, make_space, driving
):
    from bitfront.search.tracking.mirror import Mirror

    config, folder = killed(runs, make_space)
    uri = f"sqlite:///{runs / 'mlflow.db'}"
    mirror = Mirror(config, folder.identity, runs, uri)
    driving(all_trials)
    assert main(["run", tiny, "--set", "task.epochs=2"]) == 0
    query = "tags.`bitfront.kind` = 'search'"
    (run,) = mirror.client.search_runs([mirror.experiment_id], query)
    assert run.info.run_id != mirror.parent_id
    assert run.data.params["epochs"] == "2"


def test_a_finished_search_is_drawn_and_told_to_mlflow_once(tiny, driving, monkeypatch, capsys):
    """`run` again says what comes next; `resume` writes pictures and MLflow anew."""
    driving(all_trials)
    assert main(["run", tiny]) == 0
    capsys.readouterr()
    assert main(["run", tiny]) == 0
    shown = capsys.readouterr().out
    assert "drawing the front" not in shown
    assert "telling MLflow" not in shown
    assert "Front of tiny" in shown
    assert "bitfront extend tiny --trials +20" in shown
    assert main(["resume", "tiny"]) == 0
    assert "telling MLflow" in capsys.readouterr().out


def test_a_search_whose_method_is_gone_says_so(tiny, runs, driving, capsys):
    driving(all_trials)
    assert main(["run", tiny, "--set", "tracking.enabled=false"]) == 0
    file = runs / "tiny" / "search.yaml"
    file.write_text(file.read_text().replace("- bnn\n", "- cosine-ste\n"))
    assert main(["resume", "tiny"]) == 2
    assert "method 'cosine-ste' of search 'tiny' is no longer there" in capsys.readouterr().err


def test_an_extension_that_is_interrupted_before_a_trial_draws_nothing(tiny, driving, capsys):
    driving(all_trials)
    assert main(["run", tiny]) == 0
    capsys.readouterr()
    driving(raising(KeyboardInterrupt()))
    assert main(["extend", "tiny", "--trials", "+2"]) == 130
    assert "drawing the front" not in capsys.readouterr().out
    driving(all_trials)
    assert main(["resume", "tiny"]) == 0
    assert "drawing the front" in capsys.readouterr().out


def test_a_lock_that_went_with_its_folder_keeps_nobody_out_and_lets_nobody_in_twice(tmp_path):
    import shutil

    folder = SearchFolder(tmp_path / "tiny")
    with folder.locked():
        with (folder.path / "lock").open("a") as waiting:
            shutil.rmtree(folder.path)
            with folder.locked():
                assert folder.running
                with pytest.raises(UserError, match="running in another process"):
                    folder.locked().__enter__()
        assert waiting.closed


def test_stop_says_that_nothing_is_left(runs, make_space, monkeypatch, capsys):
    """The driver ends before its first trial, and takes the folder along."""
    import os
    import shutil
    import socket

    _, folder = killed(runs, make_space)
    monkeypatch.setattr(SearchFolder, "driver", (socket.gethostname(), os.getpid()))

    def driver_ends(pid, number):
        assert number == signal.SIGTERM
        shutil.rmtree(folder.path)

    monkeypatch.setattr("os.kill", driver_ends)
    assert main(["stop", "tiny"]) == 0
    assert "had no trial yet: nothing of it is left" in capsys.readouterr().out
