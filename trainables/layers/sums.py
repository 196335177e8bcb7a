"""The form in which a B layer is evaluated: integer sums of signs, then the scale, then the bias.
Sums of signs are exact in whatever order they are added, so that every runtime that adds them gives
the same bits (docs/deploy.md)."""

from __future__ import annotations

from types import MethodType
from typing import Any

from torch import Tensor, nn

from bitfront.trainables.structure.attention import Projection
from bitfront.trainables.structure.kinds import (
    as_stored,
    dimensions,
    groups_of,
    outputs_of,
    per_channel,
    product,
)


def sum_first(layer: nn.Module) -> None:
    """Make the layer, whose weight has a quantizer, evaluate by sums of signs, in place. Training
    is as before; so are quantizers that offer no `sum_parts`, and the projections of an attention's
    inputs, which are not called."""
    if not isinstance(layer, Projection):
        # A bound method, which a deep copy of the network binds to the copied layer.
        layer.forward = MethodType(_forward, layer)


def _forward(layer: Any, x: Tensor, *size: Any) -> Tensor:
    chain = layer.parametrizations.weight
    parts_of = getattr(chain[0], "sum_parts", None)
    parts = None if parts_of is None else parts_of(chain.original)
    if parts is None:
        plain: Tensor = type(layer).forward(layer, x, *size)
        return plain
    signs, scale = parts
    return scaled_sums(layer, x, as_stored(signs, groups_of(layer)), scale, *size)


def sum_first_fixed(layer: nn.Module, scale: Tensor | None) -> None:
    """The same for a network that is only evaluated, whose weight is its signs."""
    if scale is not None and scale.numel() not in (1, outputs_of(layer)):
        raise ValueError(f"{scale.numel()} scales for {outputs_of(layer)} outputs")
    layer.register_buffer("output_scale", scale, persistent=False)
    layer.forward = MethodType(_fixed_forward, layer)


def _fixed_forward(layer: Any, x: Tensor, *size: Any) -> Tensor:
    return scaled_sums(layer, x, layer.weight, layer.output_scale, *size)


def scaled_sums(
    layer: nn.Module,
    x: Tensor,
    signs: Tensor,
    scale: Tensor | None,
    output_size: list[int] | None = None,
) -> Tensor:
    """scale * sums + bias, where the layer computes the sums with `signs`, in torch's layout."""
    return scaled(layer, product(layer, x, signs, None, output_size), scale)


def scaled(layer: nn.Module, sums: Tensor, scale: Tensor | None) -> Tensor:
    """scale * sums + bias."""
    y = sums
    # Without the dimension of the batch, which a single example does not have.
    shape = per_channel(layer, inputs=False)[-dimensions(layer) - 1 :]
    if scale is not None:
        # One scale per output channel, or one for all.
        y = y * (scale.view(shape) if scale.numel() > 1 else scale.view(()))
    bias: Tensor | None = layer.bias  # type: ignore[assignment]
    return y if bias is None else y + bias.view(shape)
