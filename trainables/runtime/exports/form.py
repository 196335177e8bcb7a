"""The form in which networks are traced for files: what a binary layer does to its input and to its
sums are operations of our own, so that each format can say them in its way.

    bitfront::signs(x, threshold)   +1 where x >= threshold, else -1
    bitfront::sums(y)               y, which are sums of signs: whole numbers below 2^24
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Iterator
from functools import cached_property
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.layers.accumulators import Accumulator
from bitfront.trainables.layers.sums import scaled
from bitfront.trainables.runtime.exports.description import Description
from bitfront.trainables.runtime.thresholds import thresholds
from bitfront.trainables.structure.attention import Projection
from bitfront.trainables.structure.kinds import is_convolution, per_channel, product

# Floats hold whole numbers up to here, in whatever order they are added.
LARGEST_SUM = 2.0**24


@torch.library.custom_op("bitfront::signs", mutates_args=())
def signs(x: Tensor, threshold: Tensor) -> Tensor:
    """+1 where x >= threshold, else -1."""
    return torch.where(x >= threshold, 1.0, -1.0)


@signs.register_fake
def _(x: Tensor, threshold: Tensor) -> Tensor:  # noqa: ARG001
    return torch.empty_like(x)


@torch.library.custom_op("bitfront::sums", mutates_args=())
def sums(y: Tensor) -> Tensor:
    """The sums of signs themselves. What follows must not be multiplied into the signs."""
    return y.clamp(-LARGEST_SUM, LARGEST_SUM)


@sums.register_fake
def _(y: Tensor) -> Tensor:
    return torch.empty_like(y)


SIGNS, SUMS = torch.ops.bitfront.signs.default, torch.ops.bitfront.sums.default
ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


class _Signs(nn.Module):
    """The quantizer of a layer's input as one comparison per channel."""

    def __init__(self, layer: nn.Module, plain: bool) -> None:
        super().__init__()
        self.plain = plain
        found = torch.from_numpy(thresholds(layer))
        same = bool((found == found[0]).all())
        shape = per_channel(layer, inputs=True)
        self.register_buffer("threshold", found[0] if same else found.view(shape))

    def forward(self, x: Tensor) -> Tensor:
        threshold: Tensor = self.threshold  # type: ignore[assignment]
        if not self.plain:
            found: Tensor = signs(x, threshold)
            return found
        return torch.where(x >= threshold, x.new_ones(()), -x.new_ones(()))


class _Accumulated(nn.Module):
    """An accumulator without the operations that write into given memory (`CyclicActivation`)."""

    def __init__(self, accumulator: Accumulator) -> None:
        super().__init__()
        self.period = 2.0**accumulator.bits
        self.slope = accumulator.slope

    def forward(self, z: Tensor, scale: Tensor | None) -> Tensor:
        m = z - self.period * torch.floor(z * (1 / self.period) + 0.5)
        size = m.abs()
        falling = size * -self.slope + self.slope * self.period / 2
        size = torch.minimum(size, falling)
        # |m| <= M, so that neither is negative, and m = 0 gives 0.
        y = torch.where(m < 0, -size, size)
        return y if scale is None else y * scale


def _sum_first(layer: Any, x: Tensor, *size: Any) -> Tensor:
    y = sums(product(layer, x, layer.weight, None, *size))
    return scaled(layer, y, layer.output_scale)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *given: Any, **named: Any
) -> Tensor:
    """Attention of tensors of any number of dimensions with those of four: most formats know no
    others."""
    masked = attn_mask is not None and attn_mask.dim() > 2
    if q.dim() == 4 or masked or q.shape[:-2] != k.shape[:-2]:
        return NotImplemented  # type: ignore[no-any-return]
    heads = (x.reshape(-1, 1, *x.shape[-2:]) for x in (q, k, v))
    y: Tensor = ATTENTION(*heads, attn_mask, *given, **named)
    return y.reshape(*q.shape[:-1], v.shape[-1])


