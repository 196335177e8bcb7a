"""Binary activations: the quantizer on the input of a B or A layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.layers.quantizers import sign
from bitfront.trainables.layers.weights import Annealed
from bitfront.trainables.structure.kinds import per_channel


class InputQuantizer(nn.Module):
    """Quantizes the input of a B or A layer with the pair (F, B) of the weights: F in training, the
    sign in evaluation. `floor`: a lower bound of the annealed value for inputs."""

    def __init__(self, annealed: Annealed, layer: nn.Module, floor: float = 0.0) -> None:
        super().__init__()
        self.annealed = annealed
        self.floor = floor
        self.shift = None
        if annealed.pair.shifted:
            self.shift = nn.Parameter(torch.zeros(per_channel(layer, inputs=True)))

    def forward(self, x: Tensor) -> Tensor:
        value = max(self.floor, self.annealed.value)
        if self.training or self.annealed.as_trained:
            return self.annealed.pair(x, value, self.shift)
        return sign(x if self.shift is None else x - self.shift)


class SignInput(nn.Module):
    """sign(x - shift): the input quantizer of a network that is only evaluated."""

    shift: Tensor | None

    def __init__(self, shift: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("shift", shift)

    def forward(self, x: Tensor) -> Tensor:
        return sign(x if self.shift is None else x - self.shift)


@torch.no_grad()
def by_channel(quantizer: nn.Module, layer: nn.Module) -> bool:
    """Whether the quantizer of this layer's inputs treats every channel by itself, and all of its
    numbers alike."""
    shape = per_channel(layer, inputs=True)
    x = torch.zeros(shape if len(shape) > 1 else (1, *shape))
    try:
        signs: Tensor = quantizer(x)
    except RuntimeError:  # shapes that do not meet
        return False
    return signs.shape == x.shape


class _QuantizedAgain:
    """Saved-tensor hooks around the forward pass of one layer: autograd stores its float input
    instead of the quantized one and quantizes it again in the backward pass. The layer before
    stores the float input anyway, so that binary activations need no memory of their own."""

    def __init__(self, quantizer: nn.Module, x: Tensor, quantized: Tensor) -> None:
        self.quantizer = quantizer
        self.x = x.detach()
        self.version = x._version
        self.storage = quantized.untyped_storage().data_ptr()

    def pack(self, tensor: Tensor) -> Any:
        if tensor.untyped_storage().data_ptr() != self.storage:
            # Detached: a function that saves its own output would form a reference cycle.
            return tensor.detach()
        return tensor.size(), tensor.stride(), tensor.storage_offset()

    @torch.no_grad()
    def unpack(self, kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        if self.x._version != self.version:
            raise RuntimeError("the input of a binary layer was changed in place after its use")
        again: Tensor = getattr(self.quantizer, "again", self.quantizer)(self.x)
        return again.as_strided(*kept)


def quantize_input(layer: nn.Module, quantizer: nn.Module) -> None:
    """Make the layer quantize its input with `quantizer`, which becomes a submodule of the layer:
    `train` and `eval` apply to it."""
    layer.add_module("input_quantizer", quantizer)
    running: list[torch.autograd.graph.saved_tensors_hooks] = []

    def before(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *more = args
        # By name, since a selector may have replaced the quantizer.
        now: nn.Module = module.input_quantizer  # type: ignore[assignment]
        quantized: Tensor = now(x)
        if quantized.requires_grad and quantized is not x:
            again = _QuantizedAgain(now, x, quantized)
            hooks = torch.autograd.graph.saved_tensors_hooks(again.pack, again.unpack)
            hooks.__enter__()
            running.append(hooks)
        return (quantized, *more)

    def after(_module: nn.Module, _args: Any, _output: Any) -> None:
        if running:
            running.pop().__exit__()

    layer.register_forward_pre_hook(before)
    layer.register_forward_hook(after, always_call=True)
