"""Real processes for tests and benchmarks of faults: Ray nodes, an MLflow server, a database, and a
user's bitfront commands. All of them listen on loopback, are started in a session of their own and
are ended by process id."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bitfront.search.ledger.states import TrialState
from testbed.faulty import FOLDER, HOOK

ROOT = Path(__file__).parent.parent
BITFRONT = [sys.executable, "-m", "bitfront.cli"]
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def wait_for(condition: Callable[[], Any], seconds: float, what: str, process: Any = None) -> None:
    """Wait until the condition holds; an AssertionError after `seconds`, or when `process` fails.
    The message contains the output of `process`, which is aborted."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        if process is not None and process.poll() not in (None, 0):
            break
        time.sleep(0.2)
    said = ""
    if process is not None:
        process.send_signal(signal.SIGABRT)
        said = process.communicate(timeout=20)[0]
    raise AssertionError(f"waited up to {seconds} s for {what}\n{said}")


def end(process: subprocess.Popen[Any], sign: int = signal.SIGKILL) -> None:
    """End a process and the processes of its session."""
    if process.poll() is None:
        os.killpg(process.pid, sign)
    process.wait(30)


def processes(token: str) -> dict[int, str]:
    """The titles of the running processes whose environment contains `token`, by process id."""
    found = {}
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() not in (proc / "environ").read_bytes():
                continue
            title = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if title:
            found[int(proc.name)] = title
    return found


class CannotStrikeError(Exception):
    """A fault cannot be produced on this machine. Any other error of a search under faults is a
    defect of bitfront."""


class Cluster:
    """A Ray cluster whose nodes are processes on this machine: a head, and nodes that are started
    and killed."""

    def __init__(
        self,
        folder: Path,
        head_cpus: int = 2,
        settings: dict[str, str] | None = None,
        inside: Callable[[int], list[str]] = lambda node: [],
        host: Callable[[int], str] = lambda node: "127.0.0.1",
    ) -> None:
        """`inside` is the command that puts a node into a network of its own, `host` its address
        there."""
        self.folder = folder
        self.token = secrets.token_hex(32)
        self.head_cpus = head_cpus
        self.settings = settings or {}
        self.inside, self.host = inside, host
        self.port = free_port()
        self.nodes: dict[int, subprocess.Popen[Any]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        # For Ray's logs and sockets, whose paths must be short; `stop` deletes it.
        self.temporary = Path(tempfile.mkdtemp(prefix="ray"))

    @property
    def address(self) -> str:
        return f"{self.host(0)}:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of the nodes and of the users, with the token of this cluster."""
        return {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_ADDRESS": "",
            "OMP_NUM_THREADS": "1",
            "RAY_raylet_start_wait_time_s": "120",  # on a busy machine
            "PYTHONPATH": str(ROOT),
            FOLDER: str(self.folder),
            **self.settings,
        }

    def start_head(self) -> None:
        command = ["--head", f"--port={self.port}", f"--num-cpus={self.head_cpus}"]
        command += [f"--temp-dir={self.temporary}", "--include-dashboard=false"]
        self._start(0, command)

    def start_node(self, node: int, cpus: int = 1) -> None:
        self._start(node, [f"--address={self.address}", f"--num-cpus={cpus}"])

    def _start(self, node: int, arguments: list[str]) -> None:
        ray = [sys.executable, "-m", "ray.scripts.scripts"]
        command = [*self.inside(node), *ray, "start", "--block", *arguments]
        command += [f"--node-ip-address={self.host(node)}", "--disable-usage-stats"]
        command += ["--object-store-memory=100000000"]
        log_file = self.folder / f"node{node}.log"
        with log_file.open("w") as log:
            self.nodes[node] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.env | HOOK | {"BITFRONT_NODE": f"{self.token}-{node}"},
            )
        wait_for(lambda: "Ray runtime started" in log_file.read_text(), 180, f"Ray node {node}")

    def kill(self, node: int) -> None:
        """End all processes of a node with SIGKILL."""
        end(self.nodes.pop(node))
        for pid in processes(f"BITFRONT_NODE={self.token}-{node}"):
            kill(pid)

    def trial_workers(self, node: int | None = None) -> list[int]:
        """The ids of the processes that run trials, of one node or of all, recognised by the title
        that Ray gives its actors."""
        token = self.token if node is None else f"BITFRONT_NODE={self.token}-{node}"
        titles = processes(token).items()
        return [pid for pid, title in titles if title.startswith("ray::ResourceTrainable")]

    def logs(self) -> list[Path]:
        """The log files of its workers."""
        return list(self.temporary.glob("session_*/logs/worker-*"))

    def stop(self) -> None:
        for node in sorted(self.nodes, reverse=True):
            self.kill(node)
        shutil.rmtree(self.temporary, ignore_errors=True)


