"""The weights a trial starts from: those of a checkpoint, or of a full-precision pretraining that
is done once for all trials of all searches and stored under a hash of everything it depends on.

Where several workers need the same pretraining at the same time, one trains it and the others wait
for its file lock, which the system releases however that process ends. A pretraining is
checkpointed every epoch, so that another worker can continue where a killed one stopped; the
finished file is written atomically."""

from __future__ import annotations

import fcntl
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bitfront.trainables import checksums
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import DATASETS, Part, in_order
from bitfront.trainables.files import opened
from bitfront.trainables.models.building import unreal_model
from bitfront.trainables.progress import report
from bitfront.trainables.settings import PretrainSpec
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.tensor_files import write_tensors
from bitfront.trainables.training.checkpoint_files import (
    Fit,
    load_weights,
    match,
    read_checkpoint,
    weights_of,
)
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.run import Run, Start

# Written into every file, which version 0.1 reads too: its word for a pretraining.
FORMAT = "bitfront-stage"
VERSION = "1"
# The hash of the data covers the labels of all examples and all values of about this many.
HASHED_EXAMPLES = 64


# --- pretraining --------------------------------------------------------------------------------


def pretraining_spec(spec: TrialSpec) -> TrialSpec | None:
    """The spec of the full-precision training a trial begins with; None: there is none. It does not
    contain the trial's method, plan or seed, so that all trials of a search share it."""
    task, pretrain = spec.task, spec.task.pretrain
    if not pretrain.epochs:
        return None
    start = PretrainSpec(checkpoint=pretrain.checkpoint, sha256=pretrain.sha256)
    before = task.model_copy(
        update={
            **task.pretraining_settings,
            "epochs": pretrain.epochs,
            "binarize": "body",
            "keep_full": [],
            "pretrain": start,
        }
    )
    plan = "F" * len(task_cost_table(before).plan_layers)
    return TrialSpec(task=before, method="fp", plan=plan, seed=pretrain.seed)


def binary_pretraining_spec(spec: TrialSpec) -> TrialSpec | None:
    """The spec of the binary training between the full-precision pretraining and the trial; None:
    there is none (docs/methods.md 1.11, protocol 3)."""
    task, pretrain = spec.task, spec.task.pretrain
    if not pretrain.binary_epochs:
        return None
    start = pretrain.model_copy(update={"binary_epochs": 0, "binary_dataset": None})
    before = task.model_copy(
        update={
            **task.pretraining_settings,
            "epochs": pretrain.binary_epochs,
            "dataset": pretrain.binary_dataset or task.dataset,
            "pretrain": start,
        }
    )
    return spec.model_copy(update={"task": before, "seed": pretrain.seed})


