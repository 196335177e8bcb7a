"""An actor that reports versions, clock and storage of the node it runs on. It is sent there as
code, so that it also runs where bitfront is not installed: import nothing of this project here."""

from __future__ import annotations

import os
import socket
import sys
import time
from importlib import metadata
from typing import Any

PACKAGES = ("ray", "torch", "torchvision", "bitfront")


class NodeProbe:
    """What `bitfront doctor --address` asks a node."""

    def __init__(self, storage_source: str) -> None:
        # The source of `trainables.worker.storage`: the module may not be installed here.
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
        """Read the driver's file `known` and write the file `own` for it; return what went wrong,
        if anything did."""
        try:
            if self.storage["read"](known) is None:
                return "does not see what the driver wrote: not shared"
            self.storage["write"](own, socket.gethostname().encode())
        except Exception as error:  # every file system has faults of its own
            return f"{type(error).__name__}: {error}"
        return None