def kill(pid: int) -> None:
    """End a process with SIGKILL, if it still exists."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class User:
    """A user who runs bitfront commands in a folder of their own; `search` is the text of a
    YAML."""

    def __init__(
        self,
        folder: Path,
        search: str,
        env: dict[str, str],
        address: str | None = None,
        inside: list[str] | None = None,
    ) -> None:
        self.folder, self.address, self.inside = folder, address, inside or []
        self.env = env | {"BITFRONT_HOME": str(folder / "runs"), "PYTHONFAULTHANDLER": "1"}
        folder.mkdir(parents=True, exist_ok=True)
        self.name = search.partition("name:")[2].split()[0]
        self.process: subprocess.Popen[str] | None = None
        (folder / f"{self.name}.yaml").write_text(search)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a bitfront command and return its process."""
        if words[0] in ("run", "resume", "extend") and self.address is not None:
            words = (*words, "--address", self.address)
        self.process = subprocess.Popen(
            [*self.inside, *BITFRONT, *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.process

    def leave(self) -> None:
        """End the command that was started last."""
        if self.process is not None:
            end(self.process)

    def call(self, *words: str, code: int = 0) -> str:
        """Run a bitfront command to its end, expect the exit code `code`, return what it
        printed."""
        process = self.start(*words)
        out, _ = process.communicate(timeout=200)
        assert process.returncode == code, out
        return out

    def json(self, *words: str) -> Any:
        return json.loads(self.call(*words, "--json"))

    @property
    def search(self) -> Any:
        from bitfront.search.ledger.folder import SearchFolder

        return SearchFolder(self.folder / "runs" / self.name)

    def entries(self) -> list[Any]:
        """The trials of the ledger; none where it cannot be read yet."""
        from bitfront.search.ledger.reader import read_entries

        try:
            return read_entries(self.search.ledger_url, self.name)
        except Exception:  # the driver is just creating the tables, or the database is away
            return []

    def ended(self) -> int:
        return sum(e.state != TrialState.RUNNING for e in self.entries())

    def checkpoints(self) -> list[Path]:
        return list((self.search.path / "trials").glob("*/state.pt"))


@contextmanager
def tracking_server(folder: Path, port: int) -> Iterator[subprocess.Popen[Any]]:
    """A real MLflow server on loopback, over SQLite."""
    process = start_tracking_server(folder, port)
    try:
        yield process
    finally:
        end(process)


def start_tracking_server(folder: Path, port: int) -> subprocess.Popen[Any]:
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'server.db'}", "--workers", "1"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    # Without MLflow's job runners, a dozen processes that are not used here.
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("a") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, cwd=folder, env=env
        )


class Postgres:
    """A PostgreSQL server from Debian's packages, in a temporary folder that `remove` deletes."""

    def __init__(self) -> None:
        self.folder, self.port = Path(tempfile.mkdtemp(prefix="postgres")), free_port()
        self.process: subprocess.Popen[Any] | None = None
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            account = pwd.getpwnam("postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self._call("initdb", "-D", str(self.folder / "data"), "-A", "trust", "-U", "bitfront")
        self.start()
        self._call("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "bitfront", "ledger")

    @property
    def url(self) -> str:
        return f"postgresql://bitfront@127.0.0.1:{self.port}/ledger"

    def _words(self, program: str) -> list[str]:
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        return [*(prefix if os.getuid() == 0 else []), str(POSTGRES[-1] / program)]

    def _call(self, program: str, *arguments: str) -> None:
        command = [*self._words(program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder)

    def start(self) -> None:
        command = [*self._words("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-k", str(self.folder)]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
            )
        wait_for(self._answers, 200, "PostgreSQL")

    def _answers(self) -> bool:
        command = [*self._words("pg_isready"), "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self, sign: int = signal.SIGQUIT) -> None:
        if self.process is not None:
            end(self.process, sign)
            self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of `size` at `folder`; only root can make one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(command, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Namespaces:
    """Network namespaces, one per node, each connected to a bridge by a pair of virtual cards."""

    def __init__(self, nodes: int) -> None:
        self.name = f"bf{secrets.token_hex(2)}"
        self.subnet = f"10.{66 + secrets.randbelow(100)}.{secrets.randbelow(250)}"
        self.nodes = range(nodes)
        _ip("link", "add", self.name, "type", "bridge")
        _ip("link", "set", self.name, "up")
        for node in self.nodes:
            space, card = f"{self.name}n{node}", f"{self.name}c{node}"
            _ip("netns", "add", space)
            _ip("link", "add", card, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", card, "master", self.name, "up")
            for words in (
                ("addr", "add", f"{self.host(node)}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("link", "set", "lo", "up"),
            ):
                _ip("-n", space, *words)

    def inside(self, node: int) -> list[str]:
        return ["ip", "netns", "exec", f"{self.name}n{node}"]

    def host(self, node: int) -> str:
        return f"{self.subnet}.{node + 2}"

    def cut(self, node: int, up: bool = False) -> None:
        """Disconnect a node from the network or, with `up`, connect it again."""
        _ip("link", "set", f"{self.name}c{node}", "up" if up else "down")

    def remove(self) -> None:
        for node in self.nodes:
            _ip("netns", "del", f"{self.name}n{node}")
        _ip("link", "del", self.name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def namespaces_work() -> bool:
    """Whether this process may create network namespaces."""
    if os.getuid() != 0 or shutil.which("ip") is None:
        return False
    command = ["unshare", "-n", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def mounts_work() -> bool:
    """Whether this process may create mount namespaces, with disks that other processes do not
    see."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if os.getuid() != 0:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
