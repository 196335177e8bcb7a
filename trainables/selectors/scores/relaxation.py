"""BNAS as a layer selector: every layer is a mixture of its binary and its full-precision version,
whose shares are learned together with the weights (docs/methods.md 4.5)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import Method, build_method
from bitfront.trainables.progress import report
from bitfront.trainables.selectors.base import flops_saved
from bitfront.trainables.selectors.scores.scoring import Scoring
from bitfront.trainables.structure.kinds import (
    as_outputs,
    as_stored,
    groups_of,
    product,
    seen_weight,
)
from bitfront.trainables.training.loop import Training


class MixedLayer(nn.Module):
    """share full(x) + (1 - share) binary(x), share = sigmoid(logit): the softmax over two logits.
    The logit is not a parameter of the network, so that the optimizer of the weights does not
    update it."""

    def __init__(self, layer: nn.Module, method: Method, level: str) -> None:
        super().__init__()
        self.layer = layer
        self.groups = groups_of(layer)
        self.quantizer = method.weight_quantizer(seen_weight(layer))
        self.input_quantizer = method.input_quantizer(layer) if level == "B" else nn.Identity()
        weight: Tensor = layer.weight  # type: ignore[assignment]
        self.logits = [torch.zeros((), device=weight.device, requires_grad=True)]

    @property
    def share(self) -> Tensor:
        return torch.sigmoid(self.logits[0])

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        weight: Tensor = self.layer.weight  # type: ignore[assignment]
        binary = self._product(
            self.input_quantizer(x),
            as_stored(self.quantizer(as_outputs(weight, self.groups)), self.groups),
            output_size,
        )
        full = self._product(x, weight, output_size)
        return self.share * full + (1 - self.share) * binary

    def _product(self, x: Tensor, weight: Tensor, output_size: list[int] | None) -> Tensor:
        return product(self.layer, x, weight, self.layer.bias, output_size)  # type: ignore[arg-type]


class SharesToo(Method):
    """Trains the mixture; its hooks update the logits of the shares together with the weights
    (single-level), by one Adam step per batch on loss + sum_l pressure_l share_l, the penalty on
    expected flops."""

    name = "bnas shares"

    def __init__(self, mixed: list[MixedLayer], annealed: Method, pressure: Tensor, lr: float):
        super().__init__()
        self.mixed = mixed
        self.annealed = annealed
        self.pressure = pressure
        self.logits = [layer.logits[0] for layer in mixed]
        self.optimizer = torch.optim.Adam(self.logits, lr)

    def before_step(self, fraction: float) -> None:
        self.annealed.before_step(fraction)
        self.optimizer.zero_grad(set_to_none=True)

    def after_step(self) -> None:
        shares = torch.stack([layer.share for layer in self.mixed])
        (self.pressure * shares).sum().backward()
        self.optimizer.step()


def full_precision_preference(
    scoring: Scoring, penalty: float, lr: float, epochs: int
) -> list[float]:
    """Train the mixture and return each layer's logit of full precision. The penalty on flops is 0
    for a network of binary layers and `penalty` for one in full precision."""
    method = build_method(scoring.spec.method, dict(scoring.spec.method_params))
    for layer in scoring.table.plan_layers:
        if layer.tied:
            raise UserError(
                f"bnas mixes layers one by one, and {layer.name} shares its weight with "
                f"{layer.tied[0]}",
                f"keep them in full precision: task.keep_full: [{layer.name}]",
            )
    spec = scoring.trial("F" * scoring.layers, epochs)
    training = Training(spec, scoring.train, scoring.validation, scoring.device)
    mixed = [
        _replace(training.model, layer.name, method, scoring.spec.level)
        for layer in scoring.table.plan_layers
    ]
    saved = torch.tensor(flops_saved(scoring.table, scoring.spec.level), device=scoring.device)
    training.method = SharesToo(mixed, method, penalty * saved / saved.sum(), lr)
    scoring.note(f"mixed training: {spec.task.epochs} epochs, both versions of every layer")
    while not training.done:
        report(f"mixed training, epoch {training.epochs_done + 1} of {spec.task.epochs}")
        training.epoch()
    # Both versions of a layer are computed in every step.
    scoring.training_epochs += spec.task.epochs
    return [layer.logits[0].item() for layer in mixed]


def _replace(model: nn.Module, name: str, method: Method, level: str) -> MixedLayer:
    parent_name, _, leaf = name.rpartition(".")
    parent: Any = model.get_submodule(parent_name)
    if isinstance(parent, nn.MultiheadAttention):
        raise UserError(
            f"bnas mixes the outputs of layers, and nn.MultiheadAttention hides that of {name}",
            f"keep it in full precision: task.keep_full: [{name}]",
        )
    mixed = MixedLayer(parent.get_submodule(leaf), method, level)
    if leaf.isdigit():
        parent[int(leaf)] = mixed
    else:
        setattr(parent, leaf, mixed)
    return mixed
