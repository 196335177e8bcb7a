"""Where a trial's first weights come from: a checkpoint, or a full-precision stage that is trained
once and kept under a hash of everything that makes it, for all trials of all searches.

Workers that want the same stage at the same time: one trains, the others wait for its file lock,
which goes with the process however that ends. The stage is checkpointed every epoch, so that the
next one takes over where a killed one was; the finished file appears whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bitfront.trainables import checksums
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import DATASETS, Part, in_order
from bitfront.trainables.files import opened
from bitfront.trainables.models import build_model
from bitfront.trainables.task import PretrainSpec, Task, TrialSpec
from bitfront.trainables.telling import tell
from bitfront.trainables.tensor_files import write_tensors
from bitfront.trainables.training.checkpoint_files import (
    Fit,
    load_weights,
    match,
    read_checkpoint,
    weights_of,
)
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data

FORMAT = "bitfront-stage"
VERSION = "1"
# Examples of which the data's hash sees every value; of the rest it sees the label.
HASHED_EXAMPLES = 64


# --- a stage ------------------------------------------------------------------------------------


def stage_spec(spec: TrialSpec) -> TrialSpec | None:
    """The full-precision training a trial begins with, if any. Nothing of the trial's method,
    plan or seed is in it, so that all trials of a search share it."""
    task, pretrain = spec.task, spec.task.pretrain
    if not pretrain.epochs:
        return None
    start = PretrainSpec(checkpoint=pretrain.checkpoint, sha256=pretrain.sha256)
    stage = task.model_copy(
        update={
            **task.stage_settings,
            "epochs": pretrain.epochs,
            "binarize": "body",
            "pretrain": start,
        }
    )
    plan = "F" * len(task_cost_table(stage).plan_layers)
    return TrialSpec(task=stage, method="fp", plan=plan, seed=pretrain.seed)


def binary_stage_spec(spec: TrialSpec) -> TrialSpec | None:
    """The binary training that comes between the full-precision stage and the trial, if any
    (methods.md 1.11, protocol 3)."""
    task, pretrain = spec.task, spec.task.pretrain
    if not pretrain.binary_epochs:
        return None
    start = pretrain.model_copy(update={"binary_epochs": 0, "binary_dataset": None})
    stage = task.model_copy(
        update={
            **task.stage_settings,
            "epochs": pretrain.binary_epochs,
            "dataset": pretrain.binary_dataset or task.dataset,
            "pretrain": start,
        }
    )
    return spec.model_copy(update={"task": stage, "seed": pretrain.seed})


def data_digest(part: Part) -> str:
    """A hash of the training examples: a stage that saw others is another stage."""
    digest = hashlib.sha256(part.y.cpu().numpy().tobytes())
    step = max(1, len(part) // HASHED_EXAMPLES)
    some = part.subset(torch.arange(0, len(part), step)).to("cpu")
    for x, _ in in_order(some, HASHED_EXAMPLES):
        for tensor in x if isinstance(x, tuple) else (x,):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


class StageCache:
    """Trained networks in a folder, a safetensors file each, found by what makes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, spec: TrialSpec, train: Part) -> Path:
        key = [FORMAT, VERSION, spec.fingerprint(length=64), data_digest(train)]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
        return self.folder / f"{name}.safetensors"

    def weights(
        self, spec: TrialSpec, train: Part, validation: Part, device: torch.device
    ) -> dict[str, Tensor]:
        """The network `spec` trains, under the names of the model without a plan; trained now if
        nobody has."""
        path = self.path(spec, train)
        stored = _stored(path)
        if stored is not None:
            return stored
        with _locked(path.with_suffix(".lock")):
            stored = _stored(path)  # whoever held the lock may have finished it
            if stored is None:
                stored = self._train(spec, train, validation, device, path)
        return stored

    def _train(
        self,
        spec: TrialSpec,
        train: Part,
        validation: Part,
        device: torch.device,
        path: Path,
    ) -> dict[str, Tensor]:
        state = path.with_suffix(".state")
        training = train_stage(spec, train, validation, device, state, self)
        tensors = weights_of(training.model)
        quality = training.kind.quality
        notes = {quality.bare: training.history[-1][quality.name], "epochs": spec.task.epochs}
        metadata = {
            "format": FORMAT,
            "spec": spec.model_dump_json(),
            "notes": json.dumps(notes),
            checksums.KEY: checksums.tensors_digest(tensors),
        }
        write_tensors(tensors, path, metadata)
        state.unlink(missing_ok=True)
        return tensors


