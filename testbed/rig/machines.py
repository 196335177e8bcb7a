"""Machines of a cluster on this one: processes in namespaces of their own, with an address, a /tmp,
a home and process ids that the others do not see. Ending a machine ends all that runs on it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from testbed.rig.namespaces import _ip, mounts_work, namespaces_work
from testbed.rig.nodes import ROOT

# Every machine has folders of its own here; the last may hide where they are kept.
OWN = ("/home", "/tmp")
HOME = "/home/ray"
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child"]


def machines_work() -> bool:
    """Whether this process may make them."""
    return namespaces_work() and mounts_work()


class Machine:
    """One machine; `folder` has its disk. Its first process waits until the machine is ended."""

    own: ClassVar[Sequence[str]] = OWN
    home: ClassVar[str] = HOME

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        for place in (*self.own, self.home):  # a machine that is started again has its disk
            (folder / place[1:]).mkdir(parents=True, exist_ok=True)
        os.chmod(folder / "tmp", 0o1777)
        self._process = subprocess.Popen(
            [*UNSHARE, "--mount-proc", "bash", "-c", self._script()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.pid = int(children.read_text())

    def _script(self) -> str:
        """Mount the folders of its own. What python needs and lies below them stays visible."""
        lines = [f"hostname {self.name}"]
        for path in sorted(_needed(self.seen())):
            there = shlex.quote(f"{self.folder}{path}")
            make = f"mkdir -p {there}" if path.is_dir() else f"install -D /dev/null {there}"
            lines.append(f"{make} && mount --rbind {shlex.quote(str(path))} {there}")
        lines += self.prepare()
        lines += [f"mount --rbind {shlex.quote(f'{self.folder}{p}')} {p}" for p in self.own]
        return " && ".join([*lines, "echo ready", "read -r"])

    def seen(self) -> Sequence[str]:
        """Paths below its own folders where it sees what others see."""
        return ()

    def prepare(self) -> list[str]:
        """Shell commands on it before its folders hide where they are kept."""
        return []

    @property
    def group(self) -> int:
        """The group of processes with which it ends."""
        return self._process.pid

    def inside(self) -> list[str]:
        """The words before a command that is run on this machine."""
        spaces = ["--net", "--mount", "--pid", "--uts", f"--wdns={self.home}"]
        return ["nsenter", f"--target={self.pid}", *spaces]

    def call(self, *words: str, env: dict[str, str] | None = None) -> str:
        """Run a command on it and return what it printed."""
        command = [*self.inside(), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=env, timeout=120
        )
        return done.stdout

    def kill(self) -> None:
        """Cut its power."""
        with contextlib.suppress(ProcessLookupError):  # somebody else has
            os.killpg(self.group, signal.SIGKILL)
        self._process.communicate()


def _needed(seen: Sequence[str]) -> set[Path]:
    """The paths below the machines' own folders that this python needs to run, and others."""
    places = [sys.prefix, sys.base_prefix, sys.executable, str(ROOT), *sys.path, *seen]
    found = {Path(p) for place in places if place for p in (place, os.path.realpath(place))}
    below = {p for p in found if p.exists() and any(Path(own) in p.parents for own in OWN)}
    return {p for p in below if not below & set(p.parents)}


class Network:
    """A network of machines: a bridge, at which this machine has an address too, for the servers
    and users outside of the cluster."""

    def __init__(self, folder: Path, kind: type[Machine] = Machine) -> None:
        self.folder, self.kind = folder, kind
        self.name = f"bf{secrets.token_hex(2)}"
        self.subnet = f"10.{66 + secrets.randbelow(100)}.{secrets.randbelow(250)}"
        self.machines: dict[int, Machine] = {}
        _ip("link", "add", self.name, "type", "bridge")
        _ip("addr", "add", f"{self.outside}/24", "dev", self.name)
        _ip("link", "set", self.name, "up")

    @property
    def outside(self) -> str:
        """The address of servers and users outside of the cluster."""
        return f"{self.subnet}.1"

    def host(self, number: int) -> str:
        return f"{self.subnet}.{number + 2}"

    def start(self, number: int, name: str | None = None) -> Machine:
        """A new machine, connected to the network."""
        name = name or f"machine{number}"
        machine = self.kind(self.folder / name, name)
        self.machines[number] = machine
        card, there = f"{self.name}c{number}", ["nsenter", f"--target={machine.pid}", "--net"]
        peer = ("peer", "name", "eth0", "netns", str(machine.pid))
        _ip("link", "add", card, "type", "veth", *peer)
        _ip("link", "set", card, "master", self.name, "up")
        for words in (
            ("addr", "add", f"{self.host(number)}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            subprocess.run([*there, "ip", *words], check=True, capture_output=True)
        return machine

    def inside(self, number: int) -> list[str]:
        return self.machines[number].inside()

    def kill(self, number: int) -> None:
        """End a machine; the others notice when it does not answer."""
        self.machines.pop(number).kill()

    def remove(self) -> None:
        for number in list(self.machines):
            self.kill(number)
        _ip("link", "del", self.name)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()
