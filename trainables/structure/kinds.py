"""The kinds of layer a plan can decide, and what differs between them: convolutions in one, two and
three dimensions, transposed ones, and linear layers.

Quantizers see every weight in the layout of a convolution, (outputs, inputs, ...), so that "per
output channel" means the same for all. torch stores that of a transposed convolution as (inputs,
outputs of a group, ...): its latent is kept in the layout of quantizers, and a second
parametrization brings it into that of torch."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
LAYERS = (*CONVOLUTIONS, *TRANSPOSED, nn.Linear)
# Those that plans of networks of libraries and of our own decide.
USUAL = (nn.Conv2d, nn.Linear)
_TRANSPOSED_PRODUCTS = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def has_weight(module: nn.Module) -> bool:
    """Whether the weight of a layer is an ordinary parameter: not None, and not computed from other
    parameters, as under weight normalisation."""
    weight = module._parameters.get("weight")
    return weight is not None and weight.is_floating_point()


def is_convolution(layer: nn.Module) -> bool:
    """Whether a layer is a convolution, transposed or not."""
    return isinstance(layer, (*CONVOLUTIONS, *TRANSPOSED))


def inputs_of(layer: nn.Module) -> int:
    """The number of input channels of a layer."""
    count: Any = layer.in_channels if is_convolution(layer) else layer.in_features
    return int(count)


def outputs_of(layer: nn.Module) -> int:
    """The number of output channels of a layer."""
    count: Any = layer.out_channels if is_convolution(layer) else layer.out_features
    return int(count)


def dimensions(layer: nn.Module) -> int:
    """Over how many dimensions a convolution moves; 0 for a linear layer."""
    return len(layer.kernel_size) if is_convolution(layer) else 0  # type: ignore[arg-type]


def per_channel(layer: nn.Module, inputs: bool) -> tuple[int, ...]:
    """The shape in which one number per input or output channel meets an input or output of the
    layer."""
    count = inputs_of(layer) if inputs else outputs_of(layer)
    return (1, count, *(1,) * dimensions(layer)) if is_convolution(layer) else (count,)


def macs_of(layer: nn.Module, x: Tensor, output: Tensor, weights: int) -> int:
    """The MACs of one call: every weight is used once per position of the output, of the input in a
    transposed convolution."""
    if isinstance(layer, TRANSPOSED):
        return x.numel() // inputs_of(layer) * weights
    return output.numel() // outputs_of(layer) * weights


def product(
    layer: nn.Module,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    output_size: list[int] | None = None,
) -> Tensor:
    """What the layer computes with another weight and bias; `weight` is in torch's layout."""
    found: Tensor
    if isinstance(layer, CONVOLUTIONS):
        found = layer._conv_forward(x, weight, bias)
    elif isinstance(layer, TRANSPOSED):
        n = dimensions(layer)
        sizes: Any = (layer.stride, layer.padding, layer.kernel_size, n, layer.dilation)
        padding = layer._output_padding(x, output_size, *sizes)
        run: Any = _TRANSPOSED_PRODUCTS[n - 1]
        found = run(
            x, weight, bias, layer.stride, layer.padding, padding, layer.groups, layer.dilation
        )
    else:
        found = F.linear(x, weight, bias)
    return found


# --- the layout of weights ----------------------------------------------------------------------


def groups_of(layer: nn.Module) -> int:
    """The groups of a transposed convolution; 0 for every other layer, whose weight has the layout
    of quantizers."""
    return layer.groups if isinstance(layer, TRANSPOSED) else 0


def as_outputs(weight: Tensor, groups: int) -> Tensor:
    """A weight of torch in the layout of quantizers, (outputs, inputs of a group, ...)."""
    return _swapped(weight, groups) if groups else weight


def as_stored(weight: Tensor, groups: int) -> Tensor:
    """A weight in the layout of quantizers in that of torch; the inverse of `as_outputs`."""
    return _swapped(weight, groups) if groups else weight


def _swapped(weight: Tensor, groups: int) -> Tensor:
    """The first two dimensions exchanged within every group: (g a, b, ...) becomes (g b, a, ...).
    Contiguous, so that a network and its reloaded copy multiply in the same order."""
    rows, columns, *kernel = weight.shape
    parts = weight.reshape(groups, rows // groups, columns, *kernel).transpose(1, 2)
    return parts.reshape(groups * columns, rows // groups, *kernel).contiguous()


class Stored(nn.Module):
    """The last parametrization of the weight of a transposed convolution: into torch's layout."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, weight: Tensor) -> Tensor:
        return as_stored(weight, self.groups)


class _StoredFrom(Stored):
    """The same, for a parameter that is in torch's layout when it is registered."""

    def right_inverse(self, weight: Tensor) -> Tensor:
        return as_outputs(weight, self.groups)


class Seen(nn.Module):
    """A transposed convolution as methods see it: its latent as the weight, its channels."""

    def __init__(self, layer: nn.Module, latent: Tensor) -> None:
        super().__init__()
        self.weight = latent
        self.in_channels, self.out_channels = inputs_of(layer), outputs_of(layer)
        self.kernel_size = layer.kernel_size


def seen_weight(layer: nn.Module) -> nn.Module:
    """The layer as methods see it, for a quantizer that does not become its parametrization."""
    groups = groups_of(layer)
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return Seen(layer, as_outputs(weight.detach(), groups)) if groups else layer


def seen(layer: nn.Module, again: bool = False) -> nn.Module:
    """The layer as a method makes its quantizers for: itself, or for a transposed convolution a
    module whose weight is its latent, in the layout of quantizers. `again`: its parameter is that
    of a layer that is in this layout already."""
    groups = groups_of(layer)
    if not groups:
        return layer
    made = Stored(groups) if again else _StoredFrom(groups)
    parametrize.register_parametrization(layer, "weight", made, unsafe=True)
    chain: Any = layer.parametrizations.weight  # type: ignore[union-attr]
    return Seen(layer, chain.original)


def parametrize_weight(layer: nn.Module, quantizer: nn.Module) -> None:
    """Make the quantizer the first parametrization of the layer's weight. The layer must have been
    `seen`."""
    if groups_of(layer):
        chain: Any = layer.parametrizations.weight  # type: ignore[union-attr]
        chain.insert(0, quantizer)
    else:
        # unsafe=True skips a trial run of the quantizer: shape and dtype never change here.
        parametrize.register_parametrization(layer, "weight", quantizer, unsafe=True)
