"""Binary layers: the modules that turn a layer's weight and input binary, applied to any network
without rewriting it, and the check that the result is binary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bitfront.trainables.layers.quantizers import CyclicActivation, Pair, piecewise_linear, sign
from bitfront.trainables.methods.base import Method
from bitfront.trainables.plan import BINARY_INPUTS, PlanLayer, binary_layers
from bitfront.trainables.registry import UserError


class Annealed:
    """A quantizer pair and its present annealed value, shared by all layers of a network.
    `as_trained` makes evaluation use F instead of the sign, for the soft accuracy."""

    def __init__(self, pair: Pair, value: float) -> None:
        self.pair = pair
        self.value = value
        self.as_trained = False


# Words of the scale parameter that mean one scale an output channel.
PER_CHANNEL = ("channel", "power2", "learned")


def mean_magnitude(w: Tensor, scale: str) -> Tensor | None:
    """mean |w| over the scale group, without gradient (methods.md 1.8, 1.11); as a power of two
    for `power2` (methods.md 1.7)."""
    if scale == "none":
        return None
    dims = tuple(range(w.dim())) if scale == "layer" else tuple(range(1, w.dim()))
    mean = w.detach().abs().mean(dims, keepdim=True)
    return torch.exp2(torch.round(torch.log2(mean))) if scale == "power2" else mean


class Standardized(nn.Module):
    """(w - mean) / std per output channel (methods.md 1.7): as many +1 as -1, about."""

    def forward(self, latent: Tensor) -> Tensor:
        dims = tuple(range(1, latent.dim()))
        centred = latent - latent.mean(dims, keepdim=True)
        return centred / centred.std(dims, keepdim=True).clamp_min(1e-12)


class Rotated(nn.Module):
    """The standardized weight w turned towards the corners of the cube: w + |sin angle| (R1' w R2
    - w), every output channel seen as a matrix; the angle is learnable (methods.md 1.6)."""

    ROUNDS = 3
    left: Tensor
    right: Tensor

    def __init__(self, latent: Tensor) -> None:
        super().__init__()
        size = latent[0].numel()
        rows = max(n for n in range(1, math.isqrt(size) + 1) if size % n == 0)
        self.standardized = Standardized()
        self.angle = nn.Parameter(torch.full((), math.pi / 2))
        self.register_buffer("left", torch.eye(rows))
        self.register_buffer("right", torch.eye(size // rows))

    def _matrices(self, w: Tensor) -> Tensor:
        return w.reshape(len(w), len(self.left), len(self.right))

    def _turned(self, x: Tensor) -> Tensor:
        return self.left.T @ x @ self.right

    def forward(self, latent: Tensor) -> Tensor:
        w = self.standardized(latent)
        turned = self._turned(self._matrices(w)).reshape(w.shape)
        return w + self.angle.sin().abs() * (turned - w)

    @torch.no_grad()
    def estimate(self, latent: Tensor) -> None:
        """Alternate between the signs B of R1' X R2 and the rotations that bring it nearest to
        them: each is the orthogonal factor of a sum over output channels."""
        x = self._matrices(self.standardized(latent))
        for _ in range(self.ROUNDS):
            b = sign(self._turned(x))
            self.left = _nearest_rotation(torch.einsum("nij,jk,nlk->il", x, self.right, b))
            self.right = _nearest_rotation(torch.einsum("nij,ik,nkl->jl", x, self.left, b))


def _nearest_rotation(m: Tensor) -> Tensor:
    """The orthogonal R with the greatest trace of R' M: U V' of the singular vectors M = U S V'."""
    u, _, vh = torch.linalg.svd(m)
    return u @ vh