def train_stage(
    spec: TrialSpec,
    train: Part,
    validation: Part,
    device: torch.device,
    state: Path | None = None,
    stages: StageCache | None = None,
) -> Training:
    """Train `spec` to its end, from `state` if somebody was interrupted there. The random
    generators are as before afterwards, so that a trial does not know whether it was the one
    that trained the stage."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        training = Training(
            spec, train, validation, device, validate_each_epoch=False, stages=stages
        )
        if state is not None:
            load_state(
                training, state, lambda text: print(f"{state.name}: {text}", file=sys.stderr)
            )
        while not training.done:
            tell(f"pretraining, epoch {training.epochs_done + 1} of {spec.task.epochs}")
            training.epoch()
            if state is not None:
                save_state(training, state)
    return training


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened(path) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _stored(path: Path) -> dict[str, Tensor] | None:
    """What the file holds; None for one that is not there, foreign or damaged. One of version 0.1
    has no checksum to tell."""
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                return None
            found: dict[str, Tensor] | None
            found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        return None
    except (SafetensorError, OSError, ValueError):
        found = None
    if found is not None:
        told = metadata.get(checksums.KEY)
        if told is None or told == checksums.tensors_digest(found):
            return found
    print(f"{path.name}: damaged, the stage is trained again", file=sys.stderr)
    return None


# --- starting from weights ----------------------------------------------------------------------


def starting_weights(training: Training) -> tuple[dict[str, Tensor], str] | None:
    """(full-precision weights the task starts from, where they are from); None: there are none."""
    pretrain = training.spec.task.pretrain
    stage = stage_spec(training.spec)
    if stage is not None:
        return trained_stage(training, stage), f"the stage of {pretrain.epochs} epochs"
    if pretrain.checkpoint is not None:
        return read_checkpoint(Path(pretrain.checkpoint), pretrain.sha256), pretrain.checkpoint
    return None


def load_starting_weights(training: Training) -> bool:
    """Put what the task starts from into a network about to be trained. False: it is trained
    end-to-end, from the random weights it has."""
    binary = binary_stage_spec(training.spec)
    if binary is not None:
        source = f"the binary stage of {binary.task.epochs} epochs"
        load_weights(training.model, trained_stage(training, binary), source)
        return True
    found = starting_weights(training)
    if found is not None:
        load_weights(training.model, *found)
    return found is not None


def trained_stage(training: Training, stage: TrialSpec) -> dict[str, Tensor]:
    """The weights of a stage, from the shared ones if there are such."""
    train, validation = training.train, training.validation
    if stage.task.dataset != training.spec.task.dataset:
        train, validation = search_data(stage.task)
    if training.stages is None:
        return weights_of(train_stage(stage, train, validation, training.device).model)
    return training.stages.weights(stage, train, validation, training.device)


# --- checkpoints --------------------------------------------------------------------------------


def check_checkpoint(task: Task, *others: Task) -> Fit:
    """How the task's checkpoint fits its network (and those of `others`), without building one in
    memory; an error when it cannot be read or nothing fits."""
    pretrain = task.pretrain
    assert pretrain.checkpoint is not None
    weights = read_checkpoint(Path(pretrain.checkpoint), pretrain.sha256)
    fits = []
    for each in (task, *others):
        info = DATASETS.get(each.dataset)
        with torch.device("meta"):
            model = build_model(each.model.name, each.model.params, info.shape, info.classes)
        fits.append(match(dict(model.state_dict()), weights, pretrain.checkpoint))
    return fits[0]
