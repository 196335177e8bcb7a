"""Applies a plan to a network: its layers are made binary in place, by parametrizations and hooks,
without a change of the network's code. The parametrizations of weights are in `weights`, `latents`
and `sparse`, the quantizers of inputs in `inputs`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.inputs import quantize_input
from bitfront.trainables.layers.quantizers import piecewise_linear
from bitfront.trainables.layers.sums import sum_first
from bitfront.trainables.layers.treatments import treated
from bitfront.trainables.plan import BINARY_INPUTS, PlanLayer, binary_layers
from bitfront.trainables.structure.attention import open_attentions
from bitfront.trainables.structure.kinds import (
    as_outputs,
    groups_of,
    parametrize_weight,
    seen,
)

if TYPE_CHECKING:
    from bitfront.trainables.methods.base import Method


@dataclass(frozen=True)
class BinaryLayer:
    """A layer that the plan made binary or pruned."""

    name: str
    level: str
    module: nn.Module
    scale: str
    tied: tuple[nn.Module, ...] = ()
    """layers that share its weight and its quantizer"""

    @property
    def latent(self) -> nn.Parameter:
        """Its latent weight, outputs first (`structure.kinds`)."""
        return self.module.parametrizations.weight.original  # type: ignore[union-attr,return-value]

    @property
    def quantizer(self) -> nn.Module:
        return self.module.parametrizations.weight[0]  # type: ignore[union-attr,index,return-value]

    @property
    def weight(self) -> Tensor:
        """The weight the network multiplies with now, outputs first."""
        weight: Tensor = self.module.weight  # type: ignore[assignment]
        return as_outputs(weight, groups_of(self.module))

    @property
    def kept(self) -> int | None:
        """The number of weights that pruning keeps; None: the layer is not pruned, or its
        parametrization has been removed."""
        made = parametrize.is_parametrized(self.module, "weight")
        return getattr(self.quantizer, "kept", None) if made else None

    def stored(self) -> int | None:
        """The number of entries of the factors its weight is computed from; None: it is no product
        of factors."""
        made = parametrize.is_parametrized(self.module, "weight")
        count = getattr(self.quantizer, "stored", None) if made else None
        return None if count is None else int(count(self.latent.detach()))

    def hard_parts(self) -> tuple[Tensor, Tensor | None]:
        """(signs, scales) that evaluation multiplies with, where pruned weights are 0; at level S
        the weights themselves in place of signs."""
        parts: tuple[Tensor, Tensor | None] = self.quantizer.hard_parts(self.latent.detach())  # type: ignore[operator]
        return parts

    def forward_backward(self) -> tuple[Tensor, Tensor]:
        """(F(w*), B(w*)) at the present latent, without scale."""
        both: tuple[Tensor, Tensor] = self.quantizer.forward_backward(self.latent.detach())  # type: ignore[operator]
        return both


def apply_plan(
    model: nn.Module,
    layers: Sequence[PlanLayer],
    plan: str,
    method: Method,
    activations: str = "keep",
) -> list[BinaryLayer]:
    """Make the planned layers of `model` binary, in place, and return them. Layers that share a
    weight share its quantizer; only the first of them is returned. `activations`: what happens to
    inputs before they are quantized, a name of `treatments.TREATMENTS`."""
    planned = binary_layers(plan, layers)
    open_attentions(model, {layer.name for layer, _ in planned})
    modules = dict(model.named_modules())
    made = []
    for layer, level in planned:
        module = modules[layer.name]
        make = method.sparse_weight if level == "S" else method.weight_quantizer
        quantizer = make(seen(module))
        for name in (layer.name, *layer.tied):
            each = modules[name]
            if name in layer.tied:
                seen(each, again=True)
            parametrize_weight(each, quantizer)
            if level in BINARY_INPUTS:
                quantize_input(each, treated(activations, each, method.input_quantizer(each)))
            if level == "A":
                method.accumulate(each, quantizer)
            elif level == "B":
                sum_first(each)
        tied = tuple(modules[name] for name in layer.tied)
        made.append(BinaryLayer(layer.name, level, module, method.scale, tied))
    forwards = _forwards(modules)
    method.bind(made)
    own = {
        name for name, forward in _forwards(modules).items() if forward is not forwards.get(name)
    }
    _check_bound(layers, own)
    return made


def _forwards(modules: Mapping[str, nn.Module]) -> dict[str, Any]:
    """The `forward` of every module that has one of its own, by name."""
    return {
        name: vars(module)["forward"]
        for name, module in modules.items()
        if "forward" in vars(module)
    }


def _check_bound(layers: Sequence[PlanLayer], own: Collection[str]) -> None:
    """Raise a UserError where the method computes the outputs of a layer itself (its name is in
    `own`) and others share its weight: theirs would be computed in another way."""
    for layer in layers:
        if layer.tied and layer.name in own:
            if all(name in own for name in layer.tied):
                continue
            raise UserError(
                f"layer {layer.name} shares its weight with {layer.tied[0]}, and this method "
                "computes the outputs of each layer on its own",
                f"keep them in full precision: task.keep_full: [{layer.name}]",
            )


@torch.no_grad()
def clamp_latents(layers: Sequence[BinaryLayer]) -> None:
    """w* <- clip(w*, -1, 1), in place."""
    latents: list[Tensor] = [layer.latent for layer in layers]
    if latents:
        torch._foreach_clamp_min_(latents, -1.0)
        torch._foreach_clamp_max_(latents, 1.0)


@torch.no_grad()
def project_latents(layers: Sequence[BinaryLayer], rho: float, varrho: float) -> None:
    """w* <- P(w*) = L_rho^varrho(w*), in place, for the schemes whose step starts from P(w*)
    (docs/methods.md 1.1)."""
    for layer in layers:
        layer.latent.copy_(piecewise_linear(layer.latent, rho, varrho))
