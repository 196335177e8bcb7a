"""MLflow shows each trial once, whatever happened in between; the ledger is the truth."""

import json
import os
import subprocess
import sys
import time

import pytest
from mlflow import MlflowClient

from bitfront.dashboards.search_files import PICTURES
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.session.session import Session
from bitfront.search.tracking.database import make_database
from bitfront.search.tracking.extra_runs import log_extras
from bitfront.search.tracking.extras import Extra
from bitfront.search.tracking.mirror import Mirror
from bitfront.search.tracking.runs import flat_params, run_name
from bitfront.search.tracking.store import tracking_uri
from bitfront.search.tracking.tracker import Tracker
from testbed.stores import copy_store

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    return folder


def begin(make_space, folder, *assignments, thread=True):
    """A search and its tracker. Without the thread, only what the test flushes reaches MLflow:
    the way to stop at a known moment, since a thread cannot be killed."""
    config, space = make_space(*assignments)
    tracker = Tracker(config, folder.identity, folder.path.parent, PICTURES)
    session = Session(config, space, folder, tracker)
    if thread:
        tracker.start(session.ledger.entries.values())
    return session, tracker


def rows(epochs, first=1):
    return [
        {"epoch": e, "train_loss": 1 / e, "val_accuracy": 0.5 + e / 100, "val_loss": 0.5}
        for e in range(first, epochs + 1)
    ]


def train(session, entry, epochs=3, first=1):
    for row in rows(epochs, first):
        session.report(entry.id, row)
    session.finish(entry.id, {**rows(epochs)[-1], "history": rows(epochs)})


def runs_of(tracker, kind="trial"):
    client = MlflowClient(tracker.uri)
    query = f"tags.`bitfront.kind` = '{kind}'"
    return client, client.search_runs([tracker.mirror.experiment_id], query, max_results=1000)


def test_a_search_is_a_parent_run_with_a_child_run_a_trial(make_space, folder):
    session, tracker = begin(make_space, folder)
    for _ in range(6):
        train(session, session.ask())
    assert tracker.close("complete", {"note.txt": "hello"}, "summary") is None
    client, children = runs_of(tracker)
    _, (parent,) = runs_of(tracker, "search")
    assert len(children) == 6
    assert {c.data.tags["mlflow.parentRunId"] for c in children} == {parent.info.run_id}
    assert {c.info.status for c in children} == {"FINISHED"}
    assert parent.info.status == "FINISHED"
    assert {a.path for a in client.list_artifacts(parent.info.run_id)} == {
        "note.txt",
        "search.yaml",
    }
    child = children[0]
    entry = session.ledger.entries[child.data.tags["bitfront.trial"]]
    assert child.data.params["plan"] == entry.spec.plan
    assert child.data.metrics["flops_pct"] == pytest.approx(entry.costs["flops_pct"])
    assert child.info.run_name == run_name(entry, session.config.quality)
    assert child.info.run_name.endswith(f" 53.0 (seed {entry.spec.seed})"), "not a mean over seeds"
    curve = client.get_metric_history(child.info.run_id, "val_accuracy")
    assert [(m.step, m.value) for m in curve] == [(1, 0.51), (2, 0.52), (3, 0.53)]
    steps = client.get_metric_history(parent.info.run_id, "hypervolume_share")
    assert sorted(m.step for m in steps) == [1, 2, 3, 4, 5, 6]


def test_a_paused_trial_is_scheduled_until_it_is_taken_up(make_space, folder):
    session, tracker = begin(make_space, folder, thread=False)
    entry = session.ask()
    session.ledger.pause(entry.id, 0.3, rows(1), 7)
    seen = []
    for change in (lambda: None, lambda: session.ledger.take_up(entry.id)):
        change()
        tracker.trial(entry)
        tracker._flush()
        _, (child,) = runs_of(tracker)
        seen.append((child.info.status, child.data.tags["state"]))
    assert seen == [("SCHEDULED", "paused"), ("RUNNING", "running")]


