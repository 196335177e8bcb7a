"""The loss of a training run: that of its kind of task, that of an attack, or for classification
one with a teacher in full precision (docs/methods.md 1.11 protocol 4, 1.15, 3.4). Any method and
model can learn from logits; the terms of similarities and hidden states are for transformers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from bitfront.trainables import packed
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.models import MODELS, build_model
from bitfront.trainables.models.building import unreal_model
from bitfront.trainables.models.surgery import attentions
from bitfront.trainables.own_code import is_reference
from bitfront.trainables.settings import DistillSpec, ModelSpec
from bitfront.trainables.structure.meta import on_meta
from bitfront.trainables.structure.passing import blank
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.text_files import MOST_YAML_BYTES, load_yaml, read_text
from bitfront.trainables.training.adversarial import adversarial_loss
from bitfront.trainables.training.checkpoint_files import (
    file_digest,
    load_weights,
    match,
    read_checkpoint,
)
from bitfront.trainables.training.network import Network, laid_out, layout_of
from bitfront.trainables.training.pretraining import pretrained_weights, starting_weights
from bitfront.trainables.training.run import Run

# (network, examples, labels) -> loss.
Loss = Callable[[nn.Module, Any, Tensor], Tensor]
# Of Q in every attention, and of every hidden state.
Shapes = list[list[tuple[int, ...]]]


# --- the terms ----------------------------------------------------------------------------------


def soft_cross_entropy(logits: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """-tau^2 sum_k p_T(k) log p_S(k), mean over the batch, with the teacher's p_T and the student's
    p_S, p = softmax(logits / tau), at the temperature tau (docs/methods.md 3.4, where tau = 1). The
    factor tau^2 makes the size of the gradient independent of tau."""
    p = (teacher / temperature).softmax(1)
    return -(p * (logits / temperature).log_softmax(1)).sum(1).mean() * temperature**2


def distance(s: Tensor, t: Tensor) -> Tensor:
    """l(S, T) = || S/||S||_F - T/||T||_F ||_F with norms over the whole batch (BiBERT, Qin et al.,
    ICLR 2022; docs/methods.md 1.11)."""
    norm: Tensor = (s / s.norm().clamp_min(1e-12) - t / t.norm().clamp_min(1e-12)).norm()
    return norm


def similarity(x: Tensor) -> Tensor:
    """P_X = X X' / sqrt(d_head) per head, for X of shape (batch, heads, tokens, d_head) (BiBERT,
    Qin et al., ICLR 2022; docs/methods.md 1.11)."""
    return x @ x.transpose(-2, -1) / math.sqrt(x.shape[-1])


# --- Q, K, V and hidden states of a transformer -------------------------------------------------


@dataclass
class Shown:
    """Values of one forward pass of a transformer: (Q, K, V) of every attention, and the hidden
    states, i.e. the input of the first block and the output of every block."""

    qkv: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)

    def shapes(self) -> Shapes:
        return [[tuple(q.shape) for q, _, _ in self.qkv], [tuple(h.shape) for h in self.hidden]]


@contextmanager
def watched(model: nn.Module) -> Iterator[Shown]:
    """Inside, forward passes of `model` are recorded in the `Shown` that is yielded."""
    shown = Shown()
    handles = []
    first = True
    for name, module in attentions(model).items():
        heads = int(module.num_heads)  # type: ignore[arg-type]
        block = model.get_submodule(name.rpartition(".")[0])
        handles.append(module.qkv.register_forward_hook(_keep_qkv(shown, heads)))  # type: ignore[union-attr]
        if first:
            handles.append(block.register_forward_pre_hook(_keep_input(shown)))
            first = False
        handles.append(block.register_forward_hook(_keep_output(shown)))
    try:
        yield shown
    finally:
        for handle in handles:
            handle.remove()


def _keep_qkv(shown: Shown, heads: int) -> Any:
    def hook(_module: nn.Module, _args: Any, out: Tensor) -> None:
        rows = out.flatten(0, -3)  # windows of one image may have a dimension of their own
        parts = rows.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        shown.qkv.append((parts[0], parts[1], parts[2]))

    return hook


def _keep_input(shown: Shown) -> Any:
    def hook(_module: nn.Module, args: Any) -> None:
        shown.hidden.append(args[0])

    return hook


def _keep_output(shown: Shown) -> Any:
    def hook(_module: nn.Module, _args: Any, out: Tensor) -> None:
        shown.hidden.append(out)

    return hook


# --- the loss -----------------------------------------------------------------------------------


@dataclass
class Distillation:
    """The loss of learning from a teacher (BiBERT, docs/methods.md 1.11), with the distance l:

    soft CE(p_T, p_S) + hard CE(labels, p_S)
        + similarity sum over attentions and X in {Q, K, V} of l(P_X of the student, of the teacher)
        + hidden sum over hidden states H of l(H of the student, of the teacher)

    soft, hard, similarity and hidden are weights of the spec; the last two lines are left out
    unless its kind is `bibert`."""

    spec: DistillSpec
    teacher: nn.Module
    label_smoothing: float = 0.0

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        spec = self.spec
        if spec.kind != "bibert":
            with torch.no_grad():
                theirs = self.teacher(x)
            return self._targets(model(x), theirs, y)
        with watched(self.teacher) as target, torch.no_grad():
            theirs = self.teacher(x)
        with watched(model) as shown:
            logits = model(x)
        loss = self._targets(logits, theirs, y)
        if spec.similarity:
            pairs = zip(shown.qkv, target.qkv, strict=True)
            terms = [
                distance(similarity(s), similarity(t))
                for ours, teachers in pairs
                for s, t in zip(ours, teachers, strict=True)
            ]
            loss = loss + spec.similarity * torch.stack(terms).sum()
        if spec.hidden:
            states = zip(shown.hidden, target.hidden, strict=True)
            loss = loss + spec.hidden * torch.stack([distance(s, t) for s, t in states]).sum()
        return loss

    def _targets(self, logits: Tensor, theirs: Tensor, y: Tensor) -> Tensor:
        spec = self.spec
        loss = spec.soft * soft_cross_entropy(logits, theirs, spec.temperature)
        if spec.hard_weight:
            hard = F.cross_entropy(logits, y, label_smoothing=self.label_smoothing)
            loss = loss + spec.hard_weight * hard
        return loss


def make_loss(run: Run, teacher: nn.Module | None = None) -> Loss:
    """The loss of the run's task. Loading a teacher restores the random generators, so that a
    resumed run, which loads it again, continues exactly as the uninterrupted one."""
    kind, task = run.kind, run.spec.task
    spec = task.loss
    if run.spec.adversary != "none":
        return adversarial_loss(run)
    if spec.distill.kind == "none":
        return lambda model, x, y: kind.loss(model(x), y, task)
    devices = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        found = load_teacher(run) if teacher is None else teacher
    found = laid_out(found.to(run.device), layout_of(task.model.name, found))
    return Distillation(spec.distill, found.eval().requires_grad_(False), spec.label_smoothing)


# --- the teacher --------------------------------------------------------------------------------


def load_teacher(run: Run) -> nn.Module:
    """The teacher of a training run; a pretraining or a recipe that has no file yet is trained
    first."""
    task = run.spec.task
    distill = task.loss.distill
    if distill.teacher_file is None:
        found = starting_weights(run)
        if found is None:
            raise UserError(_NO_PRETRAINING)
        return _with_weights(task, *found)
    path = Path(distill.teacher_file)
    if distill.sha256 is not None and file_digest(path) != distill.sha256:
        raise UserError(
            f"{path}: another file than the one this was set up with (its sha256 differs)"
        )
    if _is_recipe(path):
        spec = read_recipe(path)
        network = Network(spec)
        load_weights(network.model, pretrained_weights(run, spec), str(path))
        return network.model
    if _is_packed(path):
        return packed.load(path)[0]
    return _with_weights(task, read_checkpoint(path), str(path))


_NO_PRETRAINING = (
    "loss.distill.teacher: there is no full-precision pretraining to learn from: give "
    "task.pretrain, or a file as the teacher"
)


def full_precision_model(task: Task, names: Any) -> nn.Module:
    """The task's model in full precision, with the added attention norms only where `names`, those
    of a checkpoint's tensors, contain them."""
    params = dict(task.model.params)
    ours = not is_reference(task.model.name)
    if ours and "attention_norm" in MODELS.get(task.model.name).params:
        params["attention_norm"] = any(".added_norm." in name for name in names)
    info = DATASETS.get(task.dataset)
    return build_model(task.model.name, params, info.shape, info.classes)


