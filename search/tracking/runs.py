"""How a search and its trials are called in MLflow, where that is, and what is told there once a
search has ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from bitfront.search import named
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.settings import LONGEST, in_a_line, settings_of
from bitfront.search.tracking.extras import KINDS, Extra, extras_of
from bitfront.search.urls import canonical, redacted, sqlite_for_mlflow, with_secrets
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.files import refuse_link
from bitfront.trainables.methods import METHODS
from bitfront.trainables.tasks import kind_of


def tracking_uri(config: SearchConfig, home: Path) -> str:
    """The YAML, else MLFLOW_TRACKING_URI, else a SQLite file beside the searches."""
    known = os.environ.get("MLFLOW_TRACKING_URI")
    if config.tracking.uri:
        return canonical(with_secrets(config.tracking.uri, named.given("tracking")))
    return canonical(known) if known else sqlite_for_mlflow(refuse_link(home / "mlflow.db"))


def fetch_artifact(artifact: str, uri: str, folder: Path) -> Path:
    """A file of an MLflow run (`runs:/RUN/FILE`), copied into `folder`."""
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


def keeps_artifacts(client: Any, run_id: str, uri: str, home: Path) -> bool:
    """Whether files may be written to a run. The database of a home says where; where that came
    from elsewhere, it may be any folder of this machine, or a server that would be sent a token. A
    store the user has named is trusted."""
    if uri != sqlite_for_mlflow(home / "mlflow.db"):
        return True
    place = urlsplit(str(client.get_run(run_id).info.artifact_uri))
    path = Path(url2pathname(place.path))
    local = place.scheme in ("", "file") and not place.netloc and path.is_absolute()
    return local and path.resolve().is_relative_to(home.resolve())


def experiment_name(config: SearchConfig) -> str:
    return config.tracking.experiment or f"{config.task.dataset} {config.task.model.name}"


def run_name(entry: Entry) -> str:
    """Readable in a list: id, method, settings that vary, share of the dearest network's flops,
    accuracy or other quality of this trial."""
    share = entry.costs["flops_pct"]
    told = in_a_line(settings_of(entry), LONGEST)
    parts = [entry.id, entry.spec.method, told, f"{share:.{0 if share >= 9.5 else 1}f} %"]
    quality = kind_of(entry.spec.task.dataset).quality
    value = entry.metrics.get(quality.name)
    if value is not None:
        parts.append(quality.number(value, 1))
    return " ".join(filter(None, parts))


def role_of(entry: Entry, config: SearchConfig) -> str:
    """Why a trial was trained: to explore, or to confirm a point with another seed."""
    return "exploration" if entry.spec.seed == config.search.seed else "confirmation"


def end_tags(entry: Entry) -> dict[str, str]:
    """What is known of a trial when it has ended."""
    tags = {"state": entry.state, "mlflow.runName": run_name(entry)}
    if entry.failure:
        tags |= {"failure": entry.failure, "message": (entry.message or "")[:500]}
    return tags


def flat_params(entry: Entry) -> dict[str, str]:
    """A trial's parameters for MLflow: what makes it this trial. What all trials of a search share
    is in the parent's search.yaml; in the columns of a comparison it would be noise."""
    spec = entry.spec
    flat = {"method": spec.method, "plan": spec.plan, "seed": str(spec.seed)}
    # Not by the method's own name: MLflow takes no '+' in a key.
    flat |= {f"method.{name}": str(value) for name, value in spec.params.items()}
    drawn = {k: str(v) for k, v in entry.drawn.items() if k.rpartition(".")[0] not in METHODS}
    return drawn | flat


def deliver_extras(config: SearchConfig, folder: SearchFolder) -> str | None:
    """Bring what a search got after it ended, such as final trainings, under its parent run.
    Returns what went wrong, if anything did; a search that MLflow does not know has no parent."""
    from mlflow import MlflowClient

    try:
        named.check("tracking", config.tracking.uri, config.name)
        uri = tracking_uri(config, folder.path.parent)
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name(experiment_name(config))
        if experiment is None:
            return None
        query = (
            f"tags.`bitfront.search_id` = '{folder.identity}' and tags.`bitfront.kind` = 'search'"
        )
        parents = client.search_runs([experiment.experiment_id], query, max_results=1)
        if parents:
            ids = (experiment.experiment_id, parents[0].info.run_id, folder.identity)
            log_extras(
                client,
                *ids,
                extras_of(folder, []),
                lambda run: keeps_artifacts(client, run, uri, folder.path.parent),
            )
        return None
    except UserError as error:
        return redacted(f"{error.message}; {error.hint}")
    except Exception as error:
        return trouble(error)


def forget_search_run(config: SearchConfig, folder: SearchFolder) -> None:
    """Delete the parent run of a search that has no trials. A server that is away keeps it."""
    uri = tracking_uri(config, folder.path.parent)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return
    from mlflow import MlflowClient

    query = f"tags.`bitfront.search_id` = '{folder.identity}' and tags.`bitfront.kind` = 'search'"
    with contextlib.suppress(Exception):  # every store has its own types
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name(experiment_name(config))
        if experiment is not None:
            for run in client.search_runs([experiment.experiment_id], query):
                client.delete_run(run.info.run_id)


def log_extras(
    client: Any,
    experiment: str | None,
    parent: str | None,
    identity: str,
    extras: list[Extra],
    keeps: Callable[[str], bool] = lambda run: True,
) -> None:
    """A run each, under the parent; what is there already stays as it is. `keeps`: whether files
    may be written to a run."""
    from mlflow.entities import Metric, Param

    known = set()
    for kind in KINDS:
        query = f"tags.`bitfront.search_id` = '{identity}' and tags.`bitfront.kind` = '{kind}'"
        for run in client.search_runs([experiment], query, max_results=1000):
            if run.info.status == "RUNNING":  # whoever made it was cut off: it is made again
                client.delete_run(run.info.run_id)
            else:
                known.add(run.data.tags.get("bitfront.extra"))
    for extra in extras:
        if extra.key in known:
            continue
        ended = int(1000 * (extra.ended or time.time()))
        tags = {
            "mlflow.parentRunId": parent,
            "mlflow.runName": extra.name,
            "bitfront.kind": extra.kind,
            "bitfront.extra": extra.key,
            "bitfront.search_id": identity,
            "role": extra.kind,
            "state": "complete",
            **extra.tags,
        }
        began = ended - int(1000 * extra.seconds)
        run = client.create_run(experiment, start_time=began, tags=tags).info.run_id
        metrics = [Metric(name, value, ended, 0) for name, value in extra.metrics.items()]
        client.log_batch(run, metrics, [Param(k, v) for k, v in extra.params.items()])
        for file in extra.files if extra.files and keeps(run) else ():
            client.log_artifact(run, str(file))
        client.set_terminated(run, "FINISHED", ended)


def trouble(error: BaseException) -> str:
    """What MLflow says went wrong, in one line without passwords."""
    return redacted(first_line(error, typed=True))[:300]
