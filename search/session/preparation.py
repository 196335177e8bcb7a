"""What is checked and made before a driver takes its turn at a search: that the data and resources
are there, that the search is still the same, its folder. The turn itself is in `launch`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitfront.search import kept_code, named
from bitfront.search.cluster.resources import check_here
from bitfront.search.config.checks.activations import unresponsive
from bitfront.search.config.load import load_text
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.settle import IN_DATA, MLFLOW_RUN
from bitfront.search.ledger.folder import (
    LEDGER,
    SearchFolder,
    is_name,
    pretrained_folder,
    selections_folder,
    writing,
)
from bitfront.search.results.stored import stored_config
from bitfront.search.session.beginning import has_trials, missing_folders
from bitfront.search.session.progress import Line
from bitfront.search.tracking.store import fetch_artifact, tracking_uri
from bitfront.search.urls import canonical, redacted, with_whole_path, without_secrets
from bitfront.spaces.space import Space
from bitfront.trainables.data import DATASETS, dataset_title, load_train
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.own_code import parse, references_in, shown
from bitfront.trainables.worker import storage

# Settings that may differ between two turns at the same search: when it ends, where its trials
# run and how they are shown. A checkpoint is identified by its hash, not by its path.
MAY_CHANGE = (
    "search.trials",
    "search.hours",
    "search.until",
    "resources",
    "storage",
    "tracking",
    "description",
    "task.data_dir",
    "task.pretrain.checkpoint",
    "task.loss.distill.teacher",
    "paper",
    "device.table",
    "search.bench",
)


def fetched(config: SearchConfig, space: Space, root: Path) -> tuple[SearchConfig, Space]:
    """The search with the checkpoint of an MLflow run downloaded, and checked like any file. A
    UserError where one of the data directory is not there."""
    checkpoint = config.task.pretrain.checkpoint
    if checkpoint is not None and checkpoint.startswith(IN_DATA):
        where = config.task.data_dir or os.environ.get("BITFRONT_DATA") or "DIR"
        raise UserError(
            f"trials start from {where}/{checkpoint.removeprefix(IN_DATA)}, which is not there",
            "put it into the data directory (--data-dir DIR or BITFRONT_DATA), or say where it is: "
            "--set task.pretrain.checkpoint=FILE",
        )
    if checkpoint is None or not checkpoint.startswith(MLFLOW_RUN):
        return config, space
    run = checkpoint.removeprefix(MLFLOW_RUN).partition("/")[0]
    if not is_name(run) or ".." in checkpoint.split("/"):
        raise UserError(f"{checkpoint}: not an artifact of a run, write {MLFLOW_RUN}RUN/FILE")
    folder = pretrained_folder(root) / "mlflow" / run
    path = fetch_artifact(checkpoint, tracking_uri(config, root), folder)
    changes = [f"task.pretrain.checkpoint={path}"]
    here, space = load_text(config.dump(), assignments=changes, stored=True)
    places = {"tracking": config.tracking, "storage": config.storage}
    return here.model_copy(update=places), space


def prepare(config: SearchConfig, root: Path, ledger_url: str | None = None) -> SearchFolder:
    """The folder of the search, new or the same as before."""
    folder = SearchFolder(root / config.name)
    named.remember("tracking", config.tracking.uri)
    named.remember("storage", config.storage)
    if folder.exists:
        folder.check_ledger()
    check_same(config, folder)
    made = missing_folders(folder.path)
    made += [] if folder.lock_file.exists() else [folder.lock_file]
    with writing(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
    if ledger_url is not None:
        given = ledger_url != os.environ.get(LEDGER)  # which other searches may use
        ledger_url = with_whole_path(canonical(ledger_url))
        if given:
            named.remember("ledger", ledger_url)
        moved = given and without_secrets(ledger_url) != without_secrets(folder.ledger_url)
        if folder.exists and moved and (folder.running or has_trials(folder)):
            raise UserError(
                f"search '{config.name}' has its ledger at {redacted(folder.ledger_url)}, "
                f"not at {redacted(ledger_url)}",
                "leave --ledger out, or give this search a name of its own (--name)",
            )
        if not folder.exists or moved:
            made += [] if folder.ledger_file.exists() else [folder.ledger_file]
            folder.set_ledger_url(ledger_url)
        os.environ[LEDGER] = ledger_url  # with its password, which is stored nowhere
    return replace(folder, made=tuple(made))


def check_same(config: SearchConfig, folder: SearchFolder) -> None:
    """Raise UserError where `config` would change a search that has trials. In `config` the
    objectives get the stored order, and the budget of trials never falls below the stored one."""
    if not folder.exists:
        return
    stored = stored_config(folder)
    changed = [*differences(stored, config), *code_changes(stored, config, folder)]
    if not changed:
        # Another order of the objectives is no other search: the stored order is kept.
        config.objectives = {name: config.objectives[name] for name in stored.objectives}
    before = stored.search.budget or 0
    fewer = config.search.trials < before
    if not (changed or fewer) or not has_trials(folder):
        return
    config.search.trials = max(config.search.trials, before)
    if changed:
        raise UserError(
            f"search '{config.name}' exists with another configuration: {'; '.join(changed)}",
            f"give this one a name of its own: --name {config.name}-2",
        )


def differences(old: SearchConfig, new: SearchConfig) -> list[str]:
    """`key: old -> new` for every setting that makes another search of it; what has changed in code
    of the user's own is in `code_changes`."""
    return [shown(f"{key}: {was} -> {now}") for key, (was, now) in changes(old, new).items()]


