"""Databases without what their libraries repeat. Empty MLflow stores are made once in a process,
then copied: MLflow takes a second of computation for every new one. The scripts that migrate
Optuna's tables are read once, not three times for every new ledger, which takes 0.05 s."""

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


def read_scripts_once() -> None:
    """Let Optuna keep the scripts that it has read."""
    from optuna.storages._rdb.storage import _VersionManager

    read = _VersionManager._create_alembic_script
    known: list[Any] = []

    def scripts(manager: Any) -> Any:
        if not known:
            known.append(read(manager))
        return known[0]

    _VersionManager._create_alembic_script = scripts  # type: ignore[assignment,method-assign]
