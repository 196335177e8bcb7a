"""Narrow accumulators: how a layer of level A computes its sums."""

from __future__ import annotations

from types import MethodType
from typing import Any

from torch import Tensor, nn

from bitfront.trainables.layers.quantizers import CyclicActivation
from bitfront.trainables.structure.kinds import dimensions, is_convolution, product


class Accumulator(nn.Module):
    """y = s c_k(wrap_b(z)) for the sums z of an A layer: a wrapping accumulator of b bits, the
    cyclic activation of slope k, then the scale s (WrapNet, docs/methods.md 1.9, 1.14). With
    M = 2^(b-1), evaluation counts the overflows |z| >= M; training, if `penalized`, stores the
    penalty mean(max(|z| - M, 0)) in `excess`."""

    def __init__(self, bits: int, slope: float, penalized: bool = False) -> None:
        super().__init__()
        self.bits = bits
        self.slope = slope
        self.penalized = penalized
        self.excess: Tensor | None = None
        self.counting = True
        """whether evaluation counts overflows; tracing a network for export cannot"""
        self.overflows = self.sums = 0

    def forward(self, z: Tensor, scale: Tensor | None) -> Tensor:
        limit = 2.0 ** (self.bits - 1)
        if not self.training:
            if self.counting:
                self.overflows += int((z.abs() >= limit).sum())
                self.sums += z.numel()
        elif self.penalized:
            self.excess = (z.abs() - limit).clamp_min(0).mean()
        y: Tensor = CyclicActivation.apply(z, self.bits, self.slope)
        return y if scale is None else y * scale

    def take_counts(self) -> tuple[int, int]:
        """(overflows, sums) since the last call."""
        counts = self.overflows, self.sums
        self.overflows = self.sums = 0
        return counts


def accumulate(layer: nn.Module, accumulator: Accumulator, scaling: nn.Module) -> None:
    """Put the accumulator between the layer's sums and its bias, in place. `scaling` is the
    quantizer of the layer's weight; its scale is from now on applied to the accumulator's output
    instead of the weight."""
    layer.add_module("accumulator", accumulator)
    scaling.scaled = False  # type: ignore[assignment]

    def scales() -> Tensor | None:
        latent = layer.parametrizations.weight.original  # type: ignore[union-attr]
        found: Tensor | None = scaling.output_scales(latent)  # type: ignore[operator]
        return found

    def forward(x: Tensor, output_size: list[int] | None = None) -> Tensor:
        weight: Tensor = layer.weight  # type: ignore[assignment]
        return _accumulated(
            layer, product(layer, x, weight, None, output_size), accumulator, scales()
        )

    layer.forward = forward


def accumulate_fixed(layer: nn.Module, accumulator: Accumulator, scale: Tensor | None) -> None:
    """Put an accumulator with a fixed scale between the layer's sums and its bias, in place, for a
    network that is only evaluated."""
    layer.add_module("accumulator", accumulator)
    layer.register_buffer("accumulator_scale", scale, persistent=False)
    # A bound method, which a deep copy of the network binds to the copied layer.
    layer.forward = MethodType(_fixed_forward, layer)


def _fixed_forward(layer: Any, x: Tensor, output_size: list[int] | None = None) -> Tensor:
    z = product(layer, x, layer.weight, None, output_size)
    return _accumulated(layer, z, layer.accumulator, layer.accumulator_scale)


def _accumulated(layer: Any, z: Tensor, accumulator: Accumulator, scale: Tensor | None) -> Tensor:
    """The output of a layer from its sums."""
    shape = (1, -1, *(1,) * dimensions(layer)) if is_convolution(layer) else (-1,)
    y: Tensor = accumulator(z, scale if scale is None else scale.view(shape))
    bias: Tensor | None = layer.bias
    return y if bias is None else y + bias.view(shape)