def changes(old: SearchConfig, new: SearchConfig) -> dict[str, tuple[Any, Any]]:
    """(old, new) value of every setting that makes another search of it, by its dotted key."""
    same = _renewed(old, new)
    before = _flat(_with_references(old.open_data(), same))
    after = _flat(new.open_data())
    found = {}
    for key in sorted({*before, *after}):
        free = any(key == k or key.startswith(k + ".") for k in MAY_CHANGE)
        if not free and before.get(key) != after.get(key):
            found[key] = before.get(key), after.get(key)
    return found


def code_changes(old: SearchConfig, new: SearchConfig, folder: SearchFolder) -> list[str]:
    """A sentence for all code that both searches name and that has changed."""
    return [
        kept_code.change(folder.path, parse(before), parse(after))
        for before, after in _renewed(old, new).items()
    ]


def _renewed(old: SearchConfig, new: SearchConfig) -> dict[str, str]:
    """New references by old ones, of code that has the same name and another hash."""
    after = {shown(text): text for text in references_in(new.open_data())}
    before = references_in(old.open_data())
    return {t: after[shown(t)] for t in before if after.get(shown(t), t) != t}


def _with_references(data: Any, renewed: Mapping[str, str]) -> Any:
    """The data with references replaced."""
    if isinstance(data, Mapping):
        return {_with_references(k, renewed): _with_references(v, renewed) for k, v in data.items()}
    if isinstance(data, list):
        return [_with_references(each, renewed) for each in data]
    if isinstance(data, str):
        for before, after in renewed.items():
            data = data.replace(before, after)
    return data


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(data, dict) or not data:
        return {prefix: data}
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def check_start(
    config: SearchConfig, space: Space, folder: SearchFolder, address: str | None, line: Line
) -> None:
    """Raise UserError for what would keep the first trial from starting, as far as it can be
    checked before anything is made: data, binary activations that say nothing (of a search without
    trials), resources of this machine, the storage of checkpoints."""
    if address is None:
        check_here(config.resources)
    line.wait(f"reading {dataset_title(config.task.dataset)}")
    if not DATASETS.get(config.task.dataset).embedded:
        load_train(config.task.dataset, config.task.data_dir, config.task.normalize)
    line.wait("trying the network on a few examples")
    unsure = None if has_trials(folder) else unresponsive(space)
    if unsure is not None:
        line.say(f"warning: {unsure}")
    if config.storage is not None:
        line.wait("trying the storage of checkpoints")
        check_storage(config.storage, config.storage)


def check_places(config: SearchConfig, folder: SearchFolder) -> None:
    """Raise UserError, before anything is written, for a server or storage that the user has not
    named, and for folders that lead out of the home."""
    if config.tracking.enabled:
        named.check("tracking", config.tracking.uri, config.name)
    named.check("storage", config.storage, config.name)
    _ = folder.ledger_url
    for place in (pretrained_folder, selections_folder):
        place(folder.path.parent)


def check_storage(place: str, called: str) -> None:
    """Raise UserError where files cannot be kept at `place`; messages call the storage `called`."""
    try:
        storage.try_out(place)
    except Exception as error:  # every object store has faults of its own
        raise UserError(
            redacted(f"storage {called} cannot be used: {first_line(error)}"),
            "it must let files be written, read, listed and deleted; "
            "of several nodes: bitfront doctor --address auto --storage PLACE",
        ) from None