def test_a_run_is_named_by_the_metric_that_the_search_optimizes(make_space, folder):
    session, tracker = begin(make_space, folder, "objectives={val_loss: min, flops: min}")
    train(session, session.ask())
    assert tracker.close("complete", {}, "") is None
    _, (child,) = runs_of(tracker)
    assert child.info.run_name.endswith(" 0.5 (seed 0)"), "the loss, not the accuracy"


def test_a_picture_of_the_predictions_is_in_the_run_of_its_trial(make_space, folder):
    session, tracker = begin(make_space, folder)
    picture = {
        "axes": [[0.0, 1.0]],
        "mode": [0.1, 0.2],
        "mean": [0.1, 0.3],
        "spread": [0.0, 0.1],
        "points": {"x": [[0.5]], "y": [0.2]},
        "classes": 1,
    }
    entry = session.ask()
    last = rows(1)[-1] | {"val_accuracy_mean": 0.6, "val_accuracy_task2": 0.7}
    session.report(entry.id, last)
    session.finish(
        entry.id, {**last, "history": [last], "picture": json.dumps({"predictions": picture})}
    )
    assert tracker.close("complete", {}, "summary") is None
    client, (child,) = runs_of(tracker)
    assert [a.path for a in client.list_artifacts(child.info.run_id)] == ["predictions.png"]
    assert child.data.metrics["val_accuracy_mean"] == 0.6
    assert child.data.metrics["val_accuracy_task2"] == 0.7


def test_the_front_is_tagged_and_only_the_front(make_space, folder):
    session, tracker = begin(make_space, folder)
    for i in range(6):
        entry = session.ask()
        accuracy = 0.9 if i == 3 else 0.2 + i / 100
        session.finish(entry.id, {"epoch": 1, "val_accuracy": accuracy, "val_loss": 1.0})
    assert tracker.close("complete", {}, "") is None
    _, children = runs_of(tracker)
    tagged = {c.data.tags["bitfront.trial"] for c in children if c.data.tags["pareto"] == "true"}
    assert tagged == set(session.front.keys)
    assert 0 < len(tagged) < 6


def test_a_failed_trial_carries_its_reason(make_space, folder):
    session, tracker = begin(make_space, folder)
    entry = session.ask()
    session.finish(entry.id, {"failure": "nan", "message": "the loss is not finite"})
    assert tracker.close("complete", {}, "") is None
    _, (child,) = runs_of(tracker)
    assert child.info.status == "FAILED"
    assert child.data.tags["failure"] == "nan"


def test_after_a_crash_each_trial_is_shown_once_and_none_is_left_running(make_space, folder):
    session, tracker = begin(make_space, folder, thread=False)
    train(session, session.ask())
    interrupted = session.ask()
    for row in rows(2):
        session.report(interrupted.id, row)
    tracker._flush()  # all that was sent when the driver was killed
    told_but_not_sent = session.ask()
    session.ledger.tell(told_but_not_sent.id, "complete", rows(3)[-1], rows(3))

    session, tracker = begin(make_space, folder)
    continued = session.ask()
    assert continued.id == interrupted.id
    train(session, continued, first=3)
    assert tracker.close("complete", {}, "") is None
    client, children = runs_of(tracker)
    assert sorted(c.data.tags["bitfront.trial"] for c in children) == sorted(session.ledger.entries)
    assert {c.info.status for c in children} == {"FINISHED"}
    for child in children:
        curve = client.get_metric_history(child.info.run_id, "val_accuracy")
        assert [m.step for m in curve] == [1, 2, 3]
    assert len(runs_of(tracker, "search")[1]) == 1


def test_a_server_that_is_away_neither_stops_the_search_nor_loses_a_run(
    make_space, folder, monkeypatch
):
    away = "http://127.0.0.1:9"
    session, tracker = begin(make_space, folder, f"tracking.uri={away}")
    for _ in range(3):
        train(session, session.ask())
    with monkeypatch.context() as patch:
        patch.setattr("bitfront.search.tracking.tracker.CLOSE_SECONDS", 1)
        assert tracker.close("interrupted", {}, "")
    session, tracker = begin(make_space, folder)  # it is back, at the default address
    assert tracker.close("complete", {}, "") is None
    _, children = runs_of(tracker)
    assert len(children) == 3
    assert {c.info.status for c in children} == {"FINISHED"}


