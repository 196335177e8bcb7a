"""Sentences that say what is meant: which best, how many seeds, what was checked."""

import io
import json
import re
import socket
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from bitfront.cli import build_parser, main
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.reader import commands
from bitfront.search.results.results import Results
from bitfront.search.session.session import Session
from bitfront.search.tracking import server
from bitfront.spaces.ready_made import FORMER, searches
from bitfront.terminal.final_training import result_text
from bitfront.terminal.progress import Progress
from bitfront.terminal.status import STATUS_HEADERS, status_row, status_table
from bitfront.terminal.summary import front_summary, show_end
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.verbs.options import port_of


@pytest.fixture
def tiny(make_space, tmp_path, monkeypatch):
    """The parts of a search, and its folder where verbs look for it."""
    monkeypatch.setenv("BITFRONT_HOME", str(tmp_path))
    config, space = make_space("search.trials=10", "search.confirm=0.5", "search.sampler=free-cost")
    folder = SearchFolder(tmp_path / config.name)
    write_atomically(folder.config_file, config.dump())
    return config, space, folder


def test_the_best_is_the_best_mean_over_seeds_everywhere(tiny, capsys):
    """A lucky seed of a point that was repeated is no result."""
    config, space, folder = tiny
    session: Any = Session(config, space, folder, None, progress=partial(Progress, quiet=True))
    while (entry := session.ask()) is not None:
        accuracy = 0.5 + 0.05 * entry.spec.plan.count("F") - 0.2 * (entry.spec.seed > 0)
        session.finish(entry.id, {"epoch": 3, "val_accuracy": accuracy, "val_loss": 1.0})
    results = Results.of(folder)
    lucky = max(e.metrics["val_accuracy"] for e in results.entries)
    best = max(e.metrics["val_accuracy"] for e in results.front)
    assert best < lucky
    assert session.best == results.best == pytest.approx(best)
    shown = config.quality.number(best, 1)
    assert f"best {shown} %" in session.progress.line()
    assert status_row(results)[STATUS_HEADERS.index("best")] == shown
    main(["status", config.name, "--json"])
    assert json.loads(capsys.readouterr().out)["best_accuracy"] == pytest.approx(best)


