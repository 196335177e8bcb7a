"""What happens to the input of a B or A layer before its sign, in networks that were not written
for binary activations: behind a ReLU every sign is +1, whatever the image. The network itself stays
as it is: its layers in full precision see what they always saw (docs/methods.md 6.4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The examples from which shifts start.
STARTING_EXAMPLES = 256


class Treated(nn.Module):
    """The quantizer of a layer's input behind a treatment: quantizer(treatment(x))."""

    def __init__(self, treatment: nn.Module, quantizer: nn.Module) -> None:
        super().__init__()
        self.treatment = treatment
        self.quantizer = quantizer

    def forward(self, x: Tensor) -> Tensor:
        quantized: Tensor = self.quantizer(self.treatment(x))
        return quantized

    def again(self, x: Tensor) -> Tensor:
        """The same for an input that has been seen: running statistics do not count it twice."""
        known: Any = getattr(self.treatment, "again", self.treatment)
        quantized: Tensor = self.quantizer(known(x))
        return quantized


class InputNorm(nn.modules.batchnorm._BatchNorm):
    """A batch norm of the input of a layer, without scale and bias: it is followed by a sign, and
    what a channel is compared with is its mean."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(channels_of(layer), affine=False)
        self.last = channels_last(layer)

    def _check_input_dim(self, input: Tensor) -> None:
        """Inputs of any number of dimensions will do."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.last:
            return super().forward(input)
        return super().forward(input.reshape(-1, input.shape[-1])).view(input.shape)

    def again(self, x: Tensor) -> Tensor:
        """`forward` without an update of the running statistics."""
        if not self.training:
            return self.forward(x)
        flat = x.reshape(-1, x.shape[-1]) if self.last else x
        return F.batch_norm(flat, None, None, training=True, eps=self.eps).view(x.shape)


class InputShift(nn.Module):
    """x - shift, learned per input channel; it starts at the mean of the input
    (`starting_shifts`)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.last = channels_last(layer)
        channels = channels_of(layer)
        shape = (channels,) if self.last else (1, channels) + (1,) * _dims(layer)
        self.shift = nn.Parameter(torch.zeros(shape))
        self.starting = False

    def forward(self, x: Tensor) -> Tensor:
        if self.starting:
            self._start(x.detach())
        return x - self.shift

    @torch.no_grad()
    def _start(self, x: Tensor) -> None:
        flat = x.reshape(-1, x.shape[-1]) if self.last else x.transpose(0, 1).flatten(1).T
        self.shift.copy_(flat.float().mean(0).view(self.shift.shape))


@contextmanager
def starting_shifts(model: nn.Module) -> Iterator[bool]:
    """Inside, a forward pass sets the shifts of inputs to the means of these inputs; whether there
    are any is yielded."""
    shifts = [module for module in model.modules() if isinstance(module, InputShift)]
    for shift in shifts:
        shift.starting = True
    try:
        yield bool(shifts)
    finally:
        for shift in shifts:
            shift.starting = False


# The treatments of `task.activations` by name; the other choices replace modules of the network.
TREATMENTS: dict[str, type[nn.Module]] = {"norm": InputNorm, "shift": InputShift}


def treated(activations: str, layer: nn.Module, quantizer: nn.Module) -> nn.Module:
    """The quantizer of the layer's input with the treatment of that name before it; the quantizer
    itself where the name is that of no treatment."""
    make: Any = TREATMENTS.get(activations)
    return quantizer if make is None else Treated(make(layer), quantizer)


def channels_last(layer: nn.Module) -> bool:
    """Whether the channels of a layer's input are its last dimension, not its second one."""
    return not hasattr(layer, "in_channels")


def channels_of(layer: nn.Module) -> int:
    """The number of input channels of a layer."""
    count: Any = layer.in_features if channels_last(layer) else layer.in_channels
    return int(count)


def _dims(layer: nn.Module) -> int:
    """Over how many dimensions a convolution moves."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return weight.dim() - 2
