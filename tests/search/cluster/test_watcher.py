"""What the driver says about lost nodes, of a Ray that is made up."""

import os
import shutil
from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

import pytest
import ray
from pyarrow.fs import LocalFileSystem
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError
from ray.train._internal.storage import _list_at_fs_path
from ray.tune.experiment import Trial

from bitfront.search.cluster import head, watcher
from bitfront.search.cluster.watcher import deaths_by_memory
from bitfront.search.session.progress import Silent


@pytest.fixture
def cluster(monkeypatch):
    """Four nodes, by id; a test kills some. The worker `w2` was on node `n2`."""
    nodes = [
        {"NodeID": f"n{i}", "Alive": True, "NodeManagerAddress": f"10.0.0.{i}", "DeathReason": 0}
        for i in range(4)
    ]
    monkeypatch.setattr("ray.nodes", lambda: [dict(node) for node in nodes])
    where = {"w2": {"Address": {"NodeID": "n2"}}}
    monkeypatch.setattr("ray._private.state.actors", lambda actor: where.get(actor, {}))
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    return nodes


def test_a_lost_node_is_a_line_with_what_becomes_of_its_trials(cluster):
    said = []
    nodes = watcher.Nodes(said.append)
    nodes.look(100.0)
    for _ in range(2):
        nodes.worker_died("w2")
    nodes.worker_died("unknown")
    cluster[2]["Alive"] = False
    nodes.look(106.0)
    assert said == [], "the others may be told of a moment later"
    nodes.look(106.5 + watcher.AFTER_SECONDS)
    assert said == ["node 10.0.0.2 was lost, 3 of 4 nodes left: 2 trials go on elsewhere"]
    cluster[3]["Alive"] = False
    nodes.look(130.0)
    nodes.look(140.0)
    assert said[1:] == ["node 10.0.0.3 was lost, 2 of 3 nodes left: no trial ran there"]


def test_a_turn_says_how_far_its_workers_are_until_one_reports(monkeypatch):
    """It has asked Ray for three workers; others' trials take all places at first."""
    states: list[str] = []
    waits: list[str | None] = ["waiting for a place"]
    here = SimpleNamespace(get_job_id=lambda: "01000000")
    monkeypatch.setattr("ray.get_runtime_context", lambda: here)
    monkeypatch.setattr(
        "ray._private.state.actors",
        lambda job_id: {number: {"State": state} for number, state in enumerate(states)},
    )
    monkeypatch.setattr(watcher, "waits_for_place", lambda session: waits[0])
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(watcher, "time", clock)
    noted: list[str | None] = []
    session = SimpleNamespace(
        waits=None,
        starting=None,
        folder=SimpleNamespace(note_wait=noted.append),
        progress=mock.Mock(spec=Silent),
    )
    watch = watcher.Watcher(SimpleNamespace(session=session), None)
    trial = SimpleNamespace(trial_id="t", temporary_state=SimpleNamespace(ray_actor=None))

    def said(seconds, *now):
        states[:] = now
        clock.monotonic = lambda: float(seconds)
        watch.on_step_end(1, [])
        return session.waits or session.starting

    assert said(1) == "waiting for a place"
    waits[0] = None
    assert said(6) == "workers start"
    three = "workers start, {} of 3 are ready (each imports torch first)"
    assert said(12, "DEAD", *["PENDING_CREATION"] * 3) == three.format(0)
    waits[0] = "waiting for a place"
    watch.on_trial_start(1, [], trial)
    assert said(24, "ALIVE", "ALIVE", "PENDING_CREATION") == three.format(2)
    assert said(30, *["ALIVE"] * 3) == "3 workers train their first epoch"
    watch.on_trial_result(1, [], trial, {})
    assert said(36) == "3 workers train their first epoch", "nobody looks any more"
    assert noted == ["waiting for a place", None], "status says it until a trial has a place"


