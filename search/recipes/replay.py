"""Replay: a finished trial trained again from the ledger, without Ray, and compared with its
record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bitfront.search import kept_code
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import list_searches, pretrained_folder
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.results import Results
from bitfront.trainables.errors import UserError
from bitfront.trainables.metrics import Metric
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.network import device_from_resources
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.pretraining import PretrainedCache


@dataclass
class ReplayReport:
    """How a replayed trial compares with its record; `values` are recorded and replayed quality."""

    search: str
    trial: str
    epochs: int
    differing: list[dict[str, float]]
    quality: Metric
    values: tuple[float, float]
    threads: int

    @property
    def equal(self) -> bool:
        return not self.differing

    def as_json(self) -> dict[str, Any]:
        return {
            "search": self.search,
            "trial": self.trial,
            "equal": self.equal,
            "epochs": self.epochs,
            f"recorded_{self.quality.bare}": self.values[0],
            f"replayed_{self.quality.bare}": self.values[1],
            "threads": self.threads,
            "first_difference": self.differing[0] if self.differing else None,
        }

    def text(self) -> str:
        recorded, replayed = map(self.quality.text, self.values)
        if self.equal:
            return (
                f"trial {self.trial}: replayed bit for bit, {self.epochs} epochs, "
                f"{replayed} validation {self.quality.label}"
            )
        first = self.differing[0]
        return (
            f"trial {self.trial}: {recorded} recorded, {replayed} replayed\n"
            f"  first difference in epoch {first['epoch']:g}: {first['metric']} "
            f"{first['recorded']!r} recorded, {first['replayed']!r} replayed "
            f"(here: {self.threads} threads)\n"
            "  another machine, thread count, device or torch version changes the last bits"
        )


def find_trial(root: Path, text: str) -> tuple[Results, Entry]:
    """The trial named `SEARCH/TRIAL`, or by its id alone among all searches."""
    name, _, trial = text.rpartition("/")
    folders = [f for f in list_searches(root) if not name or f.name == name]
    if name and not folders:
        raise UserError(f"unknown search '{name}'", "bitfront status lists them")
    found = []
    for folder in folders:
        try:
            results = Results.of(folder)
            found.append((results, results.find(trial)))
        except UserError:  # not there, or damaged: the others are looked at
            if name:
                raise
    if not found:
        raise UserError(f"no trial '{trial}' in {root}", "bitfront front SEARCH lists trials")
    if len(found) > 1:
        names = ", ".join(f"{r.config.name}/{e.id}" for r, e in found)
        raise UserError(f"trial '{trial}' is ambiguous: {names}")
    return found[0]


def replay_trial(
    results: Results,
    entry: Entry,
    data_dir: str | None = None,
    note: Callable[[str], None] | None = None,
) -> ReplayReport:
    """Train a complete trial again, as the search did, and compare every epoch's metrics."""
    if entry.state != TrialState.COMPLETE:
        raise UserError(f"trial {entry.id} is {entry.state}: only a complete one can be replayed")
    kept_code.look(results.folder.path)
    threads = max(1, int(results.config.resources.cpus))
    torch.set_num_threads(threads)
    spec = entry.spec
    if data_dir:
        task = spec.task.model_copy(update={"data_dir": data_dir})
        spec = spec.model_copy(update={"task": task})
    device = device_from_resources(results.config.resources.whole_gpus)
    pretrained = PretrainedCache(pretrained_folder(results.folder.path.parent))
    training = Training(spec, *search_data(spec.task), device, pretrained=pretrained)
    quality = results.config.quality
    compared = ["train_loss", *(metric.name for metric in results.config.kind.metrics)]
    while not training.done:
        metrics = training.epoch()
        if note is not None:
            reached = quality.text(metrics[quality.name])
            note(f"epoch {metrics['epoch']:g}/{spec.task.epochs}: {reached}")
    training.network.verify()
    differing: list[dict[str, Any]] = []
    for old, new in zip(entry.history, training.history, strict=True):
        for metric in compared:
            if old.get(metric) != new.get(metric):
                differing.append(
                    {
                        "epoch": new["epoch"],
                        "metric": metric,
                        "recorded": old.get(metric),
                        "replayed": new.get(metric),
                    }
                )
    return ReplayReport(
        search=results.config.name,
        trial=entry.id,
        epochs=spec.task.epochs,
        differing=differing,
        quality=quality,
        values=(entry.metrics[quality.name], training.history[-1][quality.name]),
        threads=threads,
    )