def away_for(monkeypatch, tries):
    """The tracking server takes nothing so many times; returns the attempts left."""
    left, usual = [tries], Tracker._connect

    def connect(self):
        if left[0]:
            left[0] -= 1
            raise ConnectionError("nobody there")
        self.uri = f"sqlite:///{self.home / 'mlflow.db'}"
        usual(self)

    monkeypatch.setattr(Tracker, "_connect", connect)
    return left


def test_a_finished_search_waits_for_a_server_that_is_away_a_while(make_space, folder, monkeypatch):
    monkeypatch.setattr("bitfront.search.tracking.tracker.CLOSE_SECONDS", 0.8)
    monkeypatch.setattr("bitfront.search.tracking.tracker.RETRY_SECONDS", 0.3)
    left = away_for(monkeypatch, 5)
    session, tracker = begin(make_space, folder, "tracking.uri=http://127.0.0.1:9")
    train(session, session.ask())
    told = []
    assert tracker.close("complete", {}, "", told.append) is None
    assert left == [0]
    assert told == [90.0]  # once
    _, children = runs_of(tracker)
    assert [c.info.status for c in children] == ["FINISHED"]


def test_a_server_that_stays_away_is_not_waited_for_longer_than_was_asked(
    make_space, folder, monkeypatch
):
    monkeypatch.setattr("bitfront.search.tracking.tracker.RETRY_SECONDS", 0.2)
    away_for(monkeypatch, 1000)
    options = ("tracking.uri=http://127.0.0.1:9", "tracking.patience=1")
    session, tracker = begin(make_space, folder, *options)
    train(session, session.ask())
    began = time.monotonic()
    assert "nobody there" in tracker.close("complete", {}, "")
    assert time.monotonic() - began < 60  # the default is to wait for 90


def test_a_server_that_goes_when_only_the_end_is_left_is_tried_again(
    make_space, folder, monkeypatch
):
    monkeypatch.setattr("bitfront.search.tracking.tracker.RETRY_SECONDS", 0.1)
    session, tracker = begin(make_space, folder)
    train(session, session.ask())
    usual, failures = Mirror.finish, [ConnectionError("reset")]

    def finish(self, *told):
        if failures:
            raise failures.pop()
        usual(self, *told)

    monkeypatch.setattr(Mirror, "finish", finish)
    assert tracker.close("complete", {}, "") is None
    _, (parent,) = runs_of(tracker, "search")
    assert parent.info.status == "FINISHED"


def test_a_run_that_mlflow_refuses_does_not_hold_up_the_others(make_space, folder, monkeypatch):
    session, tracker = begin(make_space, folder)
    bad = session.ask()
    original = Mirror.deliver

    def refuse(self, entry, *more):
        if entry.id == bad.id:
            raise ValueError("refused")
        original(self, entry, *more)

    monkeypatch.setattr(Mirror, "deliver", refuse)
    train(session, bad)
    train(session, session.ask())
    deadline = time.monotonic() + 200
    while tracker.behind > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    monkeypatch.setattr("bitfront.search.tracking.tracker.CLOSE_SECONDS", 1)
    assert "refused" in tracker.close("complete", {}, "")
    _, children = runs_of(tracker)
    assert len(children) == 1


def test_every_parameter_name_is_one_mlflow_takes(make_space, folder):
    import re

    session, _ = begin(make_space, folder, "space.method=bnn++")
    entries = [session.ask() for _ in range(6)]
    names = {name for entry in entries for name in flat_params(entry)}
    assert any("mu_end" in name for name in names)
    assert all(re.fullmatch(r"[\w\-. :/]+", name) for name in names)
    assert len(names) < 100


