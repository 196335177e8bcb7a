"""Registered models of MLflow: the network of a final training as a version of one."""

from __future__ import annotations

from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.tracking.runs import experiment_name
from bitfront.search.tracking.store import find_runs, tracking_uri, trouble
from bitfront.trainables.errors import UserError

# Where the run of a final training has its network (`network_files.MODEL`).
MODEL = "model"
# What MLflow refuses in the name of a registered model.
REFUSED = "/:.%\"'"


def check_name(name: str) -> None:
    """Raise a UserError for a name that MLflow refuses."""
    if not name.strip() or any(letter in REFUSED for letter in name):
        raise UserError(f"'{name}' is no name of a registered model: it has one of {REFUSED}")


def register(config: SearchConfig, folder: SearchFolder, key: str, name: str) -> str | None:
    """Make the network of a final training a version of a registered model, which is made where
    there is none. Returns what went wrong, if anything did."""
    from mlflow import MlflowClient

    try:
        uri = tracking_uri(config, folder.path.parent)
        client = MlflowClient(uri, registry_uri=uri)
        experiment = client.get_experiment_by_name(experiment_name(config))
        ids = [] if experiment is None else [experiment.experiment_id]
        runs = find_runs(client, ids, folder.identity, "final") if ids else []
        run = next((r for r in runs if r.data.tags.get("bitfront.extra") == f"final {key}"), None)
        if run is None:
            return "it has no run of this final training"
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        source = f"{run.info.artifact_uri}/{MODEL}"
        tags = {"bitfront.search": config.name, "trial": run.data.tags.get("trial", "")}
        client.create_model_version(name, source, run.info.run_id, tags=tags)
        return None
    except Exception as error:  # every store has its own types
        return trouble(error)