def in_form(network: nn.Module, plain: bool = False) -> nn.Module:
    """A copy of a loaded network in the form that is traced. `plain`: with operations of torch
    only."""
    made = copy.deepcopy(network).requires_grad_(False).eval()
    for layer in list(made.modules()):
        if hasattr(layer, "input_quantizer"):
            layer.input_quantizer = _Signs(layer, plain)
        if isinstance(getattr(layer, "accumulator", None), Accumulator):
            layer.accumulator = _Accumulated(layer.accumulator)  # type: ignore[arg-type]
        elif hasattr(layer, "output_scale") and not plain and not isinstance(layer, Projection):
            layer.forward = MethodType(_sum_first, layer)
        if not plain and (is_convolution(layer) or isinstance(layer, nn.Linear)):
            weight: nn.Parameter = layer.weight  # type: ignore[assignment]
            weight.data = weight.data.contiguous()
    return made


@torch.no_grad()
def traced(network: nn.Module, example: Tensor, any_batch: bool = True, plain: bool = False) -> Any:
    """The network as a program of torch.export; a UserError that names the layer where it cannot be
    traced. With `any_batch`, for batches of any size where the network allows it."""
    made = in_form(network, plain)
    batches = [{0: torch.export.Dim("batch", min=1)}] if any_batch else []
    problem: Exception | None = None
    where = ""
    for shapes in (*batches, None) if any_batch else (None,):
        x = example if shapes is not None else example[:1]
        with quiet(), _watched(made) as inside:
            try:
                dynamic = None if shapes is None else (shapes,)
                program = torch.export.export(made, (x,), dynamic_shapes=dynamic)
                # Without operations that change tensors in place.
                return program if plain else program.run_decompositions({ATTENTION: _attention})
            except Exception as error:  # torch raises many types for code that it cannot follow
                problem, where = error, ".".join(inside[-1:])
    assert problem is not None
    raise UserError(
        f"{where or 'the network'} cannot be traced: {_reason(problem)}",
        "torch.export follows a network whose path does not depend on the values of its input",
    )


class Source:
    """The network that is deployed: as it was loaded, and as programs that torch has traced."""

    def __init__(self, network: nn.Module, description: Description, example: Tensor) -> None:
        """`example`: a batch of two."""
        self.network = network
        self.description = description
        self.example = example

    @cached_property
    def traced(self) -> Any:
        """A program for batches of any size, if the network takes them."""
        return traced(self.network, self.example)

    @cached_property
    def single(self) -> Any:
        """A program for one example, whose sizes are all known."""
        return traced(self.network, self.example[:1], any_batch=False)


def takes_any_batch(program: Any) -> bool:
    """Whether a program takes batches of any size."""
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    return not isinstance(inputs[-1].meta["val"].shape[0], int)


def layer_of(node: Any) -> str:
    """The layer of the network that a node of a program belongs to, as users know it."""
    stack = node.meta.get("nn_module_stack") or {}
    names = [str(path) for path, _ in stack.values()]
    return names[-1] if names and names[-1] else "the network itself"


def _reason(error: Exception) -> str:
    text = first_line(error).rstrip(".:")
    return text if len(text) < 200 else f"{text[:200]} ..."


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside, torch does not tell of its deprecated parts and of what it tries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _watched(network: nn.Module) -> Iterator[list[str]]:
    """Yields the names of the layers that are being computed, the innermost one last."""
    inside: list[str] = []
    handles = []

    def enter(name: str) -> Any:
        return lambda *_: inside.append(name)

    def leave(*_: Any) -> None:
        inside.pop()

    for name, module in network.named_modules():
        handles.append(module.register_forward_pre_hook(enter(name), prepend=True))
        handles.append(module.register_forward_hook(leave))
    try:
        yield inside
    finally:
        for handle in handles:
            handle.remove()
