"""Ray nodes: a head, and nodes that are started and killed."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.faulty import FOLDER, HOOK
from testbed.rig.processes import end, free_port, kill, processes, wait_for

ROOT = Path(__file__).parent.parent.parent


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
        python: str = sys.executable,
    ) -> None:
        """`inside` is the command that puts a node into a network of its own, `host` its address
        there; `python` runs the nodes and their workers."""
        self.folder = folder
        self.token = secrets.token_hex(32)
        self.head_cpus = head_cpus
        self.settings = settings or {}
        self.inside, self.host, self.python = inside, host, python
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
            "RAY_raylet_start_wait_time_s": "300",  # on a busy machine
            # Ray would end workers where others fill the memory of this machine.
            "RAY_memory_monitor_refresh_ms": "0",
            "PYTHONPATH": str(ROOT),
            FOLDER: str(self.folder),
            **self.settings,
        }

    def start_head(self) -> None:
        command = ["--head", f"--port={self.port}", f"--num-cpus={self.head_cpus}"]
        command += [f"--temp-dir={self.temporary}", "--include-dashboard=false"]
        self.start(0, command, HOOK)
        self.wait(0)

    def start_node(self, node: int, cpus: int = 1) -> None:
        self.start(node, [f"--address={self.address}", f"--num-cpus={cpus}"], HOOK)
        self.wait(node)

    def start(self, node: int, arguments: list[str], env: dict[str, str]) -> None:
        """Start a node and do not wait for it."""
        ray = [self.python, "-m", "ray.scripts.scripts"]
        command = [*self.inside(node), *ray, "start", "--block", *arguments]
        command += [f"--node-ip-address={self.host(node)}", "--disable-usage-stats"]
        command += ["--object-store-memory=100000000"]
        with self._log(node).open("w") as log:
            self.nodes[node] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.env | env | {"BITFRONT_NODE": f"{self.token}-{node}"},
            )

    def wait(self, node: int) -> None:
        """Wait until a node runs."""
        log = self._log(node)
        wait_for(lambda: "Ray runtime started" in log.read_text(), 400, f"Ray node {node}")

    def _log(self, node: int) -> Path:
        return self.folder / f"node{node}.log"

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
