"""What we start ends with us, however we end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bitfront.search import ports
from bitfront.search.cluster.guard import members
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ports import listens_in_session
from bitfront.search.tracking import server as ui
from bitfront.trainables.errors import UserError
from testbed import warm
from testbed.rig import free_port, listens, processes, wait_for

pytestmark = pytest.mark.slow

# A process that starts a leader of a session with a child in a group of its own, and stays.
OWNER = """
import subprocess, sys, time
from bitfront.search.cluster.guard import Guard

guard = Guard()
leader = subprocess.Popen(
    ["sh", "-c", "set -m; trap '' TERM; sleep 300 & sleep 300"], start_new_session=True
)
guard.watch(leader.pid)
print(leader.pid, flush=True)
if sys.argv[1] == "end":
    guard.end()
time.sleep(300)
"""


@pytest.mark.parametrize("how", ["end", "SIGKILL"])
def test_nothing_is_left_of_a_guarded_session(how):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, how], stdout=subprocess.PIPE, text=True
    ) as owner:
        leader = int(owner.stdout.readline())
        if how == "SIGKILL":
            wait_for(lambda: len(members(leader)) == 3, 60, "the session")
            owner.send_signal(signal.SIGKILL)
        wait_for(lambda: not living(leader), 60, "the end of the session")
        owner.kill()


def living(session):
    """Its processes that have not ended; their parent may not have asked for them yet."""
    found = []
    for pid in members(session):
        with contextlib.suppress(OSError):
            if "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
                found.append(pid)
    return found


def test_a_server_of_somebody_else_is_not_taken_for_ours():
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
        assert listens_in_session(os.getsid(0), port)
        with subprocess.Popen(["sleep", "300"], start_new_session=True) as other:
            assert listens_in_session(other.pid, port) is False
            other.kill()


# Answers every request, as MLflow does to /health, with a worker that keeps the port open.
SERVER = """
import http.server, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        pass

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
os.fork()
server.serve_forever()
"""


@pytest.fixture
def somebody():
    """A server of another home; its port."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], start_new_session=True)
    wait_for(lambda: listens(port), 60, "a server", process)
    yield port
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def searched(make_config, tmp_path):
    config = make_config()
    folder = SearchFolder(tmp_path / config.name)
    folder.path.mkdir()
    folder.config_file.write_text(config.dump())
    return folder


def serve(folder, port):
    return ui.serve(folder.path.parent, folder, "127.0.0.1", port, open_browser=False, say=print)


def test_the_address_of_another_server_is_not_shown_as_ours(searched, somebody, capsys):
    with pytest.raises(UserError, match="cannot listen on") as told:
        serve(searched, somebody)
    assert "--port " in told.value.hint
    assert listens(somebody)
    assert "http" not in capsys.readouterr().out


def test_a_port_that_is_taken_while_mlflow_starts_is_told_too(
    searched, somebody, monkeypatch, capsys
):
    """The other server answers while ours fails."""
    looks = []

    def check_free(host, port):
        looks.append(port)
        if len(looks) > 1:
            ports.check_free(host, port)

    monkeypatch.setattr(ui, "check_free", check_free)
    failing = "import sys, time; time.sleep(2); sys.exit('address already in use')"
    monkeypatch.setattr(ui, "_command", lambda host, port: [sys.executable, "-c", failing])
    with pytest.raises(UserError, match="cannot listen on"):
        serve(searched, somebody)
    assert listens(somebody)
    assert "http" not in capsys.readouterr().out


def test_files_of_the_current_folder_are_not_imported_by_mlflow(searched, tmp_path, monkeypatch):
    """MLflow serves with uvicorn, which imports from the folder it is started in."""
    for name in ("uvicorn", "probe"):
        (tmp_path / f"{name}.py").write_text(f"open('{name}-executed', 'w')\napp = None\n")
    words = [sys.executable, "-m", "uvicorn", "probe:app", "--port", "0"]
    monkeypatch.setattr(ui, "_command", lambda host, port: words)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="did not start"):
        serve(searched, free_port())
    assert list(tmp_path.glob("*-executed")) == []


# `bitfront ui` with a server that starts at once in place of MLflow.
PAGE = """
import sys
from bitfront.search.tracking import server as ui
from bitfront.cli import main

python, server = sys.argv[1:3]
ui._command = lambda host, port: [python, "-c", server, str(port)]
sys.exit(main(sys.argv[3:]))
"""


def in_background():
    """However the tests were started: in the background, or with nohup, which ignores SIGHUP."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_server_and_its_workers_end_with_ui_however_that_ends(number, searched, tmp_path):
    """Started as scripts start what runs in the background: SIGINT is ignored."""
    port = free_port()
    words = ["ui", "--port", str(port), "--home", str(tmp_path)]
    process = subprocess.Popen(
        [warm.python(), "-c", PAGE, sys.executable, SERVER, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BITFRONT_TEST": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        preexec_fn=in_background,
    )
    assert process.stdout.readline() == "starting MLflow ...\n"
    line = process.stdout.readline()
    assert line.startswith(f"MLflow: http://127.0.0.1:{port}/")
    assert process.stdout.readline() == "ctrl-C ends it\n"
    begun = time.monotonic()
    process.send_signal(number)
    assert process.wait(60) == (-9 if number == signal.SIGKILL else 0)
    wait_for(lambda: not listens(port), 60, "the end of the server")
    wait_for(lambda: not processes(f"BITFRONT_TEST={tmp_path}"), 60, "the end of all")
    assert time.monotonic() - begun < 60
    process.stdout.close()
