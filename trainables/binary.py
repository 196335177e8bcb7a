"""Binary layers: the modules that turn a layer's weight and input binary, applied to any network
without rewriting it, and the check that the result is binary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from trainables.methods.base import Method
from trainables.plan import PlanLayer, binary_layers
from trainables.quantizers import Pair, sign
from trainables.registry import UserError


class Annealed:
    """A quantizer pair and its present annealed value, shared by all layers of a network.
    `as_trained` makes evaluation use F instead of the sign, for the soft accuracy."""

    def __init__(self, pair: Pair, value: float) -> None:
        self.pair = pair
        self.value = value
        self.as_trained = False


def mean_magnitude(w: Tensor, scale: str) -> Tensor | None:
    """mean |w| over the scale group, without gradient (methods.md 1.8, 1.11)."""
    if scale == "none":
        return None
    dims = tuple(range(w.dim())) if scale == "layer" else tuple(range(1, w.dim()))
    return w.detach().abs().mean(dims, keepdim=True)


class WeightQuantizer(nn.Module):
    """F of the latent while training, the sign in evaluation; times the scale of its group."""

    def __init__(self, annealed: Annealed, scale: str) -> None:
        super().__init__()
        self.annealed = annealed
        self.scale = scale

    def forward(self, latent: Tensor) -> Tensor:
        soft = self.training or self.annealed.as_trained
        w = self.annealed.pair(latent, self.annealed.value) if soft else sign(latent)
        s = mean_magnitude(latent, self.scale)
        return w if s is None else w * s


class InputQuantizer(nn.Module):
    """The same pair on the input of a B layer."""

    def __init__(self, annealed: Annealed) -> None:
        super().__init__()
        self.annealed = annealed

    def forward(self, x: Tensor) -> Tensor:
        soft = self.training or self.annealed.as_trained
        return self.annealed.pair(x, self.annealed.value) if soft else sign(x)


class SignInput(nn.Module):
    """The input quantizer of a network that is only evaluated."""

    def forward(self, x: Tensor) -> Tensor:
        return sign(x)


@dataclass(frozen=True)
class BinaryLayer:
    """A layer the plan made binary, with what made it so."""

    name: str
    level: str
    module: nn.Module
    scale: str

    @property
    def latent(self) -> nn.Parameter:
        return self.module.parametrizations.weight.original  # type: ignore[union-attr,return-value]

    def hard_parts(self) -> tuple[Tensor, Tensor | None]:
        """The signs and the scales that evaluation multiplies with."""
        latent = self.latent.detach()
        return sign(latent), mean_magnitude(latent, self.scale)


def quantize_input(layer: nn.Module, quantizer: nn.Module) -> None:
    """Run the layer's input through `quantizer` first; as a submodule it follows train / eval."""
    layer.add_module("input_quantizer", quantizer)

    def hook(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (module.input_quantizer(args[0]), *args[1:])  # type: ignore[operator]

    layer.register_forward_pre_hook(hook)


def apply_plan(
    model: nn.Module, layers: Sequence[PlanLayer], plan: str, method: Method
) -> list[BinaryLayer]:
    """Make the planned layers of `model` binary, in place. The one place that does."""
    modules = dict(model.named_modules())
    made = []
    for layer, level in binary_layers(plan, layers):
        module = modules[layer.name]
        # unsafe=True skips a trial run of the quantizer: shape and dtype never change here.
        parametrize.register_parametrization(
            module, "weight", method.weight_quantizer(module), unsafe=True
        )
        if level == "B":
            quantize_input(module, method.input_quantizer(module))
        made.append(BinaryLayer(layer.name, level, module, method.scale))
    method.bind(made)
    return made


@torch.no_grad()
def clamp_latents(layers: Sequence[BinaryLayer]) -> None:
    latents: list[Tensor] = [layer.latent for layer in layers]
    if latents:
        torch._foreach_clamp_min_(latents, -1.0)
        torch._foreach_clamp_max_(latents, 1.0)


class NotBinaryError(UserError):
    """A layer the plan calls binary holds other values."""


@torch.no_grad()
def verify_binary(model: nn.Module, layers: Sequence[BinaryLayer]) -> None:
    """Every binary layer holds -s and +s only, one s > 0 a scale group. Looks at the weight the
    network really multiplies with in evaluation, not at how it was made."""
    was_training = model.training
    model.eval()
    try:
        for layer in layers:
            weight: Tensor = layer.module.weight  # type: ignore[assignment]
            groups = weight.flatten(1) if layer.scale == "channel" else weight.reshape(1, -1)
            s = groups.abs().amax(1, keepdim=True)
            if not bool(((groups.abs() == s) & (s > 0)).all()):
                levels = weight.unique().numel()
                raise NotBinaryError(
                    f"layer {layer.name} is not binary: it holds {levels} different values"
                )
    finally:
        model.train(was_training)
