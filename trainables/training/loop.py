"""The training loop of all methods: builds network, plan, method and data from a spec, trains one
epoch at a time, and can be resumed with identical results. It knows nothing of searches. Metrics
are in `evaluation`, starting weights in `pretraining`, losses in `distillation`."""

from __future__ import annotations

import math
import time
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bitfront.trainables.attacks import TRAINING_ATTACKS, AdversarialLoss
from bitfront.trainables.data import DATASETS, Batches, Part, TaskRow
from bitfront.trainables.layers.verify import NotBinaryError
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.tasks import kind_for
from bitfront.trainables.training.adversarial import check_attack
from bitfront.trainables.training.distillation import Loss, make_loss
from bitfront.trainables.training.evaluation import (
    deciding_metric,
    evaluate_as_is,
    measure,
    quality_in_training,
)
from bitfront.trainables.training.inheriting import load_inherited
from bitfront.trainables.training.network import Network
from bitfront.trainables.training.norms import running_norms, start_shifts
from bitfront.trainables.training.peers import Peers
from bitfront.trainables.training.pretraining import PretrainedCache, load_starting_weights
from bitfront.trainables.training.schedules import phases
from bitfront.trainables.training.schedules.rates import LearningRate, make_optimizer
from bitfront.trainables.training.schedules.values import fraction

# BayesBiNN counts each example this many times where it is augmented (docs/methods.md 2.2).
AUGMENTED = 10


class DivergedError(Exception):
    """The loss or a parameter is no longer a finite number."""


