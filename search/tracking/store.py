"""The MLflow store of a search: where it is, which runs of the search it has, and files of runs.
Reads only; what is written is in mirror.py and extra_runs.py."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from bitfront.search import named
from bitfront.search.config.schema import SearchConfig
from bitfront.search.urls import canonical, redacted, sqlite_for_mlflow, with_secrets
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.files import refuse_link


def tracking_uri(config: SearchConfig, home: Path) -> str:
    """The address of MLflow: from the YAML, else MLFLOW_TRACKING_URI, else a SQLite file in the
    home of the searches."""
    known = os.environ.get("MLFLOW_TRACKING_URI")
    if config.tracking.uri:
        return canonical(with_secrets(config.tracking.uri, named.given("tracking")))
    return canonical(known) if known else sqlite_for_mlflow(refuse_link(home / "mlflow.db"))


def fetch_artifact(artifact: str, uri: str, folder: Path) -> Path:
    """Copy a file of an MLflow run (`runs:/RUN/FILE`) into `folder` and return its path."""
    import mlflow

    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = mlflow.artifacts.download_artifacts(
            artifact, dst_path=str(folder), tracking_uri=uri
        )
    except Exception as error:  # every store has its own types
        reason = first_line(error)
        raise UserError(f"{artifact}: MLflow at {uri} does not have it: {reason}") from None
    path = Path(found)
    if not path.is_file():
        raise UserError(f"{artifact}: a folder; name the file of the weights in it")
    return path


def find_runs(client: Any, experiments: Sequence[str], identity: str, kind: str) -> list[Any]:
    """All runs of the search with this identity: of the kind `search`, its parent runs, of which
    one is kept; `trial`; or a kind of `extras.KINDS`."""
    query = f"tags.`bitfront.search_id` = '{identity}' and tags.`bitfront.kind` = '{kind}'"
    runs: list[Any] = []
    token: str | None = None
    while experiments:
        page = client.search_runs(list(experiments), query, max_results=1000, page_token=token)
        runs += page
        token = page.token
        if not token:
            break
    return runs


def keeps_artifacts(client: Any, run_id: str, uri: str, home: Path) -> bool:
    """Whether files may be written to a run. The database in a home says where to, and a home that
    somebody else made may name any folder of this machine, or a server that would be sent a token:
    only folders within the home are used. A store the user has named is trusted."""
    if uri != sqlite_for_mlflow(home / "mlflow.db"):
        return True
    place = urlsplit(str(client.get_run(run_id).info.artifact_uri))
    path = Path(url2pathname(place.path))
    local = place.scheme in ("", "file") and not place.netloc and path.is_absolute()
    return local and path.resolve().is_relative_to(home.resolve())


def trouble(error: BaseException) -> str:
    """What MLflow says went wrong, in one line without passwords."""
    return redacted(first_line(error, typed=True))[:300]
