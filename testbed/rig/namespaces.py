"""Networks and disks that only some processes see: network namespaces, file systems."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