def test_the_address_comes_from_the_yaml_then_the_environment_then_a_file(
    make_config, tmp_path, monkeypatch
):
    assert tracking_uri(make_config(), tmp_path) == f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking")
    assert tracking_uri(make_config(), tmp_path) == "http://tracking"
    assert tracking_uri(make_config("tracking.uri=http://mine"), tmp_path) == "http://mine"


def test_trials_can_start_from_a_file_of_an_mlflow_run(make_space, tmp_path):
    import torch

    from bitfront.search.session.preparation import fetched
    from bitfront.trainables.errors import UserError
    from bitfront.trainables.models import build_model

    home = tmp_path / "home"
    copy_store(None, home / "mlflow.db")
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiment = client.create_experiment("weights", str(tmp_path / "artifacts"))
    run = client.create_run(experiment).info.run_id
    file = tmp_path / "model.pt"
    torch.save(build_model("mlp", {"depth": 5, "width": 16}, (1, 8, 8), 10).state_dict(), file)
    client.log_artifact(run, str(file))
    config, space = make_space(f"task.pretrain=runs:/{run}/model.pt")
    assert config.task.pretrain.sha256 is None
    here = fetched(config, space, home)[0].task.pretrain
    assert here.checkpoint.startswith(str(home / "pretrained"))
    assert here.sha256 == fetched(config, space, home)[0].task.pretrain.sha256
    config, space = make_space(f"task.pretrain=runs:/{run}/other.pt")
    with pytest.raises(
        UserError, match=r"runs:/.*/other\.pt: MLflow at sqlite:.* does not have it"
    ):
        fetched(config, space, home)


def test_a_run_whose_answer_was_lost_is_not_made_twice(make_space, folder):
    session, tracker = begin(make_space, folder, thread=False)
    entry = session.ask()
    tracker._connect()
    create = tracker.mirror.client.create_run

    def lose_the_answer(*args, **kwargs):
        create(*args, **kwargs)
        raise ConnectionError("the server went away")

    tracker.mirror.client.create_run = lose_the_answer
    tracker.start(session.ledger.entries.values())
    train(session, entry)
    assert tracker.close("complete", {}, "") is None
    _, children = runs_of(tracker)
    assert [c.info.status for c in children] == ["FINISHED"]


def test_a_run_that_is_there_twice_is_shown_once(make_space, folder):
    session, tracker = begin(make_space, folder)
    train(session, session.ask())
    assert tracker.close("complete", {}, "") is None
    client, (child,) = runs_of(tracker)
    client.create_run(child.info.experiment_id, tags=child.data.tags)
    session, tracker = begin(make_space, folder)
    assert tracker.close("complete", {}, "") is None
    _, (left,) = runs_of(tracker)
    assert left.info.run_id == child.info.run_id


def test_what_mlflow_does_not_have_yet_is_counted(make_space, folder):
    session, tracker = begin(make_space, folder, thread=False)
    assert tracker.behind == 0
    train(session, session.ask())
    session.ask()  # still running: there is nothing of it to deliver
    assert tracker.behind == 1
    tracker._flush()
    assert tracker.behind == 0


def test_a_disk_that_was_full_when_the_store_was_made_spoils_nothing(
    make_space, folder, monkeypatch
):
    """What was made of the tables is left behind, and the next attempt begins anew."""
    import sqlite3

    monkeypatch.setattr("bitfront.search.tracking.mirror.make_database", make_database)
    session, tracker = begin(make_space, folder, thread=False)
    train(session, session.ask())
    usual, made = MlflowClient.search_experiments, []

    def full(self, *args, **kwargs):
        file = self.tracking_uri.removeprefix("sqlite:///")
        if not made and file.endswith(".part"):
            made.append(file)
            with sqlite3.connect(file) as database:
                database.execute("DROP TABLE experiments")
            raise OSError("no space left on device")
        return usual(self, *args, **kwargs)

    monkeypatch.setattr(MlflowClient, "search_experiments", full)
    with pytest.raises(OSError, match="no space"):
        tracker._flush()
    assert made
    assert list(folder.path.parent.glob("*.part*")) == []
    tracker._flush()
    assert tracker.behind == 0


