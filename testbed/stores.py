"""Empty MLflow stores: made once in a process, then copied. MLflow takes a second of computation
for every new one."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from bitfront.search.tracking.database import make_database


@cache
def _empty_store() -> bytes:
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mlflow.db"
        make_database(MlflowClient, file)
        return file.read_bytes()


def copy_store(_client: Any, path: Path) -> None:
    """As `make_database`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_empty_store())
