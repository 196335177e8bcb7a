"""A search with a Ray of its own that is struck as schedulers, shells and people strike: one search
of which every test continues what the one before has left."""

import os
import pty
import signal
import socket
import threading
import time

import pytest

from bitfront.search.cluster import head
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import read_entries
from testbed import warm
from testbed.rig import processes, wait_for

pytestmark = pytest.mark.slow

# Two trials at a time that take hours, far more than a test lets them, and nearly no CPU.
SEARCH = """\
name: struck
task:
  dataset: digits
  model: {name: mlp, depth: 3, width: 8}
  epochs: 20000
  subset: 400
  metrics: [pace.py:pace]
space: {method: [bnn], plan: {per: layer, levels: [F, B]}, optimizer.lr: {float: [0.001, 0.1]}}
search: {trials: 4, sampler: random}
resources: {cpus: 1, concurrent: 2}
tracking: {enabled: false}
"""
PACE = """\
import time


def pace(output, target):
    time.sleep(0.3)
    return 1.0
"""


class Struck:
    """The search, and the driver that works on it now."""

    def __init__(self, folder):
        self.folder, self.driver = folder, None
        self.search = SearchFolder(folder / "runs" / "struck")
        self.mark = f"BITFRONT_HOME={folder / 'runs'}"
        self.trials = set()
        (folder / "struck.yaml").write_text(SEARCH)
        (folder / "pace.py").write_text(PACE)

    def start(self, forks=True, **options):
        """A driver that has reported an epoch. Its workers are forked unless they have to end for
        themselves."""
        begun = time.time()
        env = {**os.environ, "BITFRONT_HOME": str(self.folder / "runs"), "RAY_ADDRESS": ""}
        words = "run", "struck.yaml"
        self.driver = process = warm.start(words, self.folder, env, forks=forks, **options)

        def reported():
            assert process.poll() is None, self.said()
            saved = self.search.path.glob("trials/*/state.pt")
            return any(file.stat().st_mtime > begun for file in saved)

        wait_for(reported, 240, "an epoch")
        return process

    def said(self):
        return self.driver.log.read_text()

    def processes(self, name=""):
        """The driver and those of Ray."""
        return [pid for pid, title in processes(self.mark).items() if name in title]

    def check(self):
        """Nothing runs any more, nothing failed, and the trials are those of the turns before."""
        wait_for(lambda: not self.processes(), 60, "the end of Ray")
        assert not self.search.running
        entries = read_entries(self.search.ledger_url, "struck")
        assert {entry.state for entry in entries} == {"running"}
        ids = {entry.id for entry in entries}
        assert self.trials <= ids
        assert len(ids) <= 2
        self.trials = ids


@pytest.fixture(scope="module")
def struck(tmp_path_factory):
    folder = tmp_path_factory.mktemp("struck")
    struck = Struck(folder)
    yield struck
    for pid in struck.processes():  # of a test that failed
        os.kill(pid, signal.SIGKILL)


def interrupt(struck, process):
    """A terminal's ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


def run_out(struck, process):
    """As `timeout` ends what takes too long: the process first, then its group."""
    os.kill(process.pid, signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)


def stop_service(struck, process):
    """As systemd and SLURM end a service or job: all processes there are, Ray's too."""
    for pid in struck.processes():
        os.kill(pid, signal.SIGTERM)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("strike", [interrupt, run_out, stop_service])
def test_a_signal_to_more_than_the_driver_ends_it_as_ctrl_c_does(struck, strike):
    """Also where ctrl-C was ignored when it was started, as in the background of a script."""
    process = struck.start(ignored=(signal.SIGINT,))
    strike(struck, process)
    code = process.wait(200)
    said = struck.said()
    assert code == 130, said
    assert "Interrupted: running trials keep their last checkpoint." in said
    assert "Front of struck:" in said
    assert "bitfront resume struck" in said
    assert "Traceback" not in said
    assert "GCS" not in said
    struck.check()


@pytest.mark.timeout(600)
def test_a_terminal_that_closes_ends_a_search_as_ctrl_c_does(struck):
    ours, theirs = pty.openpty()
    process = struck.start(terminal=os.ttyname(theirs))
    os.close(theirs)
    os.close(ours)
    assert process.wait(200) == 130
    struck.check()


@pytest.mark.timeout(600)
def test_nothing_of_ray_outlives_a_driver_that_is_killed(struck):
    process = struck.start(forks=False)
    assert struck.processes("raylet")
    process.kill()
    process.wait()
    struck.check()


@pytest.mark.timeout(600)
def test_the_end_of_rays_head_is_told_in_our_words_with_the_way_to_go_on(struck):
    process = struck.start()
    (gcs,) = struck.processes("gcs_server")
    os.kill(gcs, signal.SIGKILL)
    code = process.wait(200)
    said = struck.said()
    assert code == 1, said
    told = [line for line in said.splitlines() if line.startswith("error:")]
    assert told == [
        "error: Ray's head process ended (gcs_server: SIGKILL): nothing is lost, "
        "continue with: bitfront resume struck"
    ]
    assert "Front of struck:" in said
    assert "Traceback" not in said
    assert "Failed to connect to GCS" not in said  # Ray's own words, a minute later
    struck.check()


def test_a_head_that_was_joined_may_come_back():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        look = head._reaching(address, None, patience=3600)
        assert look() is None
    for _ in range(2 * head.REFUSALS):
        assert look() is None


def test_a_head_that_was_joined_and_stays_away_is_lost():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        look = head._reaching(address, None, patience=0)
        assert look() is None
    answers = [look() for _ in range(head.REFUSALS)]
    assert answers == [None] * (head.REFUSALS - 1) + [f"nothing listens at 127.0.0.1:{address[1]}"]


def test_a_node_that_was_joined_and_stops_is_lost_at_once():
    with socket.create_server(("127.0.0.1", 0)) as there:
        with socket.create_server(("127.0.0.1", 0)) as node:
            look = head._reaching(there.getsockname(), node.getsockname(), patience=3600)
            assert look() is None
        answers = [look() for _ in range(head.REFUSALS)]
    assert answers[-1] == "this node's raylet is gone"


def test_a_driver_that_waits_for_a_lost_ray_is_ended_from_another_thread(monkeypatch):
    """Ray's C++ does not hear of signals."""
    codes = []
    monkeypatch.setattr(head, "SIGNAL_SECONDS", 0)
    monkeypatch.setattr(head, "REACTION_SECONDS", 0)
    monkeypatch.setattr(head, "break_off", lambda error: True)
    monkeypatch.setattr(head, "_exit", codes.append)
    with head.concluding(lambda: 7):
        head._watch(lambda: "gone", 0, threading.Event())
    assert codes == [7]
    assert "(gone)" in str(head.lost())
    monkeypatch.setattr(head._head, "lost", None)
