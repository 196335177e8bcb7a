"""One parent run a search and one run a trial, although the server does what it is asked and the
answer is lost, or does it only after nobody waits any more."""

import http.client
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from mlflow import MlflowClient

from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.session.session import Session
from bitfront.search.tracking import tracker as tracking
from bitfront.search.tracking.mirror import Mirror
from bitfront.search.tracking.tracker import Tracker
from testbed.rig import free_port, listens, tracking_server, wait_for
from testbed.stores import copy_store

pytestmark = pytest.mark.slow

# Connecting, the parent, two trials with their curves, the front: 22 requests without a fault.
REQUESTS = 24


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a server. Of one of them the answer is lost: `lose` is its number. With
    `late` the server gets it only after so many others, when it has been asked for again."""

    daemon_threads = True

    def __init__(self, server: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.server = server
        self.turn = threading.Lock()
        self.reset()

    def reset(self, lose: int = -1, late: int = 0, only: str = "") -> None:
        self.lose, self.late, self.only = lose, late, only
        self.seen = 0
        self.held: list[tuple[int, tuple]] = []
        self.lost: str | None = None

    def passed_on(self, method, path, body, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.server, timeout=60)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        found = answer.status, answer.getheaders(), answer.read()
        connection.close()
        return found

    def answer(self, *request):
        """None: nothing comes back."""
        with self.turn:
            for due, held in [h for h in self.held if h[0] <= self.seen]:
                self.held.remove((due, held))
                self.passed_on(*held)
            lost = self.lost is None and self.only in request[1] and self.seen >= self.lose >= 0
            self.seen += 1
            if not lost:
                return self.passed_on(*request)
            self.lost = f"{request[0]} {request[1]}"
            if self.late:
                self.held.append((self.seen + self.late, request))
            else:
                self.passed_on(*request)
            return None

    def catch_up(self) -> None:
        """What is held is done now."""
        with self.turn:
            while self.held:
                self.passed_on(*self.held.pop()[1])


class Handler(BaseHTTPRequestHandler):
    def handle_one(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
        server: Any = self.server
        answer = server.answer(self.command, self.path, body, headers)
        self.close_connection = True
        if answer is None:
            return
        status, told, content = answer
        self.send_response(status)
        for name, value in told:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one

    def log_message(self, *args) -> None:
        pass


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    copy_store(None, folder / "server.db")
    with tracking_server(folder, port) as process:
        wait_for(lambda: listens(port), 200, "the MLflow server", process)
        server = Proxy(port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
        server.server_close()


@pytest.fixture
def quickly(monkeypatch):
    """Attempts follow one another at once."""
    for name in ("FLUSH_SECONDS", "LONGEST_BACKOFF", "RETRY_SECONDS"):
        monkeypatch.setattr(tracking, name, 0.01)


@contextmanager
def searched(make_space, proxy, folder):
    """A search of two trials, tracked behind the proxy from its beginning to its end."""
    uri = f"http://127.0.0.1:{proxy.server_address[1]}"
    config, space = make_space(f"tracking.uri={uri}", "search.trials=2", "tracking.patience=200")
    folder.path.mkdir(exist_ok=True)
    tracker = Tracker(config, folder.identity, folder.path.parent)
    session = Session(config, space, folder, tracker)
    tracker.start(session.ledger.entries.values())
    while (entry := session.ask()) is not None:
        rows = [{"epoch": e, "val_accuracy": 0.5 + e / 100, "val_loss": 0.5} for e in (1, 2, 3)]
        for row in rows:
            session.report(entry.id, row)
        session.finish(entry.id, {**rows[-1], "history": rows})
    yield tracker, session
    proxy.reset()


def runs_of(uri, identity):
    client = MlflowClient(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    return client.search_runs(experiments, f"tags.`bitfront.search_id` = '{identity}'")


def check(proxy, session, identity):
    uri = f"http://127.0.0.1:{proxy.server}"
    runs = runs_of(uri, identity)
    parents = [r for r in runs if r.data.tags["bitfront.kind"] == "search"]
    children = [r for r in runs if r.data.tags["bitfront.kind"] == "trial"]
    assert [r.info.status for r in parents] == ["FINISHED"], proxy.lost
    assert [r.info.status for r in children] == ["FINISHED"] * 2, proxy.lost
    assert {r.data.tags["bitfront.trial"] for r in children} == set(session.ledger.entries)
    parent = parents[0].info.run_id
    assert {r.data.tags["mlflow.parentRunId"] for r in children} == {parent}
    assert parents[0].data.params["dataset"] == "digits"


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("lose", range(REQUESTS))
def test_a_lost_answer_makes_no_run_twice(make_space, proxy, tmp_path, lose):
    folder = SearchFolder(tmp_path / "tiny")
    proxy.reset(lose=lose)
    with searched(make_space, proxy, folder) as (tracker, session):
        assert tracker.close("complete", {"note.txt": "hello"}, "summary") is None
        check(proxy, session, folder.identity)


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("late", [1, 4, 8])
@pytest.mark.parametrize("lose", [0, 7])
def test_a_run_that_is_made_late_does_not_stay(make_space, proxy, tmp_path, lose, late):
    """From the first request on, or from the seventh, the next run to be made is that of the
    parent, or of a trial: it is made when another one has taken its place."""
    folder = SearchFolder(tmp_path / "tiny")
    proxy.reset(lose=lose, late=late, only="/runs/create")
    with searched(make_space, proxy, folder) as (tracker, session):
        assert tracker.close("complete", {"note.txt": "hello"}, "summary") is None
        assert proxy.lost is not None
        proxy.catch_up()
    # At the latest the next turn at the search puts it right.
    Mirror(tracker.config, folder.identity, folder.path.parent, tracker.uri).finish(
        "complete", {}, "summary"
    )
    check(proxy, session, folder.identity)


@pytest.mark.usefixtures("quickly")
def test_parents_that_were_made_before_are_brought_down_to_one(make_space, proxy, tmp_path):
    """As version 0.1 left them."""
    folder = SearchFolder(tmp_path / "tiny")
    with searched(make_space, proxy, folder) as (tracker, session):
        assert tracker.close("complete", {}, "summary") is None
    client = MlflowClient(tracker.uri)
    (parent,) = [
        r for r in runs_of(tracker.uri, folder.identity) if r.data.tags["bitfront.kind"] == "search"
    ]
    spare = [client.create_run(parent.info.experiment_id, tags=parent.data.tags) for _ in "12"]
    with searched(make_space, proxy, folder) as (tracker, _):
        assert tracker.close("complete", {}, "summary") is None
    check(proxy, session, folder.identity)
    assert {client.get_run(r.info.run_id).info.status for r in spare} == {"KILLED"}
