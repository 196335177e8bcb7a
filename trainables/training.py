"""The one training loop every method goes through: network, plan, method and data from a spec,
an epoch at a time, resumable with identical results. Knows nothing of trials or searches."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainables import phases
from trainables.attacks import AdversarialLoss, check_attack
from trainables.binary import BinaryLayer, apply_plan, verify_binary
from trainables.data import DATASETS, Batches, Part, in_order, load_train, split
from trainables.kinds import KINDS, kind_of
from trainables.methods import build_method
from trainables.models import build_model
from trainables.plan import check_plan, plan_layers
from trainables.schedules import Schedule, Steps, fraction
from trainables.task import LearningRateSpec, OptimizerSpec, Task, TrialSpec

if TYPE_CHECKING:
    from trainables.distillation import Loss
    from trainables.pretraining import StageCache

# Enough to settle running statistics (methods.md 4.8 uses 200 batches; their error falls with the
# root of the number of examples).
RECALIBRATION_EXAMPLES = 4096
# The gap between the network as it is trained and the hard one is a diagnostic: before the end it
# is measured on this many examples.
GAP_EXAMPLES = 1024


class DivergedError(Exception):
    """The loss or a parameter is no longer a finite number."""


def search_data(task: Task) -> tuple[Part, Part]:
    """(train, validation): all a search may see. The test set is not reachable from here."""
    return _search_data(
        task.dataset,
        task.data_dir,
        task.normalize,
        task.subset,
        task.val_fraction,
        task.split_seed,
    )


# An actor trains many trials on the same data; two entries serve a change of the task in between.
@lru_cache(maxsize=2)
def _search_data(
    dataset: str,
    data_dir: str | None,
    normalize: str,
    subset: int | None,
    val_fraction: float,
    seed: int,
) -> tuple[Part, Part]:
    arrays = load_train(dataset, data_dir, normalize)
    if subset is not None and subset < len(arrays):
        arrays = arrays.take(subset, seed)
    return split(arrays, val_fraction, seed)


def memory_format(model: nn.Module) -> torch.memory_format:
    """Channels last where there are convolutions: they are a fifth faster so (traps.md). Except
    where a strided 1x1 convolution has fewer than 8 inputs: torch 2.15 writes past the end of a
    buffer in its backward pass on a CPU, and the process dies."""
    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    unsafe = any(
        m.in_channels < 8 and set(m.kernel_size) == {1} and set(m.stride) != {1} for m in convs
    )
    return torch.channels_last if convs and not unsafe else torch.preserve_format


class Network:
    """A model with its plan applied: what is trained, evaluated, packed and reloaded."""

    def __init__(self, spec: TrialSpec, device: torch.device | str = "cpu") -> None:
        info = DATASETS.get(spec.task.dataset)
        model_spec = spec.task.model
        model = build_model(model_spec.name, model_spec.params, info.shape, info.classes)
        layers = plan_layers(model, spec.task.binarize)
        self.method = build_method(spec.method, dict(spec.params))
        check_plan(spec.plan, layers, self.method.levels)
        self.binary: list[BinaryLayer] = apply_plan(model, layers, spec.plan, self.method)
        self.model = model.to(device).to(memory_format=memory_format(model))

    def verify(self) -> None:
        verify_binary(self.model, self.binary)


class Training:
    """One training run: `epoch()` until `done`; `state_dict()` after any epoch continues it.

    A task that begins with pretraining gets its first weights when the first epoch begins, from
    `stages`, where all trials share them; without one the stage is trained here and not kept.
    """

    def __init__(
        self,
        spec: TrialSpec,
        train: Part,
        validation: Part,
        device: torch.device | str = "cpu",
        validate_each_epoch: bool = True,
        stages: StageCache | None = None,
    ) -> None:
        self.spec = spec
        self.validate_each_epoch = validate_each_epoch
        self.stages = stages
        self.device = torch.device(device)
        check_attack(spec)
        torch.manual_seed(spec.seed)
        self.network = Network(spec, self.device)
        self.model, self.method = self.network.model, self.network.method
        layout = memory_format(self.model)
        self.train = train.laid_out(layout).to(self.device)
        self.validation = validation.laid_out(layout).to(self.device)
        task = spec.task
        self.kind = kind_of(task.dataset)
        augmentation: str = task.augmentation
        if augmentation == "default":
            augmentation = DATASETS.get(task.dataset).augmentation
        visits = spec.adversary == "fgsm-atta"
        self.batches = Batches(self.train, task.batch_size, spec.seed, augmentation, visits=visits)
        self.phases = phases.check(self.method.phases(task.epochs), task.epochs)
        self._prepare_phase(0)
        self.learning_rate = LearningRate(task.optimizer.lr, task.schedule)
        self.epochs_done = 0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] = {}

    @property
    def done(self) -> bool:
        return self.epochs_done >= self.spec.task.epochs

    @cached_property
    def loss(self) -> Loss:
        """Made when it is first needed: a teacher may have to be trained before."""
        from trainables.distillation import make_loss

        return make_loss(self)

    def epoch(self) -> dict[str, float]:
        """Train one epoch, evaluate with hard-binarized weights, return the metrics."""
        started = time.perf_counter()
        index, first = phases.locate(self.phases, self.epochs_done)
        if self.epochs_done == first:
            self._begin_phase(index)
        train_loss = self._train_epoch()
        self.epochs_done += 1
        if not math.isfinite(train_loss) or not self._parameters_finite():
            raise DivergedError(f"the loss or a weight is not finite in epoch {self.epochs_done}")
        metrics = {"epoch": self.epochs_done, "train_loss": train_loss}
        if isinstance(self.loss, AdversarialLoss):
            metrics |= self.loss.take_metrics()
        if self.done or self.validate_each_epoch:
            metrics |= self._validate()
            metrics |= self._robustness()
            metrics |= self.method.diagnose()
        if not math.isfinite(metrics.get("val_loss", 0.0)):
            raise DivergedError(f"the validation loss is not finite in epoch {self.epochs_done}")
        metrics["seconds"] = time.perf_counter() - started
        self.history.append(metrics)
        self._keep_best(index, metrics)
        self.method.after_epoch(self.history)
        return metrics

    def _begin_phase(self, index: int) -> None:
        """The weights a phase starts from, then what the method and the optimizer make of them."""
        if index == 0:
            from trainables.pretraining import load_starting_weights

            if load_starting_weights(self):
                self.method.enter(self.phases[0])
            return
        if self.best:
            self.model.load_state_dict(self.best["model"])
            self.best = {}
        self._prepare_phase(index)

    def _prepare_phase(self, index: int) -> None:
        self.method.enter(self.phases[index])
        self.optimizer = make_optimizer(self.model, self.spec.task.optimizer)

    def _keep_best(self, index: int, metrics: dict[str, float]) -> None:
        """The best weights of a phase, where the next one begins with them. Final training has no
        validation set to choose by; its next phase begins with the last weights."""
        wanted = index + 1 < len(self.phases) and self.phases[index + 1].best
        if not wanted or not self.validate_each_epoch:
            return
        quality = self.kind.quality
        reached = metrics[quality.name]
        if not self.best or quality.better(reached, self.best["quality"]):
            model = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.best = {"quality": reached, "model": model}

    def _train_epoch(self) -> float:
        task, model = self.spec.task, self.model
        model.train()
        index, first = phases.locate(self.phases, min(self.epochs_done, task.epochs - 1))
        phase = self.phases[index]
        steps = phase.epochs * len(self.batches)
        step = (self.epochs_done - first) * len(self.batches)
        total = torch.zeros((), device=self.device)
        loss_of = self.loss
        self.method.before_epoch()
        for x, y in self.batches:
            passed = fraction(step, steps)
            rate = phase.rate * self.learning_rate.at(passed)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.method.learning_rate = rate
            self.method.before_step(passed)
            with torch.autocast(self.device.type, torch.bfloat16, task.precision == "bf16"):
                loss = loss_of(model, x, y)
            penalty = self.method.penalty()
            if penalty is not None:
                loss = loss + penalty
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.method.after_backward()
            self.optimizer.step()
            self.method.after_step()
            total += loss.detach()
            step += 1
        return float(total) / max(1, len(self.batches))

    def _validate(self) -> dict[str, float]:
        """Quality is always that of the hard-binarized network. Where training used softer
        weights, batch-norm statistics are re-estimated for the hard ones first, and both that
        number and the one without are reported at the end (methods.md 6.4)."""
        if not self.method.soft or not self.network.binary:
            return self._evaluate_hard()
        quality = self.kind.quality.name
        if self.done:
            raw = self._evaluate(self.validation)[quality]
            soft = self._quality_as_trained(self.validation)
            recalibrate(self.model, self.train, self.spec.task.batch_size)
            hard = self._evaluate_hard()
            gap = soft - hard[quality]
            return {**hard, f"{quality}_raw": raw, "acc_soft": soft, "soft_gap": gap}
        some = self.validation.first(GAP_EXAMPLES)
        soft = self._quality_as_trained(some)
        with kept_statistics(self.model):
            recalibrate(self.model, self.train, self.spec.task.batch_size)
            hard = self._evaluate_hard()
            of_some = hard
            if len(some) < len(self.validation):
                of_some = self._evaluate(some)
        return {**hard, "soft_gap": soft - of_some[quality]}

    def evaluate(self) -> dict[str, float]:
        """Every metric of the network as it is, robust accuracies included."""
        return self._evaluate_hard() | self._robustness()

    def _evaluate_hard(self) -> dict[str, float]:
        self.method.before_evaluation()
        return self._evaluate(self.validation)

    def _robustness(self) -> dict[str, float]:
        """Accuracy under the attacks the task names, of the hard-binarized network."""
        wanted = self.spec.task.attack.evaluate
        if not wanted:
            return {}
        from trainables.robustness import QUICK, robust_accuracies

        now = [name for name in wanted if self.done or name in QUICK]
        return robust_accuracies(self.model, self.validation, self.spec.task, now)

    def _quality_as_trained(self, part: Part) -> float:
        with self.method.as_trained():
            return self._evaluate(part)[self.kind.quality.name]

    def _evaluate(self, part: Part) -> dict[str, float]:
        return self.kind.evaluate(self.model, part)

    def _parameters_finite(self) -> bool:
        norms = torch._foreach_norm([p.detach() for p in self.model.parameters()])
        return bool(torch.stack(norms).isfinite().all())

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and strings only, so that it loads without unpickling code."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "batches": self.batches.state_dict(),
            "random": torch.get_rng_state(),
            "epochs_done": self.epochs_done,
            "history": self.history,
        }
        if self.best:
            state["best"] = self.best
        if self.epochs_done and isinstance(self.loss, AdversarialLoss):
            state["loss"] = self.loss.state_dict()
        if self.device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["epochs_done"]:
            index, _ = phases.locate(self.phases, state["epochs_done"] - 1)
            self._prepare_phase(index)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches.load_state_dict(state["batches"])
        if "loss" in state and isinstance(self.loss, AdversarialLoss):
            self.loss.load_state_dict(state["loss"])
        torch.set_rng_state(state["random"].cpu())
        if self.device.type == "cuda" and "random_cuda" in state:
            torch.cuda.set_rng_state(state["random_cuda"].cpu(), self.device)
        self.epochs_done = state["epochs_done"]
        self.history = list(state["history"])
        self.best = state.get("best", {})


def save_state(training: Training, path: Path) -> None:
    """Write the state so that a crash at any moment leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The process in the name: the worker of a driver that was killed may still be writing.
    part = path.with_suffix(f".{os.getpid()}.part")
    torch.save(training.state_dict(), part)
    part.replace(path)


