"""What belongs to a search besides its trials and gets runs in MLflow: selectors, pretraining,
final trainings. Read from the files they leave; extra_runs.py writes the runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder, pretrained_folder
from bitfront.search.recipes.finals import final_trainings
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import shown
from bitfront.trainables.selectors import SelectionSpec
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.text_files import parse_json, read_json

KINDS = ("selector", "pretraining", "final")
# What version 0.1 called pretraining: its runs are not written again.
OLD_KINDS = ("stage",)


@dataclass(frozen=True)
class Extra:
    """The content of one run. `key` is unique within the search."""

    key: str
    kind: str
    name: str
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    network: Path | None = None
    """the packed network of a final training"""
    ended: float | None = None
    seconds: float = 0.0


def extras_of(folder: SearchFolder, entries: Iterable[Entry]) -> list[Extra]:
    """All extras of a search, as its files have them."""
    return [*_selectors(folder), *_pretraining(folder, entries), *_finals(folder)]


def _selectors(folder: SearchFolder) -> list[Extra]:
    found = []
    for file in sorted(folder.path.glob("selection-*.json")):
        spec = _selection_spec(file)
        if spec is None:
            continue
        task = spec["task"]
        found.append(
            Extra(
                key=file.stem,
                kind="selector",
                name=f"selector {spec['selector']}",
                tags={"selector": spec["selector"]},
                params={
                    "selector": spec["selector"],
                    "level": str(spec.get("level", "")),
                    "dataset": task["dataset"],
                    "model": task["model"]["name"],
                    "epochs": str(task["epochs"]),
                },
                files=sorted(f for f in folder.path.glob(f"{file.stem}.*") if not f.is_symlink()),
                ended=file.stat().st_mtime,
            )
        )
    return found


def _selection_spec(file: Path) -> dict[str, Any] | None:
    """The specification of a selector's work; None for a damaged file, which concerns no trial."""
    try:
        return SelectionSpec.model_validate(read_json(file)["spec"]).model_dump(mode="json")
    except (UserError, ValidationError, KeyError, TypeError):
        return None


def _pretraining(folder: SearchFolder, entries: Iterable[Entry]) -> list[Extra]:
    """The pretraining of the home that some trial of this search starts from."""
    specs = {e.spec.model_dump_json(): e.spec for e in entries if e.spec.task.pretrain.active}
    if not specs:
        return []
    from bitfront.trainables.training.pretraining import binary_pretraining_spec, pretraining_spec

    before = (pretraining_spec, binary_pretraining_spec)
    made = [make(spec) for spec in specs.values() for make in before]
    wanted = {spec.fingerprint(length=64): spec for spec in made if spec is not None}
    found = []
    for file in sorted(pretrained_folder(folder.path.parent).glob("*.safetensors")):
        stored, notes = _pretraining_notes(file)
        spec = wanted.get(stored)
        if spec is None:
            continue
        epochs = spec.task.epochs
        found.append(
            Extra(
                key=file.stem,
                kind="pretraining",
                name=f"pretraining {shown(spec.method)} {epochs} epochs",
                tags={"method": shown(spec.method)},
                params={
                    "method": shown(spec.method),
                    "epochs": str(epochs),
                    "seed": str(spec.seed),
                },
                metrics={f"val_{k}": float(v) for k, v in notes.items() if k != "epochs"},
                ended=file.stat().st_mtime,
            )
        )
    return found


def _pretraining_notes(file: Path) -> tuple[str, dict[str, Any]]:
    """(fingerprint of the specification, metrics) of a pretrained network, from the file's head."""
    try:
        with safe_open(str(file), framework="np") as opened:
            metadata = opened.metadata() or {}
        spec = TrialSpec.model_validate_json(metadata["spec"])
        notes = parse_json(metadata["notes"], str(file))
        measured = {k: v for k, v in notes.items() if type(v) in (int, float)}
        return spec.fingerprint(length=64), measured
    except (SafetensorError, OSError, KeyError, ValueError, AttributeError, UserError):
        return "", {}


def _finals(folder: SearchFolder) -> list[Extra]:
    return [
        Extra(
            key=f"final {final.key}",
            kind="final",
            name=f"final {final.recipe} seed {final.seed}",
            tags={"method": shown(final.method), "plan": final.plan, "trial": final.trial},
            params={
                "method": shown(final.method),
                "plan": final.plan,
                "epochs": str(final.epochs),
                "seed": str(final.seed),
                "checkpoint": final.checkpoint,
            },
            metrics=final.metrics,
            ended=final.ended,
            seconds=final.seconds,
            network=_packed(Path(final.checkpoint)),
        )
        for final in final_trainings(folder, skip_damaged=True)
    ]


def _packed(file: Path) -> Path | None:
    """The file itself where it is a packed network. The record of a folder that somebody else made
    may name any file of this machine, which must not end up on a server."""
    try:
        with safe_open(str(file), framework="np") as opened:
            metadata = opened.metadata() or {}
    except (SafetensorError, OSError, ValueError):
        return None
    return file if metadata.get("format") == "bitfront-packed" and not file.is_symlink() else None