class WeightQuantizer(nn.Module):
    """F of the latent while training, the sign in evaluation; times the scale of its group.

    The latent may go through `before` first, which standardizes or rotates it. A layer with an
    accumulator has its scale applied after it (`scaled` is False then)."""

    def __init__(
        self,
        annealed: Annealed,
        scale: str,
        latent: Tensor,
        before: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.annealed = annealed
        self.scale = scale
        self.scaled = True
        self.before = before if before is not None else nn.Identity()
        per_channel = (len(latent), *(1,) * (latent.dim() - 1))
        self.shift = nn.Parameter(torch.zeros(per_channel)) if annealed.pair.shifted else None
        self.learned = nn.Parameter(torch.ones(per_channel)) if scale == "learned" else None
        self.start(latent)

    @torch.no_grad()
    def start(self, latent: Tensor) -> None:
        """What is learned beside the latent begins at its place for these weights."""
        if isinstance(self.before, Rotated):
            self.before.estimate(latent)
        if self.learned is not None:
            self.learned.copy_(mean_magnitude(self.before(latent), "channel"))  # type: ignore[arg-type]

    def scales(self, w: Tensor) -> Tensor | None:
        if self.learned is not None:
            return self.learned.abs()
        return mean_magnitude(w, self.scale)

    def output_scales(self, latent: Tensor) -> Tensor | None:
        """The scales of a layer that applies them to its sums."""
        return self.scales(self.before(latent))

    def soft(self, w: Tensor) -> Tensor:
        """F of the weight, without its scale."""
        return self.annealed.pair(w, self.annealed.value, self.shift)

    def sign(self, w: Tensor) -> Tensor:
        return sign(w if self.shift is None else w - self.shift)

    def forward(self, latent: Tensor) -> Tensor:
        w = self.before(latent)
        out = self.soft(w) if self.training or self.annealed.as_trained else self.sign(w)
        s = self.scales(w) if self.scaled else None
        return out if s is None else out * s

    def forward_backward(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """F and B at this latent, without scale."""
        with torch.enable_grad():
            w = self.before(latent).detach().requires_grad_()
            out = self.soft(w)
            (heard,) = torch.autograd.grad(out, w, torch.ones_like(out))
        return out.detach(), heard

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        """The signs and the scales that evaluation multiplies with."""
        w = self.before(latent)
        s = self.scales(w)
        return self.sign(w), None if s is None else s.detach()


class UpdatedWeight(WeightQuantizer):
    """The weight of a scheme that projects the parameter itself: training sees it as it is."""

    def soft(self, w: Tensor) -> Tensor:
        return w.view_as(w)

    def scales(self, w: Tensor) -> Tensor | None:
        """Of the signs, in evaluation."""
        soft = self.training or self.annealed.as_trained
        return None if soft else super().scales(w)

    @torch.no_grad()
    def hard_parts(self, latent: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.sign(latent), super().scales(latent)


class InputQuantizer(nn.Module):
    """The same pair on the input of a B or A layer. `floor`: the annealed value is not taken
    below it there."""

    def __init__(self, annealed: Annealed, layer: nn.Module, floor: float = 0.0) -> None:
        super().__init__()
        self.annealed = annealed
        self.floor = floor
        self.shift = None
        if annealed.pair.shifted:
            self.shift = nn.Parameter(torch.zeros(input_channels(layer)))

    def forward(self, x: Tensor) -> Tensor:
        value = max(self.floor, self.annealed.value)
        if self.training or self.annealed.as_trained:
            return self.annealed.pair(x, value, self.shift)
        return sign(x if self.shift is None else x - self.shift)


def input_channels(layer: nn.Module) -> tuple[int, ...]:
    """The shape of one number a channel of the layer's input."""
    if isinstance(layer, nn.Conv2d):
        return (1, layer.in_channels, 1, 1)
    assert isinstance(layer, nn.Linear)
    return (layer.in_features,)


class SignInput(nn.Module):
    """The input quantizer of a network that is only evaluated."""

    shift: Tensor | None

    def __init__(self, shift: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("shift", shift)

    def forward(self, x: Tensor) -> Tensor:
        return sign(x if self.shift is None else x - self.shift)


class Accumulator(nn.Module):
    """What an A layer makes of its sums: a wrapping accumulator of a few bits, the cyclic
    activation, then the scale (methods.md 1.14). Counts overflows in evaluation, and in training
    how far sums exceed the range where that is penalized."""

    def __init__(self, bits: int, slope: float, penalized: bool = False) -> None:
        super().__init__()
        self.bits = bits
        self.slope = slope
        self.penalized = penalized
        self.excess: Tensor | None = None
        self.overflows = self.sums = 0

    def forward(self, z: Tensor, scale: Tensor | None) -> Tensor:
        limit = 2.0 ** (self.bits - 1)
        if not self.training:
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
    """Put the accumulator between the layer's sums and its bias. `scaling` is the quantizer of the
    layer's weight: its scale is applied to the sums instead of the weight from now on."""
    layer.add_module("accumulator", accumulator)
    scaling.scaled = False  # type: ignore[assignment]

    def scales() -> Tensor | None:
        latent = layer.parametrizations.weight.original  # type: ignore[union-attr]
        return scaling.output_scales(latent)  # type: ignore[operator]

    layer.forward = _accumulating(layer, accumulator, scales)


def _accumulating(
    layer: nn.Module, accumulator: Accumulator, scales: Callable[[], Tensor | None]
) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        weight: Tensor = layer.weight  # type: ignore[assignment]
        bias: Tensor | None = layer.bias  # type: ignore[assignment]
        shape: tuple[int, ...] = (-1,)
        if isinstance(layer, nn.Conv2d):
            z, shape = layer._conv_forward(x, weight, None), (1, -1, 1, 1)
        else:
            z = nn.functional.linear(x, weight)
        s = scales()
        y = accumulator(z, s if s is None else s.view(shape))
        return y if bias is None else y + bias.view(shape)

    return forward


def accumulate_fixed(layer: nn.Module, accumulator: Accumulator, scale: Tensor | None) -> None:
    """The same for a network that is only evaluated."""
    layer.forward = _accumulating(layer, accumulator, lambda: scale)


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

    @property
    def quantizer(self) -> nn.Module:
        return self.module.parametrizations.weight[0]  # type: ignore[union-attr,index,return-value]

    @property
    def kept(self) -> int | None:
        """How many weights pruning leaves; None: the layer is not pruned, or its weight is made
        no more."""
        made = parametrize.is_parametrized(self.module, "weight")
        return getattr(self.quantizer, "kept", None) if made else None

    def hard_parts(self) -> tuple[Tensor, Tensor | None]:
        """The signs (0 for what is pruned; weights at level S) and the scales that evaluation
        multiplies with."""
        return self.quantizer.hard_parts(self.latent.detach())  # type: ignore[operator]

    def forward_backward(self) -> tuple[Tensor, Tensor]:
        """F and B at the latent as it is, scale and what comes before F left out."""
        return self.quantizer.forward_backward(self.latent.detach())  # type: ignore[operator]


class _QuantizedAgain:
    """While a layer runs: its float input is kept for the backward pass instead of the quantized
    one, and quantized again there. The layer before keeps the float input anyway, so that binary
    activations cost no memory of their own."""

    def __init__(self, quantizer: nn.Module, x: Tensor, quantized: Tensor) -> None:
        self.quantizer = quantizer
        self.x = x.detach()
        self.version = x._version
        self.storage = quantized.untyped_storage().data_ptr()

    def pack(self, tensor: Tensor) -> Any:
        if tensor.untyped_storage().data_ptr() != self.storage:
            # The tensor itself would close a circle where a function keeps its own output.
            return tensor.detach()
        return tensor.size(), tensor.stride(), tensor.storage_offset()

    @torch.no_grad()
    def unpack(self, kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        if self.x._version != self.version:
            raise RuntimeError("the input of a binary layer was changed in place after its use")
        again: Tensor = self.quantizer(self.x)
        return again.as_strided(*kept)


def quantize_input(layer: nn.Module, quantizer: nn.Module) -> None:
    """Run the layer's input through `quantizer` first; as a submodule it follows train / eval."""
    layer.add_module("input_quantizer", quantizer)
    running: list[torch.autograd.graph.saved_tensors_hooks] = []

    def before(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *more = args
        # By its name: whoever looks into layers may have put another one there.
        now: nn.Module = module.input_quantizer  # type: ignore[assignment]
        quantized: Tensor = now(x)
        if quantized.requires_grad and quantized is not x:
            again = _QuantizedAgain(now, x, quantized)
            hooks = torch.autograd.graph.saved_tensors_hooks(again.pack, again.unpack)
            hooks.__enter__()
            running.append(hooks)
        return (quantized, *more)

    def after(module: nn.Module, args: Any, output: Any) -> None:
        if running:
            running.pop().__exit__()

    layer.register_forward_pre_hook(before)
    layer.register_forward_hook(after, always_call=True)


def apply_plan(
    model: nn.Module, layers: Sequence[PlanLayer], plan: str, method: Method
) -> list[BinaryLayer]:
    """Make the planned layers of `model` binary, in place. The one place that does."""
    modules = dict(model.named_modules())
    made = []
    for layer, level in binary_layers(plan, layers):
        module = modules[layer.name]
        make = method.sparse_weight if level == "S" else method.weight_quantizer
        quantizer = make(module)
        # unsafe=True skips a trial run of the quantizer: shape and dtype never change here.
        parametrize.register_parametrization(module, "weight", quantizer, unsafe=True)
        if level in BINARY_INPUTS:
            quantize_input(module, method.input_quantizer(module))
        if level == "A":
            method.accumulate(module, quantizer)
        made.append(BinaryLayer(layer.name, level, module, method.scale))
    method.bind(made)
    return made


@torch.no_grad()
def clamp_latents(layers: Sequence[BinaryLayer]) -> None:
    latents: list[Tensor] = [layer.latent for layer in layers]
    if latents:
        torch._foreach_clamp_min_(latents, -1.0)
        torch._foreach_clamp_max_(latents, 1.0)


@torch.no_grad()
def project_latents(layers: Sequence[BinaryLayer], rho: float, varrho: float) -> None:
    """P(w*) in place of w*, for schemes that step from there."""
    for layer in layers:
        layer.latent.copy_(piecewise_linear(layer.latent, rho, varrho))


DEAD = 1e-3


def diagnose(
    layers: Sequence[BinaryLayer], signs: Sequence[Tensor], accumulators: Sequence[Accumulator]
) -> dict[str, float]:
    """Shares over all binary weights (methods.md 1.16); `signs` are those of some time ago."""
    if not layers:
        return {}
    weights = sum(layer.latent.numel() for layer in layers)
    flipped, dead, distance = 0, 0, 0.0
    for layer, before in zip(layers, signs, strict=True):
        now = layer.hard_parts()[0]
        flipped += int((now != before).sum())
        soft, heard = layer.forward_backward()
        dead += int((heard.abs() < DEAD).sum())
        distance += float((soft - now).abs().sum())
    found = {
        "flip_rate": flipped / weights,
        "dead_share": dead / weights,
        "distance_to_binary": distance / weights,
    }
    counts = [accumulator.take_counts() for accumulator in accumulators]
    if counts:
        found["overflow_rate"] = sum(c[0] for c in counts) / max(1, sum(c[1] for c in counts))
    return found


class NotBinaryError(UserError):
    """A layer the plan calls binary holds other values."""


@torch.no_grad()
def verify_binary(model: nn.Module, layers: Sequence[BinaryLayer]) -> None:
    """Every binary layer holds -s and +s only, one s > 0 a scale group; a pruned one also zeros,
    and exactly as many other weights as promised. Looks at the weight the network really
    multiplies with in evaluation, not at how it was made."""
    was_training = model.training
    model.eval()
    try:
        for layer in layers:
            weight: Tensor = layer.module.weight  # type: ignore[assignment]
            left = int(weight.count_nonzero())
            if layer.kept is not None and left != layer.kept:
                raise NotBinaryError(
                    f"layer {layer.name} holds {left} weights, {layer.kept} were promised"
                )
            if layer.level != "S" and not _two_valued(weight, layer):
                levels = weight.unique().numel()
                raise NotBinaryError(
                    f"layer {layer.name} is not binary: it holds {levels} different values"
                )
    finally:
        model.train(was_training)


def _two_valued(weight: Tensor, layer: BinaryLayer) -> bool:
    groups = weight.flatten(1) if layer.scale in PER_CHANNEL else weight.reshape(1, -1)
    s = groups.abs().amax(1, keepdim=True)
    fine = groups.abs() == s
    if layer.kept is not None:
        fine |= groups == 0
    return bool((fine & (s > 0)).all())