def _with_weights(task: Task, weights: dict[str, Tensor], source: str) -> nn.Module:
    model = full_precision_model(task, weights)
    fit = load_weights(model, weights, source)
    if fit.missing or fit.other_shape:
        raise UserError(f"loss.distill.teacher: part of the teacher would be random\n{fit.text()}")
    return model


def _is_recipe(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml")


def _is_packed(path: Path) -> bool:
    return path.suffix == ".safetensors" and packed.is_packed(path)


def read_recipe(path: Path) -> TrialSpec:
    """The spec of a recipe, with the epochs of its final training."""
    try:
        content, _ = load_yaml(read_text(path, MOST_YAML_BYTES), str(path))
        spec = TrialSpec.model_validate(content["spec"])
        epochs = int(content["final"]["epochs"])
    except (ValidationError, KeyError, TypeError, ValueError, OverflowError):
        raise UserError(f"{path}: not a recipe") from None
    return spec.model_copy(update={"task": spec.task.model_copy(update={"epochs": epochs})})


# --- before anything starts ---------------------------------------------------------------------


def check_teacher(task: Task) -> None:
    """Raise a UserError where the task could not learn from its teacher. Nothing is trained for
    this check; networks are built on the meta device."""
    distill = task.loss.distill
    if distill.kind == "none":
        return
    kind = DATASETS.get(task.dataset).kind
    if kind != "classification":
        raise UserError(f"loss.distill: a teacher is for classification, {task.dataset} is {kind}")
    teacher = None if _same_network(task) else _teacher_on_meta(task)
    if distill.kind != "bibert":
        return
    ours = _students_shapes(task)
    theirs = ours if teacher is None else _shown_shapes(teacher, task)
    if not ours[0]:
        raise UserError(
            f"loss.distill.kind: bibert is for transformers, {task.model.name} has no attention",
            "logits is for any network",
        )
    for weight, part, what in (
        (distill.similarity, 0, "heads and tokens"),
        (distill.hidden, 1, "blocks and widths"),
    ):
        # Similarities do not depend on the width of Q, K and V, which may differ.
        cut = slice(None, 3) if part == 0 else slice(None)
        if weight and [s[cut] for s in ours[part]] != [s[cut] for s in theirs[part]]:
            raise UserError(
                f"loss.distill.teacher: its {what} are not those of {task.model.name}",
                "with similarity: 0 and hidden: 0 any teacher of the same classes will do",
            )


def _build(task: Task) -> nn.Module:
    info = DATASETS.get(task.dataset)
    return unreal_model(task.model.name, task.model.params, info.shape, info.classes)


def _same_network(task: Task) -> bool:
    """Whether the teacher is the network of the task itself, in full precision."""
    return task.loss.distill.teacher_file is None and task.pretrain.epochs > 0


def _teacher_on_meta(task: Task) -> nn.Module:
    """The teacher on the meta device, its file read and matched."""
    distill = task.loss.distill
    if distill.teacher_file is None:
        if task.pretrain.checkpoint is None:
            raise UserError(_NO_PRETRAINING)
        path = Path(task.pretrain.checkpoint)
    else:
        path = Path(distill.teacher_file)
    if _is_recipe(path) or _is_packed(path):
        spec = read_recipe(path) if _is_recipe(path) else packed.describe(path)
        _same_data(task, spec.task, path)
        return _build(spec.task)
    weights = read_checkpoint(path)
    if is_reference(task.model.name):
        model = _build(task)
    else:
        with on_meta():
            model = full_precision_model(task, weights)
    fit = match(dict(model.state_dict()), weights, str(path))
    if fit.missing or fit.other_shape:
        raise UserError(f"loss.distill.teacher: part of the teacher would be random\n{fit.text()}")
    return model


def _same_data(task: Task, theirs: Task, path: Path) -> None:
    ours = (task.dataset, task.normalize)
    if (theirs.dataset, theirs.normalize) != ours:
        raise UserError(
            f"loss.distill.teacher: {path} was trained on {theirs.dataset} (normalize: "
            f"{theirs.normalize}), this task is {ours[0]} (normalize: {ours[1]})"
        )


def _students_shapes(task: Task) -> Shapes:
    if is_reference(task.model.name):  # its code may change
        return _shown_shapes(_build(task), task)
    return _known_shapes(task.model.name, json.dumps(task.model.params), task.dataset)


@lru_cache(maxsize=64)
def _known_shapes(name: str, params: str, dataset: str) -> Shapes:
    model = ModelSpec(name=name, **json.loads(params))
    task = Task(dataset=dataset, model=model)
    return _shown_shapes(_build(task), task)


def _shown_shapes(model: nn.Module, task: Task) -> Shapes:
    info = DATASETS.get(task.dataset)
    with watched(model) as shown, torch.no_grad():
        model.eval()(blank(1, info.shape, model, info.integers))
    return shown.shapes()
