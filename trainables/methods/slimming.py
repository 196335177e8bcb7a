"""Network slimming, the structured-pruning baseline of MixBin (docs/methods.md 4.5): a
full-precision network is trained with an L1 penalty on its batch-norm scales, and trained again
without the channels of the smallest ones. Which channels those are is for the selector `slimming`
to say."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables import layers
from bitfront.trainables.costs.base import KeptChannels, LayerTrace
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods.base import METHODS, Method
from bitfront.trainables.parameters import Anything, Float, Int, Param, Value

if TYPE_CHECKING:
    import torch
    from torch import nn

    from bitfront.trainables.training.schedules.phases import Phase

PENALTY = Param(
    1e-4, Float(0.0, 1.0), "of the L1 norm of batch-norm scales", search=Float(1e-5, 1e-3, log=True)
)


@dataclass(frozen=True)
class Left:
    """The output and input channels of a layer that are left, and the weights between them."""

    outputs: tuple[bool, ...]
    inputs: tuple[bool, ...]
    weights: int


def written(left: Mapping[str, Left]) -> str:
    """Channels as text, the value of `slimming.channels`: a word `LAYER:OUTPUTS:INPUTS:WEIGHTS` for
    every layer that lost some; channels are a number and a bit for each of them."""
    fewer = {name: each for name, each in left.items() if not all(each.outputs + each.inputs)}
    return " ".join(
        f"{n}:{_bits(e.outputs)}:{_bits(e.inputs)}:{e.weights}" for n, e in fewer.items()
    )


def read(text: str) -> dict[str, Left]:
    """The channels that a text of `written` stands for."""
    try:
        words = (word.split(":") for word in text.split())
        return {n: Left(_flags(outs), _flags(ins), int(weights)) for n, outs, ins, weights in words}
    except (ValueError, TypeError):
        message = "slimming.channels: not the channels of a network"
        raise UserError(message, "they are made by the selector slimming") from None


def _bits(flags: Sequence[bool]) -> str:
    number = sum(1 << i for i, flag in enumerate(flags) if flag)
    packed = number.to_bytes((len(flags) + 7) // 8, "little")
    return f"{len(flags)}.{base64.urlsafe_b64encode(packed).decode()}"


def _flags(text: str) -> tuple[bool, ...]:
    count, _, packed = text.partition(".")
    number = int.from_bytes(base64.urlsafe_b64decode(packed), "little")
    return tuple(bool(number >> i & 1) for i in range(int(count)))


@METHODS.register
class Slimming(Method):
    name = "slimming"
    family = "pruning"
    paper = "slimming"
    doc = "channels of small batch-norm scales removed, by the selector of this name; S only"
    levels = "FS"
    params: ClassVar = {
        "penalty": PENALTY,
        "channels": Param("", Anything(), "those that are left; empty: all, trained to be sparse"),
        "sparse_seed": Param(0, Int(0, 2**31 - 1), "of the sparse training it starts from"),
    }

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        super().__init__(given)
        self.left = read(str(self.values["channels"]))
        self.norms: dict[str, Any] = {}

    # --- costs ------------------------------------------------------------------------------------

    def kept(self, sizes: Mapping[str, int]) -> dict[str, int] | None:
        return dict(sizes)

    def kept_channels(self, traced: Sequence[LayerTrace]) -> dict[str, KeptChannels]:
        found = {}
        for layer in traced:
            left = self.left.get(layer.name)
            if left is not None:
                if len(left.outputs) != layer.channels:
                    raise UserError(f"slimming.channels: those of another network ({layer.name})")
                found[layer.name] = KeptChannels(left.weights, sum(left.outputs))
        return found

    # --- training ---------------------------------------------------------------------------------

    def starts_from(self) -> tuple[dict[str, Value], int] | None:
        if not self.left:
            return None
        return {**self.values, "channels": "", "sparse_seed": 0}, int(self.values["sparse_seed"])

    def sparse_weight(self, layer: nn.Module) -> nn.Module:
        weight: Any = layer.weight
        return layers.sparse.SparseWeight(weight, False)

    def attach(self, model: nn.Module, shape: Sequence[int]) -> None:
        """Find the batch norm behind every layer."""
        import torch

        found = layers.norms_after(model, layers.weighted(model), torch.zeros(2, *shape))
        self.norms = {name: norm for name, norm in found.items() if norm.affine}
        self._remove()

    def enter(self, phase: Phase) -> None:
        self._remove()

    def _remove(self) -> None:
        """Set the masks of layers, and scale and shift of the norms behind them to 0 where channels
        are removed."""
        import torch

        for layer in self.layers:
            left = self.left.get(layer.name)
            if left is not None:
                quantizer: Any = layer.quantizer
                outputs, inputs = (torch.tensor(f) for f in (left.outputs, left.inputs))
                groups = int(getattr(layer.module, "groups", 1))
                mask = layers.weight_mask(quantizer.mask, outputs, inputs, groups)
                quantizer.mask.copy_(mask)
                quantizer.set_kept(int(mask.sum()))
        with torch.no_grad():
            self._mute()

    def _mute(self) -> None:
        import torch

        for name, left in self.left.items():
            norm = self.norms.get(name)
            if norm is not None:
                mask: torch.Tensor = torch.tensor(left.outputs).to(norm.weight)
                norm.weight.mul_(mask)
                norm.bias.mul_(mask)

    def after_step(self) -> None:
        """Keep removed channels at 0. In the sparse training, whose penalty is on the scales gamma,
        a proximal step instead: gamma <- sign(gamma) max(|gamma| - lr penalty, 0)."""
        import torch

        with torch.no_grad():
            if self.left:
                self._mute()
                return
            by = float(self.values["penalty"]) * self.learning_rate
            for norm in self.norms.values():
                gamma = norm.weight
                gamma.copy_(gamma.sign() * (gamma.abs() - by).clamp_min(0.0))
