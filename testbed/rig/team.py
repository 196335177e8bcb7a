"""The cluster of a team: Ray nodes on machines of their own, the servers that its searches use, and
the people who use it from outside, with commands that start without importing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from testbed import warm
from testbed.rig.machines import HOME, Machine, Network
from testbed.rig.nodes import Cluster
from testbed.rig.processes import end, free_port, listens, wait_for
from testbed.rig.servers import ObjectStore, Postgres, start_tracking_server

DASHBOARD = 8265
# Seconds a command may take where others want the same cores.
PATIENCE = 480.0
# A machine that does not answer for some seconds is dead; Ray waits half a minute by default.
IMPATIENT = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "4000",
    "RAY_health_check_failure_threshold": "3",
}


class WarmMachine(Machine):
    """A machine whose Python is forked."""

    def seen(self) -> Sequence[str]:
        return (str(warm.commands()),)


class TeamCluster(Cluster):
    """A Ray cluster of which every node is a machine of its own. No trial runs on its head."""

    def __init__(self, network: Network, folder: Path, settings: dict[str, str]) -> None:
        there = {"HOME": HOME, "PATH": warm.environment()["PATH"]}
        host = network.host
        super().__init__(folder, 0, there | settings, network.inside, host, warm.python())
        self.network = network
        self.port = 6379

    @property
    def dashboard(self) -> str:
        return f"http://{self.host(0)}:{DASHBOARD}"

    def begin_head(self) -> None:
        """Start the head without waiting for it."""
        self.network.start(0)
        command = ["--head", f"--port={self.port}", "--num-cpus=0"]
        command += ["--dashboard-host=0.0.0.0", f"--dashboard-port={DASHBOARD}"]
        self.start(0, command, {})

    def begin_node(self, node: int, *options: str) -> None:
        """Start a machine that joins, with one CPU, without waiting for it."""
        self.network.start(node)
        self.start(node, [f"--address={self.address}", "--num-cpus=1", *options], {})

    def kill(self, node: int) -> None:
        """Cut the power of a machine."""
        self.network.kill(node)
        end(self.nodes.pop(node))

    def mark(self, *nodes: int, there: bool = True) -> None:
        """Make or delete a file in the homes of machines, for trainings that look for it."""
        for node in nodes:
            file = self.home_of(node) / "slow"
            if there:
                file.touch()
            else:
                file.unlink()

    def home_of(self, node: int) -> Path:
        """The home of a machine as seen from here."""
        return self.network.folder / f"machine{node}" / HOME[1:]


class Person:
    """Somebody with a laptop outside of the cluster, and a name in its database."""

    def __init__(self, name: str, folder: Path, env: dict[str, str]) -> None:
        self.name, self.folder = name, folder
        folder.mkdir(parents=True)
        home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config")}
        self.env = env | home | {"BITFRONT_HOME": str(folder / "runs"), "COLUMNS": "120"}

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def start(self, *words: str) -> Command:
        """Start a bitfront command."""
        return Command(self, words)

    def call(self, *words: str, code: int = 0, seconds: float = PATIENCE) -> str:
        """Run a bitfront command to its end, expect an exit code, return what it printed."""
        return self.start(*words).said(code, seconds)

    def json(self, *words: str) -> Any:
        return json.loads(self.call(*words, "--json"))


class Command:
    """A bitfront command of a person."""

    def __init__(self, person: Person, words: tuple[str, ...]) -> None:
        self.line, self._began = f"{person.name}$ bitfront {' '.join(words)}", time.monotonic()
        self._process = warm.start(words, person.folder, person.env)

    def said(self, code: int = 0, seconds: float = PATIENCE) -> str:
        """Wait for its end, expect an exit code, return what it printed."""
        said, _ = self._process.communicate(seconds)
        if os.environ.get("BITFRONT_ALOUD"):
            took = time.monotonic() - self._began
            print(f"\n{self.line}   [{took:.1f} s]\n{said}", flush=True)
        found = self._process.returncode
        assert found == code, f"exit code {found} of {self.line}:\n{said}"
        return said


class Team:
    """Everything of it."""

    def __init__(self, folder: Path, network: Network, stack: ExitStack) -> None:
        self.folder, self.network = folder, network
        self.database = Postgres(network.outside)
        stack.callback(self.database.remove)
        (folder / "mlflow").mkdir()
        port = free_port()
        self.tracking = f"http://{network.outside}:{port}"
        server = start_tracking_server(folder / "mlflow", port, network.outside)
        stack.callback(end, server)
        self.objects = ObjectStore(folder, network.outside)
        stack.callback(self.objects.stop)
        self.cluster = TeamCluster(network, folder / "ray", self.objects.env | IMPATIENT)
        stack.callback(self.cluster.stop)
        self.cluster.begin_head()
        self.cluster.wait(0)
        for node in (1, 2):
            self.cluster.begin_node(node)
        self.objects.ready()
        for node in (1, 2):
            self.cluster.wait(node)
        wait_for(lambda: listens(port, network.outside), 120, "the MLflow server")

    @property
    def address(self) -> str:
        return self.cluster.dashboard

    def printed(self, search: str) -> str:
        """What the drivers of a search have printed so far, read on the disk of the head."""
        place = f"machine0{gettempdir()}/ray/session_2*/logs"
        logs = self.folder.glob(f"{place}/job-driver-*-{search}-*.log")
        return "".join(log.read_text() for log in sorted(logs, key=lambda p: p.stat().st_ctime))

    def person(self, name: str) -> Person:
        env = self.cluster.env | {"PYTHONFAULTHANDLER": "1"}
        return Person(name, self.folder / name, env)


@contextmanager
def team(folder: Path) -> Iterator[Team]:
    """A head and two nodes, PostgreSQL, MLflow and an object store."""
    with ExitStack() as stack:
        network = stack.enter_context(Network(folder, WarmMachine))
        yield Team(folder, network, stack)
