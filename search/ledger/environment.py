"""What a search ran on: versions that may change its numbers."""

from __future__ import annotations

import platform
from importlib import metadata

PACKAGES = ("bitfront", "torch", "ray", "optuna", "mlflow")


def environment() -> dict[str, str]:
    versions = {f"version.{name}": version_of(name) for name in PACKAGES}
    return {"python": platform.python_version(), "platform": platform.platform(), **versions}


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
