"""Starting a Ray of our own and leaving it again."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import ray

from bitfront.search.cluster import connection, head
from bitfront.trainables.errors import UserError

pytestmark = pytest.mark.slow

# Another thread collects references to objects of Ray's all the time.
COLLECTING = """
import os, threading
import ray
from bitfront.search.cluster import connection, head

class Holder:
    def __init__(self):
        self.cycle, self.reference = self, ray.put(0)

def collect():
    while holders:
        holders.pop()
        for bait in [[] for _ in range(2000)]:
            bait.append(bait)

connection.connect(None)
print(*(os.path.basename(process.args[0]) for process in head._head.processes))
print(ray._private.worker._global_node.get_session_dir_path())
holders = [Holder() for _ in range(4000)]
threading.Thread(target=collect, daemon=True).start()
connection.leave()
print("left")
"""


@pytest.fixture
def ray_folder():
    """Short: the paths of Ray's sockets have at most 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_leaving_ray_ends_no_process_and_leaves_no_folder(ray_folder):
    """Ray's C++ aborts when it is asked for something while it goes."""
    other = ray_folder / "ray" / "session_2020-01-01_00-00-00_000000_1"
    other.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", COLLECTING],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "RAY_TMPDIR": str(ray_folder)},
    )
    assert done.returncode == 0, done.stderr
    started, session, last = done.stdout.splitlines()
    assert started == "gcs_server raylet", "all that a search on one machine needs"
    assert last == "left"
    assert Path(session).parent == other.parent
    assert list(other.parent.glob("session_*")) == [other]


def test_only_the_session_of_this_process_is_deleted(tmp_path, monkeypatch):
    mine, other = (tmp_path / f"session_2026-01-01_{pid}" for pid in (os.getpid(), 1))
    for folder in (mine, other):
        (folder / "logs").mkdir(parents=True)
    (tmp_path / "session_latest").symlink_to(other)
    (tmp_path / "prom.json").symlink_to(mine / "prom.json")
    for folder in (other, tmp_path):
        head.remember_session(folder)
        head.end()
        assert folder.is_dir()
    head.remember_session(mine)
    monkeypatch.setattr(head._head, "lost", head.HeadLostError("raylet: SIGKILL"))
    head.end()
    assert mine.is_dir(), "its logs may say why Ray was lost"
    monkeypatch.setattr(head._head, "lost", None)
    head.remember_session(mine)
    head.end()
    assert sorted(p.name for p in tmp_path.iterdir()) == [other.name, "session_latest"]


def test_a_ray_that_does_not_start_in_time_is_one_line(monkeypatch):
    def init(**options):
        raise Exception("The current node timed out during startup. This could happen because ...")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UserError) as error:
        connection.connect(None)
    assert "Ray did not start on this machine: The current node timed out" in error.value.message
    assert "\n" not in error.value.message
    assert "too busy" in error.value.hint
    assert head._head.guard is None


@pytest.mark.parametrize(
    ("report", "grows", "coming"),
    [
        ({"active_nodes": {"head": 1}}, True, None),
        ({"active_nodes": {"node_4f": 1}}, False, None),
        ({"active_nodes": {"local.cluster.node": 3}, "pending_nodes": []}, False, 0),
        ({"active_nodes": {"local.cluster.node": 2}, "pending_nodes": [["10.0.0.3"]]}, True, 1),
        ({"active_nodes": {"local.cluster.node": 1}, "pending_launches": {"x": 2}}, True, 2),
    ],
)
def test_machines_of_ones_own_are_all_that_there_will_be(report, grows, coming, monkeypatch):
    """A trial that fits on none of them is refused, and waits only while some are set up. A cloud's
    nodes may come; a cluster that nobody launches has a node type for every node."""
    status = json.dumps({"autoscaler_report": report})
    monkeypatch.setattr("ray.experimental.internal_kv._internal_kv_get", lambda key: status)
    assert connection._autoscales() == (grows, coming)
