"""What one node tells about itself. It is sent there as code, so that it also runs where bitfront
is not installed: nothing of this project may be imported here."""

from __future__ import annotations

import os
import socket
import sys
import time
from importlib import metadata
from typing import Any

PACKAGES = ("ray", "torch", "torchvision", "bitfront")


class NodeProbe:
    """Becomes an actor on one node."""

    def __init__(self, storage_source: str) -> None:
        # The functions of `trainables.storage`, by their text: the module may be missing here.
        self.storage: dict[str, Any] = {"__name__": "storage"}
        exec(compile(storage_source, "storage.py", "exec"), self.storage)

    def facts(self) -> dict[str, Any]:
        versions = {"python": sys.version.split()[0]}
        for package in PACKAGES:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                versions[package] = "missing"
        return {"host": socket.gethostname(), "pid": os.getpid(), "versions": versions}

    def now(self) -> float:
        return time.time()

    def shares(self, known: str, own: str) -> str | None:
        """Read what the driver wrote and write a file for it to read; what went wrong, if
        anything did."""
        try:
            if self.storage["read"](known) is None:
                return "does not see what the driver wrote: not shared"
            self.storage["write"](own, socket.gethostname().encode())
        except Exception as error:  # every file system has faults of its own
            return f"{type(error).__name__}: {error}"
        return None