def test_every_failed_trial_can_be_looked_at(tiny, capsys):
    """The end of a search names the command that shows all of them, with tracebacks."""
    config, space, folder = tiny
    session = Session(config, space, folder, None)
    for number in range(5):
        raised = {"failure": "error", "message": f"KeyError: {number}"}
        where = f"Traceback:\n  line {number}"
        session.finish(session.ask().id, {**raised, "traceback": where, "done": True})
    results = Results.of(folder)
    show_end(results, complete=True)
    command = f"bitfront status {config.name} --failures"
    end, further = capsys.readouterr().out.split("Next:")
    assert command in end
    # There is no point to export and to train.
    assert command in further
    assert "export" not in further
    assert "recipe.yaml" not in further
    assert not any("export" in told for told, _ in commands(results))
    assert main(["status", config.name]) == 0
    shown = capsys.readouterr().out
    assert "KeyError: 4" in shown
    assert f"2 more, and tracebacks: {command}" in shown
    assert main(command.split()[1:]) == 0
    shown = capsys.readouterr().out
    assert all(f"  line {number}" in shown for number in range(5))
    assert main(["status", config.name, "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)["failed"]
    assert (first["reason"], first["message"]) == ("error", "KeyError: 0")


@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_the_former_name_of_a_ready_made_search_leads_to_the_new_one(former, now, capsys):
    assert now in searches()
    assert main(["run", former]) == 2
    assert f"'{former}' is in '{now}' now" in capsys.readouterr().err


def test_the_front_says_that_repeats_move_points(tiny):
    config, space, folder = tiny
    session = Session(config, space, folder, None)
    while (entry := session.ask()) is not None:
        accuracy = 0.5 + 0.05 * entry.spec.plan.count("F")
        session.finish(entry.id, {"epoch": 3, "val_accuracy": accuracy, "val_loss": 1.0})
    told = " ".join(front_summary(Results.of(folder)).split())
    assert re.search(r"5 trials repeated \d points? with other seeds: a point counts with", told)


def test_no_trial_runs_without_a_driver(tiny):
    config, space, folder = tiny
    session = Session(config, space, folder, None)
    session.ask()
    with folder.locked():
        assert Results.of(folder).status_json()["trials"]["running"] == 1
    report = Results.of(folder).status_json()
    assert report["state"] == "interrupted"
    assert (report["trials"]["running"], report["trials"]["waiting"]) == (0, 1)
    assert status_row(Results.of(folder))[STATUS_HEADERS.index("run")] == "0"


def test_a_search_that_has_no_place_waits_and_says_why(tiny):
    config, space, folder = tiny
    session = Session(config, space, folder, None)
    session.ask()
    why = "waiting for a place, all 2 are taken by 'alice-first'"
    run, state = STATUS_HEADERS.index("run"), STATUS_HEADERS.index("state")
    with folder.locked():
        folder.note_wait(why)
        results = Results.of(folder)
        assert (results.status_json()["state"], results.status_json()["waits"]) == ("running", why)
        assert [status_row(results)[column] for column in (state, run)] == ["waiting", "0"]
        assert f"{folder.name}: {why}" in status_table([(folder.name, results)])
        folder.note_wait(None)
        assert [status_row(results)[column] for column in (state, run)] == ["running", "1"]
        folder.note_wait(why)  # its driver is killed then
    assert status_row(results)[state] == "interrupted"
    with folder.locked():
        assert status_row(results)[state] == "running", "the next turn has not waited yet"


def test_the_trials_of_a_resumed_search_are_not_called_the_first(tiny):
    config, space, folder = tiny
    out = io.StringIO()
    session: Any = Session(config, space, folder, None, progress=partial(Progress, out=out))
    session.progress.start()
    assert session.progress.line().startswith("first trial: ")
    entry = session.ask()
    session.finish(entry.id, {"epoch": 3, "val_accuracy": 0.9, "val_loss": 1.0})
    left = session.ask()
    session.progress.stop()
    session.progress.status.close()
    again: Any = Session(config, space, folder, None, progress=partial(Progress, out=out))
    again.progress.start()
    assert again.progress.line().startswith("next trials: ")
    again.progress.changed()
    assert ", 0 running, " in again.progress.line(), "nobody trains the one that was left"
    assert again.ask().id == left.id
    assert ", 1 running, " in again.progress.line()
    again.progress.stop()
    again.progress.status.close()


@pytest.mark.parametrize("verb", ["validate", "preview"])
def test_a_verb_that_takes_seconds_says_what_it_does(verb, capsys):
    assert main([verb, "quickstart", *(["--rehearse"] if verb == "preview" else [])]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("reading quickstart ...\n")
    assert "reading" not in said.out


def test_validate_says_what_was_checked_when_no_file_was_given(capsys):
    assert main(["validate"]) == 0
    assert "no file was given, so the ready-made quickstart was checked" in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["validate", "quickstart"]) == 0
    assert capsys.readouterr().out.startswith("quickstart: valid")


@pytest.mark.parametrize(
    ("seeds", "said"), [(1, "over 1 seed, 3 epochs on "), (2, "over 2 seeds, 3 epochs on ")]
)
def test_a_final_training_counts_its_seeds(make_config, seeds, said):
    quality = make_config().quality
    trained = [
        SimpleNamespace(seed=n, bytes=100, checkpoint="x", metrics={"test_accuracy": 0.9})
        for n in range(seeds)
    ]
    recipe = SimpleNamespace(
        quality=quality,
        kind=make_config().kind,
        expected={},
        tested_on="test",
        part_in_words="test",
        final=SimpleNamespace(keep="last"),
    )
    result = SimpleNamespace(seeds=trained, mean=0.9, spread=0.0, epochs=3, train_examples=9)
    told = result_text(recipe, result)
    assert said in " ".join(told.split())
    assert 'net = bf.load("x")' in told


def test_the_help_of_csv_says_that_rows_are_points():
    text = " ".join(build_parser().verb_parser("front").format_help().split())
    assert "all points with a complete trial as CSV, a row per point: means over its seeds" in text


def test_a_port_that_nobody_asked_for_may_be_the_next_free_one():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        usual = taken.getsockname()[1]
        args = build_parser().parse_args(["ui"])
        args.usual_port = usual
        assert port_of(args) != usual
        assert port_of(build_parser().parse_args(["ui", "--port", str(usual)])) == usual


def test_the_ui_says_that_mlflow_starts_before_it_waits_for_it(tiny, monkeypatch, capsys):
    def run_path(uri, folder):
        assert "starting MLflow ..." in capsys.readouterr().out
        raise UserError("seen")

    monkeypatch.setattr(server, "run_path", run_path)
    assert main(["ui", tiny[0].name]) == 2
    assert "seen" in capsys.readouterr().err
