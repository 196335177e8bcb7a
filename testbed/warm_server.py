"""The process of testbed/warm.py that has imported everything, and forks. Every request names the
words of a Python, its folder, environment and standard files; the answer is a process id, and how
the process has ended. A request from another machine of testbed/rig is served on that machine."""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from testbed.warm_client import LENGTH, PASSED_ON, SERVICES, received

# A worker of Ray reads settings of its own when Ray is imported: it is forked without it.
IMPORTED = {
    "worker": (
        "sklearn.datasets",
        "torch._dynamo",
        "torchvision",
        "bitfront.trainables.training.loop",
    ),
    "command": (
        "alembic.command",
        "matplotlib.pyplot",
        "mlflow.store.tracking.sqlalchemy_store",
        "plotly.graph_objects",
        "ray.autoscaler._private.monitor",
        "ray.dashboard.agent",
        "ray.tune",
        "bitfront.cli",
        "bitfront.dashboards.search_files",
        "bitfront.search.cluster.tuner",
        "bitfront.search.recipes.final_training",
        "bitfront.search.tracking.mirror",
        "bitfront.verbs.launch",
    ),
}
COMMAND = "import sys; from bitfront.cli import main; sys.exit(main())"
ENVIRONMENTS = "environments"
NAMESPACES = ("net", "uts", "mnt", "pid")
KILLED_WITH_PARENT = 1  # PR_SET_PDEATHSIG
OWN_FOLDER = 0x200  # CLONE_FS


class Server:
    """A process with the imports of a kind: forks for every request, and tells the client of the
    end."""

    def __init__(self, folder: str, kind: str, before: dict[str, str]) -> None:
        """`before`: the environment without what the imports put there."""
        self.folder, self.before = folder, before
        self.processes = os.readlink("/proc/self/ns/pid")
        self.path = list(sys.path)
        self.children: dict[int, tuple[int, socket.socket]] = {}  # pidfd to process and client
        self.leaders: set[int] = set()  # those whose clients lead a group of processes
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(f"{folder}/{kind}")
        self.listening.listen(64)

    def serve(self) -> NoReturn:
        self.added = {k: v for k, v in os.environ.items() if self.before.get(k) != v}
        gc.collect()
        gc.freeze()  # else a collection in a forked process copies every page
        poll = select.poll()
        poll.register(self.listening, select.POLLIN)
        poll.register(0, select.POLLIN)
        while True:
            for number, _ in poll.poll():
                if number == 0:
                    self._leave()
                elif number == self.listening.fileno():
                    self._fork(poll)
                else:
                    self._look(number, poll)

    def _leave(self) -> NoReturn:
        for process, _ in self.children.values():
            self._kill(process)
        os._exit(0)

    def _kill(self, process: int) -> None:
        """End a process; where its client led a group, which was ended, also what it started."""
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
            if process in self.leaders:
                os.killpg(process, signal.SIGKILL)

    def _fork(self, poll: select.poll) -> None:
        client, _ = self.listening.accept()
        request, files = _request(client)
        _draw_ids()
        process = os.fork()
        if process == 0:
            self.listening.close()
            for pidfd, (_, other) in self.children.items():
                os.close(pidfd)
                other.close()
            _go_to(client)
            self._note_environment(request["env"])
            client.sendall(b"%d\n" % os.getpid())
            client.close()
            _end(self._run(request, files))
        for number in files:
            os.close(number)
        if request["leads"]:
            self.leaders.add(process)
        pidfd = os.pidfd_open(process)
        self.children[pidfd] = process, client
        poll.register(pidfd, select.POLLIN)
        poll.register(client, select.POLLIN)

    def _note_environment(self, env: dict[str, str]) -> None:
        """Write the environment of this process where testbed/rig looks for it: in /proc it is that
        of the process with the imports. On another machine it has another id there."""
        if os.readlink("/proc/self/ns/pid") != self.processes:
            return
        noted = "\0".join(f"{name}={value}" for name, value in env.items())
        Path(self.folder, ENVIRONMENTS, str(os.getpid())).write_text(noted)

    def _look(self, number: int, poll: select.poll) -> None:
        """A process has ended, or its client has: then the process is killed."""
        for pidfd, (process, client) in list(self.children.items()):
            if number == pidfd:
                status = os.waitpid(process, 0)[1]
                with suppress(OSError):
                    client.sendall(b"%d\n" % status)
                with suppress(KeyError):
                    poll.unregister(client)
                poll.unregister(pidfd)
                client.close()
                os.close(pidfd)
                del self.children[pidfd]
                self.leaders.discard(process)
                return
            if number == client.fileno():
                self._kill(process)
                poll.unregister(client)
                return

    def _run(self, request: dict[str, Any], files: list[int]) -> int:
        os.setsid()
        if request["terminal"]:  # the first one that the leader of a session opens is its own
            files = [os.open(request["terminal"], os.O_RDWR) for _ in range(3)]
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.umask(request["umask"])
        os.environ.clear()
        os.environ.update(request["env"] | self.added)
        _read_settings_of_ray()
        for name in PASSED_ON:  # not as they were where the tests were started, as by nohup
            sign = getattr(signal, name)
            usual = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
            signal.signal(sign, signal.SIG_IGN if sign in request["ignored"] else usual)
        signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
        sys.executable = request["python"] or f"{self.folder}/python"
        given = request["env"].get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:] = [*filter(None, given), *self.path[1:]]
        if request["words"][0].endswith(SERVICES[:2]):
            _have_parent(int(os.environ["RAY_RAYLET_PID"]))
        try:
            _execute(request["words"], self.folder)
        except SystemExit as end:
            return _code_of(end)
        except KeyboardInterrupt:
            traceback.print_exc()
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            traceback.print_exc()
            return 1
        return 0