def test_epochs_that_a_killed_driver_did_not_deliver_reach_mlflow(make_space, folder):
    """Epoch 1 was told, epoch 2 was on its way; another driver takes the trial up at epoch 3."""
    session, tracker = begin(make_space, folder, "task.epochs=4", thread=False)
    entry = session.ask()
    session.report(entry.id, rows(1)[0])
    tracker._flush()
    session.report(entry.id, rows(2)[1])
    again, tracker = begin(make_space, folder, "task.epochs=4", thread=False)
    assert again.ask().id == entry.id
    again.report(entry.id, {**rows(3)[-1], "history": rows(3)})
    tracker._flush()
    again.report(entry.id, {**rows(4)[-1], "history": rows(4)})
    again.finish(entry.id, {**rows(4)[-1], "history": rows(4)})
    tracker._flush()
    client, (run,) = runs_of(tracker)
    told = client.get_metric_history(run.info.run_id, "val_accuracy")
    assert [m.step for m in told] == [1, 2, 3, 4]


def test_what_was_cut_off_is_made_again_and_nothing_is_left_running(make_space, folder):
    _, tracker = begin(make_space, folder, thread=False)
    tracker._flush()
    client = tracker.mirror.client
    ids = (tracker.mirror.experiment_id, tracker.mirror.parent_id, folder.identity)
    extra = Extra("key", "final", "final of t", metrics={"loss": 0.5})
    tags = {"bitfront.extra": "key", "bitfront.kind": "final", "bitfront.search_id": ids[2]}
    client.create_run(ids[0], tags=tags)  # and its maker was killed
    log_extras(client, *ids, [extra])
    log_extras(client, *ids, [extra])
    _, (made,) = runs_of(tracker, "final")
    assert made.info.status == "FINISHED"
    assert made.data.metrics == {"loss": 0.5}


def test_a_parent_whose_maker_was_killed_is_described_by_the_next(make_space, folder, monkeypatch):
    _, tracker = begin(make_space, folder, thread=False)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tracker._flush()
    _, tracker = begin(make_space, folder, thread=False)
    tracker._flush()
    client, (parent,) = runs_of(tracker, "search")
    assert parent.data.params["dataset"] == "digits"
    assert "search.yaml" in {a.path for a in client.list_artifacts(parent.info.run_id)}


def test_pretraining_that_version_0_1_called_a_stage_is_not_written_again(make_space, folder):
    _, tracker = begin(make_space, folder, thread=False)
    tracker._flush()
    client = tracker.mirror.client
    ids = (tracker.mirror.experiment_id, tracker.mirror.parent_id, folder.identity)
    tags = {"bitfront.extra": "key", "bitfront.kind": "stage", "bitfront.search_id": ids[2]}
    client.set_terminated(client.create_run(ids[0], tags=tags).info.run_id)
    log_extras(client, *ids, [Extra("key", "pretraining", "a"), Extra("new", "pretraining", "b")])
    _, runs = runs_of(tracker, "pretraining")
    assert [run.info.run_name for run in runs] == ["b"]


def test_a_store_that_is_not_finished_goes_with_the_process_that_makes_it(tmp_path):
    """The thread of a search that is refused, or ends early, is in the middle of it."""
    forgotten, recent = tmp_path / "mlflow.db.0.part", tmp_path / "mlflow.db.1.part"
    for part in (forgotten, recent):
        part.write_text("of a killed process")
    os.utime(forgotten, (0, 0))
    code = f"""
import threading, time
from pathlib import Path
from bitfront.search.tracking.database import make_database

made = threading.Event()

class Slow:
    def __init__(self, uri):
        Path(uri.removeprefix("sqlite:///")).write_text("half")
    def search_experiments(self, max_results):
        made.set()
        time.sleep(60)

path = Path({str(tmp_path / "mlflow.db")!r})
threading.Thread(target=make_database, args=(Slow, path), daemon=True).start()
assert made.wait(30)
assert len(list(path.parent.glob("mlflow.db.*.part"))) == 2
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert list(tmp_path.iterdir()) == [recent]