def data_digest(part: Part) -> str:
    """A hash of the training examples, part of the key of a pretraining."""
    digest = hashlib.sha256(part.y.cpu().numpy().tobytes())
    step = max(1, len(part) // HASHED_EXAMPLES)
    some = part.subset(torch.arange(0, len(part), step)).to("cpu")
    for x, _ in in_order(some, HASHED_EXAMPLES):
        for tensor in x if isinstance(x, tuple) else (x,):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


class PretrainedCache:
    """Pretrained networks in a folder, one safetensors file each, named by a hash of the spec and
    the data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, spec: TrialSpec, train: Part) -> Path:
        key = [FORMAT, VERSION, spec.fingerprint(length=64), data_digest(train)]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
        return self.folder / f"{name}.safetensors"

    def weights(
        self, start: Start, spec: TrialSpec, train: Part, validation: Part, device: torch.device
    ) -> dict[str, Tensor]:
        """The weights of the network that `spec` trains, by their names in the model without a
        plan; read from the cache, else trained by a run that `start` makes, and stored."""
        path = self.path(spec, train)
        stored = _stored(path)
        if stored is not None:
            return stored
        with _locked(path.with_suffix(".lock")):
            stored = _stored(path)  # the process that held the lock may have written it
            if stored is None:
                stored = self._train(start, spec, train, validation, device, path)
        return stored

    def _train(
        self,
        start: Start,
        spec: TrialSpec,
        train: Part,
        validation: Part,
        device: torch.device,
        path: Path,
    ) -> dict[str, Tensor]:
        state = path.with_suffix(".state")
        run = pretrain(start, spec, train, validation, device, state, self)
        tensors = weights_of(run.model)
        quality = run.kind.quality
        notes = {quality.bare: run.history[-1][quality.name], "epochs": spec.task.epochs}
        metadata = {
            "format": FORMAT,
            "spec": spec.model_dump_json(),
            "notes": json.dumps(notes),
            checksums.KEY: checksums.tensors_digest(tensors),
        }
        write_tensors(tensors, path, metadata)
        state.unlink(missing_ok=True)
        return tensors


def pretrain(
    start: Start,
    spec: TrialSpec,
    train: Part,
    validation: Part,
    device: torch.device,
    state: Path | None = None,
    pretrained: PretrainedCache | None = None,
) -> Run:
    """A finished run of `spec`. Its state is kept in the file `state`, from which an interrupted
    one continues. The random generators are restored afterwards, so that a trial is the same
    whether its worker did the pretraining or read it from the cache."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        run = start(
            spec, train, validation, device, validate_each_epoch=False, pretrained=pretrained
        )
        if state is not None:
            load_state(run, state, lambda text: print(f"{state.name}: {text}", file=sys.stderr))
        while not run.done:
            report(f"pretraining, epoch {run.epochs_done + 1} of {spec.task.epochs}")
            run.epoch()
            if state is not None:
                save_state(run, state)
    return run


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened(path) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _stored(path: Path) -> dict[str, Tensor] | None:
    """The tensors of a pretraining's file; None where it is missing, of another format or damaged.
    A file of version 0.1 has no checksum to compare with."""
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
        expected = metadata.get(checksums.KEY)
        if expected is None or expected == checksums.tensors_digest(found):
            return found
    print(f"{path.name}: damaged, the pretraining is done again", file=sys.stderr)
    return None


# --- starting from weights ----------------------------------------------------------------------


def starting_weights(run: Run) -> tuple[dict[str, Tensor], str] | None:
    """(full-precision weights the task starts from, name of their source); None: there are none."""
    pretrain = run.spec.task.pretrain
    before = pretraining_spec(run.spec)
    if before is not None:
        return pretrained_weights(run, before), f"the pretraining of {pretrain.epochs} epochs"
    if pretrain.checkpoint is not None:
        return read_checkpoint(Path(pretrain.checkpoint), pretrain.sha256), pretrain.checkpoint
    return None


def load_starting_weights(run: Run) -> bool:
    """Copy the weights the task or the method starts from into the network of the run; returns
    whether there are any. Without them training is end-to-end, from random weights."""
    own = run.method.starts_from()
    if own is not None:
        before = run.spec.model_copy(update={"params": own[0], "seed": own[1]})
        load_weights(run.model, pretrained_weights(run, before), "the training before it")
        return True
    binary = binary_pretraining_spec(run.spec)
    if binary is not None:
        source = f"the binary pretraining of {binary.task.epochs} epochs"
        load_weights(run.model, pretrained_weights(run, binary), source)
        return True
    found = starting_weights(run)
    if found is not None:
        load_weights(run.model, *found)
    return found is not None


def pretrained_weights(run: Run, spec: TrialSpec) -> dict[str, Tensor]:
    """The weights that `spec` trains: from the cache of the run or, without a cache, trained now
    and not stored."""
    train, validation = run.train, run.validation
    if spec.task.dataset != run.spec.task.dataset:
        train, validation = search_data(spec.task)
    start = cast(Start, type(run))  # another run of the same class
    if run.pretrained is None:
        return weights_of(pretrain(start, spec, train, validation, run.device).model)
    return run.pretrained.weights(start, spec, train, validation, run.device)


# --- checkpoints --------------------------------------------------------------------------------


def check_checkpoint(task: Task, *others: Task) -> Fit:
    """How the tensors of the task's checkpoint match those of its network, built on the meta
    device. Raises a UserError where the file cannot be read, or where no weight matches the network
    of the task or of one of `others`."""
    pretrain = task.pretrain
    assert pretrain.checkpoint is not None
    weights = read_checkpoint(Path(pretrain.checkpoint), pretrain.sha256)
    fits = []
    for each in (task, *others):
        info = DATASETS.get(each.dataset)
        model = unreal_model(
            each.model.name,
            each.model.params,
            info.shape,
            info.classes,
            each.settled_activations,
        )
        fits.append(match(dict(model.state_dict()), weights, pretrain.checkpoint))
    return fits[0]