def _go_to(client: socket.socket) -> None:
    """Go on in a child of this process on the machine of the client, where that is another one.
    This process then ends as the child does, and the child with it."""
    size = struct.calcsize("3i")
    peer = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
    places = [f"/proc/{peer}/ns/{name}" for name in NAMESPACES]
    here = [f"/proc/self/ns/{name}" for name in NAMESPACES]
    if list(map(os.readlink, places)) == list(map(os.readlink, here)):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # A library may have started a thread after the fork: the folder we are in is ours alone then,
    # without which no other disks can be gone to.
    libc.unshare(OWN_FOLDER)
    for opened in [os.open(place, os.O_RDONLY) for place in places]:
        if libc.setns(opened, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(opened)
    process = os.fork()
    if process == 0:
        libc.prctl(KILLED_WITH_PARENT, signal.SIGKILL)
        return
    client.close()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _read_settings_of_ray() -> None:
    """Ray reads them from the environment when it is imported; read them again."""
    if "ray" in sys.modules:
        importlib.import_module("ray._raylet").Config.initialize("")


def _draw_ids() -> None:
    """Move on in Ray's random ids, so that no two forked processes draw the same: nodes of one
    cluster would take one another for themselves."""
    if "ray" in sys.modules:
        for _ in range(1000):
            sys.modules["ray"].NodeID.from_random()


def _have_parent(raylet: int) -> None:
    """Let an agent of Ray, which ends without the raylet that is its parent, find it."""
    import psutil

    usual, agent = psutil.Process.parent, os.getpid()

    def parent(process: psutil.Process) -> psutil.Process | None:
        if process.pid != agent:  # a raylet that is its own parent has parents without end
            return usual(process)
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(raylet)
            return None if found.status() == psutil.STATUS_ZOMBIE else found
        return None

    psutil.Process.parent = parent


def _request(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a client wants, and its standard files."""
    files = array.array("i")
    size = array.array("i", [0, 0, 0])
    head, ancillary, *_ = client.recvmsg(LENGTH, socket.CMSG_LEN(len(size) * size.itemsize))
    for _, _, data in ancillary:
        files.frombytes(data)
    return json.loads(received(client, int(head))), list(files)


def _execute(words: list[str], folder: str) -> None:
    """Run what `python WORDS` would run, as the main module."""
    if words[0] == "bitfront":
        sys.argv = [f"{folder}/bitfront", *words[1:]]
        _as_main(compile(COMMAND, "<bitfront>", "exec"))
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        _as_main(compile(words[1], "<string>", "exec"))
    elif words[0] == "-m":
        sys.path.insert(0, os.getcwd())
        spec = importlib.util.find_spec(words[1])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{words[1]}.__main__")
        assert spec is not None, f"No module named {words[1]}"
        sys.argv = [str(spec.origin), *words[2:]]
        loader: Any = spec.loader
        _as_main(loader.get_code(spec.name), spec=spec, file=spec.origin)
    else:
        sys.argv = list(words)
        sys.path.insert(0, str(Path(words[0]).absolute().parent))
        source = Path(words[0]).read_bytes()
        _as_main(compile(source, words[0], "exec"), file=words[0])


def _as_main(code: CodeType, spec: Any = None, file: str | None = None) -> None:
    main = ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    if file is not None:
        main.__file__ = file
    if spec is not None:
        main.__spec__, main.__package__ = spec, spec.parent
    sys.modules["__main__"] = main
    exec(code, vars(main))


def _code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _end(code: int) -> NoReturn:
    """End a forked process as Python would, without freeing what was there before the fork: Triton
    would print that objects are left."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def _import_what_waits() -> None:
    """Import what libraries import when it is used first: modules of Ray's agents, classes of
    Plotly's figures, fonts of matplotlib."""
    dashboard = importlib.import_module("ray.dashboard.utils")
    dashboard.get_all_modules(dashboard.DashboardAgentModule)
    importlib.import_module("ray.dashboard.optional_deps")
    style = importlib.import_module("bitfront.dashboards.figures.style")
    figures = importlib.import_module("plotly.graph_objects")
    style.framed(figures.Figure(figures.Scatter(x=[0], y=[0])), "").to_json()
    with tempfile.TemporaryDirectory() as folder:
        style.saved(style.canvas()[0], Path(folder) / "figure.png")


def _copy_stores(folder: str) -> None:
    """Let commands copy an empty MLflow store, made once by a process of its own, as tests that run
    in theirs do: testbed/stores.py."""
    from mlflow import MlflowClient

    from bitfront.search.tracking import database, mirror

    file = Path(folder, "mlflow.db")
    process = os.fork()
    if process == 0:
        database.make_database(MlflowClient, file)
        os._exit(0)
    os.waitpid(process, 0)
    content = file.read_bytes()

    def copy(_client: Any, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    vars(mirror)["make_database"] = copy


def main(folder: str) -> NoReturn:
    """Serve both kinds, each by a process of its own."""
    before = dict(os.environ)
    Path(folder, ENVIRONMENTS).mkdir()
    for name in IMPORTED["worker"]:
        importlib.import_module(name)
    workers = Server(folder, "worker", before)
    if os.fork() == 0:
        os.dup2(2, 1)
        workers.serve()
    workers.listening.close()
    for name in IMPORTED["command"]:
        importlib.import_module(name)
    _import_what_waits()
    _copy_stores(folder)
    importlib.import_module("testbed.stores").read_scripts_once()
    commands = Server(folder, "command", before)
    print("warm", flush=True)
    commands.serve()


if __name__ == "__main__":
    main(sys.argv[1])
