"""What is written to MLflow besides the trials of a running search: runs of selectors, pretraining
and final trainings, and the deletion of a search that has no trials."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from bitfront.search import named
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.tracking.extras import KINDS, OLD_KINDS, Extra, extras_of
from bitfront.search.tracking.runs import experiment_name
from bitfront.search.tracking.store import find_runs, keeps_artifacts, tracking_uri, trouble
from bitfront.search.urls import redacted, sqlite_path
from bitfront.trainables.errors import UserError


def deliver_extras(config: SearchConfig, folder: SearchFolder) -> str | None:
    """Write runs for what a search got after it ended, such as final trainings, under its parent
    run. Returns what went wrong, if anything did. Where MLflow has no parent run nothing is
    done."""
    from mlflow import MlflowClient

    try:
        named.check("tracking", config.tracking.uri, config.name)
        uri = tracking_uri(config, folder.path.parent)
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name(experiment_name(config))
        if experiment is None:
            return None
        parents = find_runs(client, [experiment.experiment_id], folder.identity, "search")
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
    """Delete the parent run of a search that has no trials, unless the server is away."""
    uri = tracking_uri(config, folder.path.parent)
    file = sqlite_path(uri)
    if file is not None and not file.exists():
        return
    from mlflow import MlflowClient

    with contextlib.suppress(Exception):  # every store has its own types
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name(experiment_name(config))
        if experiment is not None:
            for run in find_runs(client, [experiment.experiment_id], folder.identity, "search"):
                client.delete_run(run.info.run_id)


def log_extras(
    client: Any,
    experiment: str,
    parent: str,
    identity: str,
    extras: list[Extra],
    keeps: Callable[[str], bool] = lambda _run: True,
) -> None:
    """Write a run for each extra under the parent run; one that is there already stays as it is.
    `keeps` says whether files may be written to a run."""
    from mlflow.entities import Metric, Param

    known = set()
    for kind in (*KINDS, *OLD_KINDS):
        for run in find_runs(client, [experiment], identity, kind):
            if run.info.status == "RUNNING":  # its writer was killed: it is made again
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
        if extra.network is not None and keeps(run):
            from bitfront.search.tracking.network_files import log_network

            log_network(client, run, extra.network)
        client.set_terminated(run, "FINISHED", ended)