class Training:
    """One training run: call `epoch()` until `done`. A new run continues from the `state_dict()`
    after any epoch.

    A task with pretraining loads its starting weights when the first epoch begins: from the cache
    `pretrained`, which all trials share; without a cache they are trained here and not stored.
    """

    def __init__(
        self,
        spec: TrialSpec,
        train: Part,
        validation: Part,
        device: torch.device | str = "cpu",
        validate_each_epoch: bool = True,
        pretrained: PretrainedCache | None = None,
        peers: Peers | None = None,
    ) -> None:
        """`peers`: the workers that share every batch, this one included; the first one
        evaluates."""
        self.spec = spec
        self.peers = peers
        self.validate_each_epoch = validate_each_epoch
        self.pretrained = pretrained
        self.inherited: dict[str, Tensor] | None = None
        self.device = torch.device(device)
        check_attack(spec)
        torch.manual_seed(spec.seed)
        self.network = Network(spec, self.device)
        self.model, self.method = self.network.model, self.network.method
        layout = self.network.layout
        self.train: Part = train.laid_out(layout).to(self.device)
        self.validation: Part = validation.laid_out(layout).to(self.device)
        task = spec.task
        self.kind = kind_for(task)
        augmentation: str = task.augmentation
        if augmentation == "default":
            augmentation = DATASETS.get(task.dataset).augmentation
        visits = spec.adversary != "none" and TRAINING_ATTACKS.get(spec.adversary).visits
        share = (0, 1) if peers is None else (peers.rank, peers.count)
        self.batches = Batches(
            self.train, task.batch_size, spec.seed, augmentation, visits=visits, share=share
        )
        tasks = DATASETS.get(task.dataset).tasks
        shared_out = phases.for_each_task(self.method.phases, task.epochs, tasks)
        self.phases = phases.check(shared_out, task.epochs)
        self._tasks = (self.train, self.validation) if tasks > 1 else None
        self.method.examples = len(self.train) * (1 if augmentation == "none" else AUGMENTED)
        self._prepare_phase(0)
        self.epochs_done = 0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] = {}

    @property
    def _evaluates(self) -> bool:
        return self.peers is None or self.peers.rank == 0

    @property
    def done(self) -> bool:
        return self.epochs_done >= self.spec.task.epochs

    @cached_property
    def loss(self) -> Loss:
        """The loss, made at first use, since a teacher may have to be trained for it."""
        return make_loss(self)

    def epoch(self) -> dict[str, float]:
        """Train one epoch, evaluate with hard-binarized weights, return the metrics."""
        started, busy = time.perf_counter(), time.process_time()
        index, first = phases.locate(self.phases, self.epochs_done)
        if self.epochs_done == first:
            self._begin_phase(index)
        train_loss = self._train_epoch()
        if self.peers is not None:
            self.peers.average_statistics(running_norms(self.model))
            self.peers.check_same(self.model)
        self.epochs_done += 1
        if not math.isfinite(train_loss) or not self._parameters_finite():
            raise DivergedError(f"the loss or a weight is not finite in epoch {self.epochs_done}")
        metrics = {"epoch": self.epochs_done, "train_loss": train_loss}
        if isinstance(self.loss, AdversarialLoss):
            metrics |= self.loss.take_metrics()
        if self.done or self.validate_each_epoch:
            metrics |= self._measured()
        self._keep_best(index, metrics)
        if self.done:
            metrics |= self._end_with_best()
        if not math.isfinite(metrics.get("val_loss", 0.0)):
            raise DivergedError(f"the validation loss is not finite in epoch {self.epochs_done}")
        metrics["seconds"] = time.perf_counter() - started
        # What an epoch takes on a machine that is busy with other work says nothing.
        metrics["cpu_seconds"] = time.process_time() - busy
        self.history.append(metrics)
        self.method.after_epoch(self.history)
        return metrics

    def _measured(self) -> dict[str, float]:
        """Every metric of the epoch; {} on a worker that does not evaluate. Workers that share
        batches keep the same random numbers, whoever evaluates."""
        if self.peers is None:
            return measure(self)
        if not self._evaluates:
            return {}
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            return measure(self)

    def _begin_phase(self, index: int) -> None:
        """Load the weights that a phase starts from, make its optimizers and call the method's
        `enter`."""
        if index == 0:
            loaded = load_inherited(self) or load_starting_weights(self)
            if not self.spec.task.pretrain.binary_epochs:  # which has trained the shifts
                start_shifts(self.model, self.train)
            if loaded:
                self.method.enter(self.phases[0])
            return
        if self.phases[index].continues:
            self.method.enter(self.phases[index])
            return
        if self.best:
            self.model.load_state_dict(self.best["model"])
            self.best = {}
        self._prepare_phase(index)

    def _prepare_phase(self, index: int) -> None:
        """Enter a phase and make its optimizers. A phase that continues earlier ones has the
        optimizers of the first of them: that one is entered, the optimizers are made, and the
        others are entered in order."""
        first, _ = phases.run_of(self.phases, index)
        self._take_task(self.phases[index].task)
        self.method.enter(self.phases[first])
        self.optimizers = self._make_optimizers()
        for phase in self.phases[first + 1 : index + 1]:
            self.method.enter(phase)

    def _take_task(self, task: int) -> None:
        """In continual learning: train on this task, validate on all tasks up to it."""
        if self._tasks is not None:
            train, validation = self._tasks
            assert isinstance(train, TaskRow)
            assert isinstance(validation, TaskRow)
            self.train = self.batches.part = train.of_task(task)
            self.validation = validation.up_to(task)

    def _make_optimizers(self) -> list[tuple[torch.optim.Optimizer, LearningRate]]:
        """The task's optimizer and, where the method has one, that of its latents, each with its
        learning rate."""
        task = self.spec.task
        own = self.method.own_optimizer()
        taken = {id(p) for group in own.param_groups for p in group["params"]} if own else set()
        params = [p for p in self.model.parameters() if p.requires_grad and id(p) not in taken]
        made = []
        if params:
            rate = LearningRate(task.optimizer.lr, task.schedule)
            made.append((make_optimizer(params, task.optimizer), rate))
        if own is not None:
            lr = float(self.method.values.get("lr", 1.0))
            made.append((own, LearningRate(lr, self.method.rate_path(task.schedule))))
        return made

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the task, or that of the method where it has all parameters."""
        return self.optimizers[0][0]

    def _keep_best(self, index: int, metrics: dict[str, float]) -> None:
        """Store the weights if they are the best of the phase and the next phase begins, or
        training ends, with the best. A run that is not validated ends with the last weights."""
        last = index + 1 == len(self.phases)
        wanted = self.spec.task.keep == "best" if last else self.phases[index + 1].best
        if not wanted or not self.validate_each_epoch:
            return
        reached = self._reached(index, metrics)
        better = not self.best or self.kind.quality.better(reached, self.best["quality"])
        if better and (not last or self._as_promised()):
            model = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.best = {"quality": reached, "model": model, "epoch": self.epochs_done}

    def _reached(self, index: int, metrics: dict[str, float]) -> float:
        """The quality that decides which epoch is the best one, the same on all workers."""
        reached = 0.0
        if self._evaluates:
            reached = metrics[deciding_metric(self)]
            if self.phases[index].real:
                reached = metrics.get("acc_soft", reached)
        if self.peers is None:
            return reached
        of_all = torch.tensor(reached, dtype=torch.float64, device=self.device)
        return float(self.peers.mean(of_all)) * self.peers.count

    def _as_promised(self) -> bool:
        """Whether the weights are those that the plan promises; a pruned network may have too many
        until a later epoch."""
        try:
            self.network.verify()
        except NotBinaryError:
            return False
        return True

    def _end_with_best(self) -> dict[str, float]:
        """Load the stored best weights, if any, and return their metrics. The optimizer keeps its
        state."""
        if not self.best:
            return {}
        kept, self.best = self.best, {}
        if kept["epoch"] == self.epochs_done:
            return {"best_epoch": self.epochs_done}
        self.model.load_state_dict(kept["model"])
        return {**self._measured(), "best_epoch": kept["epoch"]}

    def _train_epoch(self) -> float:
        self.model.train()
        phase, step, steps = self._place_in_run()
        total = torch.zeros((), device=self.device)
        loss_of = self.loss
        self.method.before_epoch()
        for x, y in self.batches:
            passed = fraction(step, steps)
            for optimizer, rate in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = phase.rate * rate.at(passed)
            self.method.learning_rate = self.optimizer.param_groups[0]["lr"]
            self.method.before_step(passed)
            total += self._gradients(loss_of, x, y)
            self.method.after_backward()
            for optimizer, _ in self.optimizers:
                optimizer.step()
            self.method.after_step()
            step += 1
        return float(total) / max(1, len(self.batches))

    def _place_in_run(self) -> tuple[phases.Phase, int, int]:
        """(phase of the next epoch, next step, all steps), with steps counted over the phases that
        share a run of the schedules."""
        index, first = phases.locate(self.phases, min(self.epochs_done, self.spec.task.epochs - 1))
        start, epochs = phases.run_of(self.phases, index)
        first -= sum(phase.epochs for phase in self.phases[start:index])
        step = (self.epochs_done - first) * len(self.batches)
        return self.phases[index], step, epochs * len(self.batches)

    def _gradients(self, loss_of: Loss, x: Any, y: Tensor) -> Tensor:
        """Compute the gradients of the mean loss over the method's draws; returns that loss."""
        for optimizer, _ in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        draws = self.method.draws
        total = torch.zeros((), device=self.device)
        for _ in range(draws):
            with torch.autocast(
                self.device.type, torch.bfloat16, self.spec.task.precision == "bf16"
            ):
                loss = loss_of(self.model, x, y)
            penalty = self.method.penalty()
            if penalty is not None:
                loss = loss + penalty
            if draws > 1:
                loss = loss / draws
            # Where every weight is frozen, only batch-norm statistics change.
            if loss.requires_grad:
                loss.backward()
            total += loss.detach()
        if self.peers is not None:
            self.peers.average_gradients(self._trained())
            return self.peers.mean(total)
        return total

    def _trained(self) -> list[Tensor]:
        """All tensors that may have a gradient: a method's latents need not be parameters of the
        model."""
        of_optimizers = (p for o, _ in self.optimizers for g in o.param_groups for p in g["params"])
        return list({id(p): p for p in (*self.model.parameters(), *of_optimizers)}.values())

    def evaluate(self) -> dict[str, float]:
        """Every metric of the present network, robust accuracies and the mean over draws
        included."""
        return evaluate_as_is(self)

    def test(self, part: Part, spec: TrialSpec) -> dict[str, float]:
        """Every metric of the present network on a part that is neither training nor validation
        part, attacked as `spec` says."""
        kept = self.spec, self.validation
        part = part.laid_out(self.network.layout).to(self.device)
        if isinstance(part, TaskRow):
            part = part.up_to(self.phases[-1].task)
        self.spec, self.validation = spec, part
        try:
            return evaluate_as_is(self)
        finally:
            self.spec, self.validation = kept

    def quality_in_training(self) -> float | None:
        """The accuracy with the weights of training on some training examples, or None."""
        return quality_in_training(self)

    def _parameters_finite(self) -> bool:
        # The maximum norm, since a sum of squares may overflow where every weight is finite.
        norms = torch._foreach_norm([p.detach() for p in self.model.parameters()], math.inf)
        return bool(torch.stack(norms).isfinite().all())

    def state_dict(self) -> dict[str, Any]:
        """The state after the last epoch: tensors, numbers and strings only, so that it loads
        without unpickling code."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self.optimizers],
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
        for (optimizer, _), kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.batches.load_state_dict(state["batches"])
        if "loss" in state and isinstance(self.loss, AdversarialLoss):
            self.loss.load_state_dict(state["loss"])
        torch.set_rng_state(state["random"].cpu())
        if self.device.type == "cuda" and "random_cuda" in state:
            torch.cuda.set_rng_state(state["random_cuda"].cpu(), self.device)
        self.epochs_done = state["epochs_done"]
        self.history = list(state["history"])
        self.best = state.get("best", {})
