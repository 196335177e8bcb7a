"""The versions of Python and packages that a search ran with, which may change its results.
Versions on the nodes of a cluster are checked in `search.cluster.node_checks`."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

PACKAGES = ("bitfront", "torch", "ray", "optuna", "mlflow")


def environment() -> dict[str, str]:
    """Versions by name, for the ledger and MLflow."""
    versions = {f"version.{name}": version_of(name) for name in PACKAGES}
    return {"python": platform.python_version(), "platform": platform.platform(), **versions}


@cache
def version_of(package: str) -> str:
    """The installed version of a package, or "unknown"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