def test_a_node_that_the_autoscaler_takes_away_is_not_lost(cluster):
    said = []
    nodes = watcher.Nodes(said.append)
    cluster[1] |= {"Alive": False, "DeathReason": 4}
    nodes.look(106.0)
    nodes.look(120.0)
    assert said == []


def test_a_worker_that_died_long_before_its_node_did_is_not_counted(cluster):
    said = []
    nodes = watcher.Nodes(said.append)
    nodes.worker_died("w2")
    cluster[2]["Alive"] = False
    later = 100.0 + 2 * watcher.BEFORE_SECONDS
    nodes.look(later)
    nodes.look(later + watcher.AFTER_SECONDS)
    assert said == ["node 10.0.0.2 was lost, 3 of 4 nodes left: no trial ran there"]


def test_rays_paragraph_about_a_dead_node_is_not_shown(monkeypatch):
    from ray._private import worker

    shown = []
    monkeypatch.setattr(worker, "print_to_stdstream", lambda data, _prefix: shown.append(data))
    head._hide_raylet_logs()
    for text in ("The node with node id: 75a has been marked dead", "something else"):
        worker.print_to_stdstream({"lines": [text]}, "")
    assert shown == [{"lines": ["something else"]}]


def test_a_driver_leaves_the_folder_of_its_job(tmp_path, monkeypatch):
    """A node that joins on the same disk unpacks it anew, and the one we are in is deleted."""
    job = tmp_path / "runtime_resources" / "working_dir_files" / "pkg"
    job.mkdir(parents=True)
    for place, ends in ((tmp_path, tmp_path), (job, tmp_path / "search")):
        (tmp_path / "search").mkdir(exist_ok=True)
        monkeypatch.chdir(place)
        head.leave_job_folder(tmp_path / "search")
        assert os.getcwd() == str(ends)


@pytest.mark.parametrize("leaves", [False, True])
def test_ray_finds_its_storage_though_the_folder_of_the_job_vanished(leaves, tmp_path, monkeypatch):
    """Where it does not, the end of a search whose node was replaced is Ray's traceback."""
    job, search = tmp_path / "runtime_resources" / "pkg", tmp_path / "search"
    for folder in (job, search / "ray"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(job)
    if leaves:
        head.leave_job_folder(search)
    shutil.rmtree(job)
    with nullcontext() if leaves else pytest.raises(FileNotFoundError):
        assert _list_at_fs_path(LocalFileSystem(), str(search)) == ["ray"]


@pytest.mark.parametrize("error", [OutOfMemoryError("low on memory"), NodeDiedError("gone")])
def test_a_worker_that_ray_ends_for_want_of_memory_does_not_end_the_search(error):
    """Ray Tune raises what it does not expect, through all of the search."""
    told = []
    actor = SimpleNamespace(actor_id=3, _on_error=lambda _actor, why: told.append(why))
    task = SimpleNamespace(_tracked_actor=actor, _on_error=lambda _actor, why: told.append(why))
    manager = SimpleNamespace(_failed_actor_ids=set(), _cleanup_actor=lambda **_which: None)
    with deaths_by_memory():
        # By name, as Ray calls it.
        RayActorManager._actor_task_failed(manager, tracked_actor_task=task, exception=error)
    assert [type(why) for why in told] == [RayActorError] * 2
    assert type(error).__name__ in str(told[0])
    assert str(error) in str(told[0])


@pytest.mark.parametrize("error", [OutOfMemoryError("low on memory"), NodeDiedError("gone")])
def test_nor_does_one_that_ray_ends_before_its_first_epoch(error, monkeypatch):
    """Tune asks such a worker for its place, and expects of the answer what it expects of it."""

    def get(_reference):
        raise error

    trial = object.__new__(Trial)
    trial._default_result_or_future = ray.ObjectRef.from_random()
    monkeypatch.setattr(ray, "get", get)
    with deaths_by_memory():
        assert trial._get_default_result_or_future() is None
    assert trial._default_result_or_future is None
