"""The data and networks of trained selectors: a network that is trained once, whose layers can be
switched between binary and full precision with the same latents, and the scores of MixBin
(docs/methods.md 4.2, 4.8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parametrize

from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import Part, in_order
from bitfront.trainables.parameters import Value
from bitfront.trainables.progress import report
from bitfront.trainables.selectors.base import (
    Note,
    Ranking,
    Selection,
    SelectionSpec,
    Selector,
    ascending,
    flops_saved,
)
from bitfront.trainables.settings import LossSpec
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.tasks import kind_of
from bitfront.trainables.training.checkpoint_files import load_weights, weights_of
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.network import Network, device_from_resources
from bitfront.trainables.training.norms import RECALIBRATION_EXAMPLES, kept_statistics, recalibrate
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.pretraining import PretrainedCache, pretrain

# (output, labels) -> mean loss.
MeanLoss = Callable[[Tensor, Tensor], Tensor]
Scores = Callable[["Switchable", list[int], dict[str, Value]], dict[int, float]]


def run(
    selector: Selector, spec: SelectionSpec, pretrained: Path | None, gpus: float, note: Note
) -> Selection:
    """The selection of a trained selector, with the training and time it took."""
    started = time.perf_counter()
    with torch.random.fork_rng():
        scoring = Scoring(spec, pretrained, gpus, note)
        ranking = selector.rank(scoring)
    return Selection(
        spec=spec,
        layers=[layer.name for layer in scoring.table.plan_layers],
        order=list(ranking.order),
        scores=[float(score) for score in ranking.scores],
        score=ranking.score,
        channels={name: list(scales) for name, scales in ranking.channels.items()},
        pairs=[[float(each) for each in row] for row in ranking.pairs],
        training_epochs=scoring.training_epochs,
        scored_examples=scoring.scored_examples,
        seconds=time.perf_counter() - started,
    )


class Switch(nn.Module):
    """A quantizer that can be turned off; it then returns its input. While `capturing`, its output
    is detached and kept, so that gradients with respect to it can be computed."""

    def __init__(self, quantizer: nn.Module) -> None:
        super().__init__()
        self.quantizer = quantizer
        self.binary = True
        self.captured: Tensor | None = None
        self.capturing = False

    def forward(self, x: Tensor) -> Tensor:
        if self.capturing and self.captured is not None:
            return self.captured  # layers that share a weight multiply with one tensor
        out = self.quantizer(x) if self.binary else x
        if self.capturing:
            out = self.captured = out.detach().requires_grad_()
        return out


class Switchable:
    """A network whose planned layers can each be switched between binary and full precision, with
    the same latents."""

    def __init__(self, network: Network) -> None:
        self.model = network.model
        self.layers = network.binary
        self.weights: list[Switch] = []
        self.inputs: list[list[Switch]] = []
        for layer in self.layers:
            switch = Switch(layer.quantizer)
            self.weights.append(switch)
            self.inputs.append([])
            for module in (layer.module, *layer.tied):
                chain: Any = module.parametrizations.weight  # type: ignore[union-attr]
                chain[0] = switch
                quantizer = getattr(module, "input_quantizer", None)
                if quantizer is not None:
                    module.input_quantizer = Switch(quantizer)
                    self.inputs[-1].append(module.input_quantizer)
        self.model.eval()

    def set(self, index: int, binary: bool) -> None:
        for switch in (self.weights[index], *self.inputs[index]):
            switch.binary = binary

    def flip(self, index: int) -> None:
        self.set(index, not self.weights[index].binary)

    @torch.no_grad()
    def both_weights(self, index: int) -> tuple[Tensor, Tensor]:
        """(w_used, w_other): the weight the layer multiplies with now, and after a flip."""
        latent = self.layers[index].latent.detach()
        quantizer = self.weights[index].quantizer
        binary = quantizer(latent)
        return (binary, latent) if self.weights[index].binary else (latent, binary)

    def gradients(
        self, batches: Iterable[tuple[Any, Tensor]], loss: MeanLoss = cross_entropy
    ) -> list[Tensor]:
        """dL/dw_used of every layer, for the mean loss over all batches. Input quantizers are in
        training mode, since the derivative of a plain sign is 0."""
        self.model.eval()
        for switch in (switch for switches in self.inputs for switch in switches):
            switch.train()
        for switch in self.weights:
            switch.capturing = True
        totals = [torch.zeros_like(layer.latent) for layer in self.layers]
        examples = 0
        try:
            for x, y in batches:
                for switch in self.weights:
                    switch.captured = None
                # Cached, so that a layer that is used twice multiplies with one tensor.
                with parametrize.cached():
                    summed = loss(self.model(x), y) * len(y)
                used = [switch.captured for switch in self.weights]
                for total, grad in zip(totals, torch.autograd.grad(summed, used), strict=True):  # type: ignore[arg-type]
                    total.add_(grad)
                examples += len(y)
        finally:
            for switch in self.weights:
                switch.capturing, switch.captured = False, None
            self.model.eval()
        return [total / max(1, examples) for total in totals]


class Scoring:
    """The data and networks of one selection, and counters of the training and examples it took."""

    def __init__(
        self,
        spec: SelectionSpec,
        pretrained: Path | None = None,
        gpus: float = 0.0,
        note: Note = lambda _text: None,
        data: tuple[Part, Part] | None = None,
    ) -> None:
        self.spec = spec
        self.kind = kind_of(spec.task.dataset)
        self.table = task_cost_table(spec.task)
        self.device = device_from_resources(gpus)
        self.cache = None if pretrained is None else PretrainedCache(pretrained)
        self.gpus = gpus
        self.note = note
        parts = search_data(spec.task) if data is None else data
        self.train, self.validation = (part.to(self.device) for part in parts)
        self.training_epochs = 0.0
        self.scored_examples = 0

    @property
    def layers(self) -> int:
        return len(self.table.plan_layers)

    def trial(self, plan: str, epochs: int = 0) -> TrialSpec:
        """The spec that trains a plan, for the epochs of the task unless a number is given."""
        task = self.spec.task
        if epochs:
            task = task.model_copy(update={"epochs": epochs})
        return TrialSpec(
            task=task,
            method=self.spec.method,
            params=self.spec.method_params,
            plan=plan,
            seed=self.spec.seed,
        ).canonical()

    def trained(self, plan: str, epochs: int = 0) -> Training:
        """A finished run of the plan, trained from scratch."""
        training = Training(self.trial(plan, epochs), self.train, self.validation, self.device)
        while not training.done:
            training.epoch()
        self.training_epochs += training.spec.task.epochs
        return training

    def pretrained(self, level: str) -> dict[str, Tensor]:
        """The weights of the network with every layer at `level`, trained once for all selectors,
        under the names of the model without a plan."""
        spec = self.trial(level * self.layers)
        kind = "full precision" if level == "F" else "binary"
        return self.trained_weights(spec, f"{spec.task.epochs} epochs, every layer {kind}")

    def trained_weights(self, spec: TrialSpec, what: str) -> dict[str, Tensor]:
        """The weights that `spec` trains, from the cache if they are there."""
        self.note(f"pretraining: {what}")
        self.training_epochs += spec.task.epochs
        data = (self.train, self.validation, self.device)
        if self.cache is None:
            return weights_of(pretrain(Training, spec, *data).model)
        return self.cache.weights(Training, spec, *data)

    def full_precision(self) -> nn.Module:
        """The pretrained network in full precision, in evaluation mode."""
        network = Network(self.trial("F" * self.layers), self.device)
        load_weights(network.model, self.pretrained("F"), "pretraining")
        return network.model.eval()

    def switchable(self, binary: bool) -> Switchable:
        """The network that was pretrained binary or in full precision, all layers in that state."""
        level = self.spec.level
        network = Network(self.trial(level * self.layers), self.device)
        load_weights(network.model, self.pretrained(level if binary else "F"), "pretraining")
        network.method.before_step(1.0)
        net = Switchable(network)
        for index in range(self.layers):
            net.set(index, binary)
        return net

    def examples(self, count: int) -> Part:
        """A fixed part of the training data, classes in proportion, without augmentation."""
        return self.train.take(min(count, len(self.train)), self.spec.seed)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The loss that scores are computed from: that of the kind of task, without label
        smoothing."""
        plain = self.spec.task.model_copy(update={"loss": LossSpec()})
        return self.kind.loss(output, y, plain)

    @torch.no_grad()
    def mean_loss(self, model: nn.Module, part: Part) -> float:
        model.eval()
        batches = in_order(part, self.spec.task.batch_size)
        return sum(float(self.loss(model(x), y)) * len(y) for x, y in batches) / len(part)

    # --- MixBin -----------------------------------------------------------------------------------

    def convert(self, values: dict[str, Value], scores_of: Scores) -> Ranking:
        """The ranking of MixBin (docs/methods.md 4.8): all layers are converted one by one, the one
        of lowest score first. Reported are the scores of the first round, in which every layer is a
        candidate."""
        to_full = values["direction"] == "bin2fp"
        net = self.switchable(binary=to_full)
        left = list(range(self.layers))
        if values["per_flop"]:
            saved = flops_saved(self.table, self.spec.level)
        else:
            saved = [1.0] * self.layers
        first: dict[int, float] = {}
        converted = []
        while left:
            if not first or (values["update"] == "greedy" and len(left) > 1):
                scores = {i: s / saved[i] for i, s in scores_of(net, left, values).items()}
                first = first or scores
                self.note(f"scored {len(scores)} layers, {self.layers - len(left)} converted")
            best = left[ascending([scores[i] for i in left])[0]]
            net.flip(best)
            if values["update"] == "greedy" and len(left) > 2:
                self.recalibrate(net)
            left.remove(best)
            converted.append(best)
        order = converted[::-1] if to_full else converted
        # The scores of mixbin-grad are negated for bin2fp; their magnitude is reported.
        shown = abs if "score" in values else float
        return Ranking(order, [shown(first[i]) for i in range(self.layers)], _score_name(values))

    def loss_after(
        self, net: Switchable, left: list[int], values: dict[str, Value]
    ) -> dict[int, float]:
        """mixbin-loss: L(network with layer l converted) - L(present network) for every candidate
        l, batch norms estimated anew (docs/methods.md 4.2)."""
        images = self.examples(int(values["examples"]))
        now = self.loss_on(net, images)
        changes = {}
        for place, index in enumerate(left, 1):
            report(f"scoring layer {place} of {len(left)}, {self.layers - len(left)} converted")
            net.flip(index)
            with kept_statistics(net.model):
                self.recalibrate(net)
                changes[index] = self.loss_on(net, images) - now
            net.flip(index)
        return changes

    def gradient_scores(
        self, net: Switchable, left: list[int], values: dict[str, Value]
    ) -> dict[int, float]:
        """mixbin-grad: |<dL/dw_used, w_other - w_used>|, optionally per weight, or the mean
        |dL/dw_used| (docs/methods.md 4.2). fp2bin converts the smallest first, bin2fp the largest:
        its scores are negated."""
        images = self.examples(int(values["examples"]))
        gradients = net.gradients(in_order(images, self.spec.task.batch_size), self.loss)
        self.scored_examples += len(images)
        sign = -1.0 if values["direction"] == "bin2fp" else 1.0
        scores = {}
        for index in left:
            gradient = gradients[index]
            if values["score"] == "gradient":
                score = float(gradient.abs().mean())
            else:
                used, other = net.both_weights(index)
                score = abs(float((gradient * (other - used)).sum()))
                if values["per_weight"]:
                    score /= gradient.numel()
            scores[index] = sign * score
        return scores

    def recalibrate(self, net: Switchable) -> None:
        """Estimate the statistics of batch norms anew."""
        recalibrate(net.model, self.train, self.spec.task.batch_size)
        self.scored_examples += min(RECALIBRATION_EXAMPLES, len(self.train))

    def loss_on(self, net: Switchable, images: Part) -> float:
        """The mean loss over these examples, which are counted."""
        self.scored_examples += len(images)
        return self.mean_loss(net.model, images)

    # --- the others -------------------------------------------------------------------------------

    def train_every_candidate(self, epochs: int, examples: int) -> Ranking:
        """The ranking of iterative selection (docs/methods.md 4.1): from full precision on, every
        candidate is trained with one more layer binary, and the one of lowest loss is kept."""
        images = self.examples(examples)
        left = list(range(self.layers))
        order: list[int] = []
        first: dict[int, float] = {}
        while len(left) > 1:
            losses = {}
            for place, index in enumerate(left, 1):
                report(f"candidate {place} of {len(left)} for place {len(order) + 1}")
                chosen = {*order, index}
                plan = "".join(self.spec.level if i in chosen else "F" for i in range(self.layers))
                losses[index] = self.mean_loss(self.trained(plan, epochs).model, images)
                self.scored_examples += len(images)
            first = first or losses
            self.note(f"trained {len(left)} candidates for place {len(order) + 1}")
            best = left[ascending([losses[i] for i in left])[0]]
            left.remove(best)
            order.append(best)
        scores = [first.get(i, 0.0) for i in range(self.layers)]
        return Ranking([*order, *left], scores, "loss after training with this layer binary")

    def ranking_of(self, selector: str, params: dict[str, Any]) -> Ranking:
        """The ranking of another selector on the same task."""
        spec = self.spec.model_copy(update={"selector": selector, "params": params})
        folder = None if self.cache is None else self.cache.folder
        found = run(spec.build(), spec, folder, self.gpus, self.note)
        self.training_epochs += found.training_epochs
        self.scored_examples += found.scored_examples
        return Ranking(found.order, found.scores, found.score)


def _score_name(values: dict[str, Value]) -> str:
    if "score" not in values:
        name = "change of the loss"
    elif values["score"] == "gradient":
        name = "mean |dL/dw|"
    else:
        name = "|<dL/dw, change of w>|"
    return name + (" per percent of the flops" if values["per_flop"] else "")