def load_state(training: Training, path: Path) -> bool:
    """Continue from `path` if a usable state is there; a damaged one means starting over."""
    try:
        state = torch.load(path, map_location=training.device, weights_only=True)
        # Looked at before anything is copied: a state that half fits would leave a mixture.
        fits = _shapes(state["model"]) == _shapes(training.model.state_dict())
    except FileNotFoundError:
        return False
    except Exception:  # torch raises a dozen types for a truncated or foreign file
        fits = False
    if not fits:
        path.unlink(missing_ok=True)
        return False
    training.load_state_dict(state)
    return True


def _shapes(tensors: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


class LearningRate:
    """The rate as a function of the fraction of training, warm-up included."""

    def __init__(self, lr: float, spec: LearningRateSpec) -> None:
        self.warmup = spec.warmup
        self.path: Steps | Schedule
        if spec.shape == "steps":
            self.path = Steps(lr, tuple(spec.at), spec.factor)
        else:
            self.path = Schedule(lr, lr * spec.end_factor, spec.shape, begin=spec.warmup)

    def at(self, passed: float) -> float:
        ramp = min(1.0, passed / self.warmup) if self.warmup > 0 else 1.0
        # A first step at rate 0 would be wasted.
        return self.path.at(passed) * max(ramp, 1e-3)


def make_optimizer(model: nn.Module, spec: OptimizerSpec) -> torch.optim.Optimizer:
    params = [p for p in model.parameters() if p.requires_grad]
    if spec.name == "sgd":
        return torch.optim.SGD(
            params, spec.lr, spec.momentum, weight_decay=spec.weight_decay, fused=True
        )
    kind = torch.optim.Adam if spec.name == "adam" else torch.optim.AdamW
    return kind(params, spec.lr, weight_decay=spec.weight_decay, fused=True)


def evaluate(model: nn.Module, part: Part, kind: str = "classification") -> dict[str, float]:
    """The metrics of that kind of task, in evaluation mode."""
    return KINDS.get(kind).evaluate(model, part)


def _norms(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [
        m
        for m in model.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats
    ]


@torch.no_grad()
def recalibrate(model: nn.Module, part: Part, batch_size: int) -> None:
    """Batch-norm statistics anew, as plain averages over training examples, with the weights
    evaluation uses: only the norms run in training mode."""
    model.eval()
    norms = _norms(model)
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    examples = 0
    for x, y in in_order(part, batch_size):
        # A short last batch would count as much as a full one.
        if len(y) < batch_size and examples:
            break
        model(x)
        examples += len(y)
        if examples >= RECALIBRATION_EXAMPLES:
            break
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


@contextmanager
def kept_statistics(model: nn.Module) -> Iterator[None]:
    """Batch-norm statistics are as before when the block ends."""
    kept = [(norm, {k: v.clone() for k, v in norm.named_buffers()}) for norm in _norms(model)]
    try:
        yield
    finally:
        for norm, buffers in kept:
            for name, value in buffers.items():
                getattr(norm, name).copy_(value)


def device_from_resources(gpus: float) -> torch.device:
    """CUDA when a GPU was granted and torch has it, else the CPU."""
    return torch.device("cuda" if gpus > 0 and torch.cuda.is_available() else "cpu")
