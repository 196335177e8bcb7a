"""A loaded network with kernels in place of its binary layers: `fast` replaces what fits, fuses
what follows, and compares the outputs with those of torch before it hands the network out."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from bitfront.trainables.data import DatasetInfo
from bitfront.trainables.runtime.machine import has_kernels


@dataclass
class Fast:
    """A network that runs, and how."""

    network: nn.Module
    kernels: list[str] = field(default_factory=list)
    """names of the layers that run on packed bits"""
    others: dict[str, str] = field(default_factory=dict)
    """binary layers that torch computes, with the reason"""
    fused: bool = False
    """whether what follows the layers is computed with them"""
    reason: str = ""
    """why torch computes all of it"""

    def __str__(self) -> str:
        if self.reason:
            return f"torch: {self.reason}"
        count = len(self.kernels) + len(self.others)
        joined = "with what follows them" if self.fused else "one by one"
        return f"kernels: {len(self.kernels)} of {count} binary layers, {joined}"


def an_example(info: DatasetInfo, batch: int = 2) -> Tensor:
    """Inputs of the shape that a network of these data takes, the same ones every time."""
    shape = (batch, *info.shape)
    if info.integers:
        return torch.arange(math.prod(shape)).view(shape) % 2
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def binary_modules(network: nn.Module) -> dict[str, nn.Module]:
    """The modules with binary inputs and weights, by name."""
    return {
        name: module
        for name, module in network.named_modules()
        if hasattr(module, "input_quantizer")
    }


@torch.no_grad()
def fast(network: nn.Module, example: Tensor) -> Fast:
    """The network on packed bits where kernels fit; it gives the bits of torch, which is tried with
    `example`. The network itself stays as it is."""
    binary = binary_modules(network)
    if not binary:
        return Fast(network, reason="no layer has binary weights and inputs")
    if not has_kernels():
        reason = "Numba is not installed: pip install 'bitfront[fast]'"
        return Fast(network, others=dict.fromkeys(binary, reason), reason=reason)
    from bitfront.trainables.runtime.layers import misfit

    found = {name: misfit(module) for name, module in binary.items()}
    others = {name: why for name, why in found.items() if why is not None}
    others |= dict.fromkeys(_read_by_torch(network) & binary.keys(), "torch reads its weight")
    kernels = [name for name in binary if name not in others]
    if not kernels:
        return Fast(network, others=others, reason="no kernel fits its layers")
    wanted = network(example)
    for fuse in (True, False):
        made = _made(network, kernels, example, fuse)
        if made is not None and _same(made, example, wanted):
            return Fast(made.requires_grad_(False), kernels, others, fused=fuse)
    reason = "kernels gave other outputs than torch"
    return Fast(network, others=others | dict.fromkeys(kernels, reason), reason=reason)


def _read_by_torch(network: nn.Module) -> set[str]:
    """The last projections of attentions, of which torch reads the weight and calls no module."""
    return {
        f"{name}.out_proj"
        for name, module in network.named_modules()
        if isinstance(module, nn.MultiheadAttention)
    }


def _same(made: nn.Module, example: Tensor, wanted: Tensor) -> bool:
    """Whether a network gives these outputs. One that fails does not: its code may ask a layer for
    what a kernel does not have."""
    try:
        return torch.equal(made(example), wanted)
    except (AttributeError, RuntimeError, TypeError):
        return False


def _made(network: nn.Module, kernels: list[str], example: Tensor, fuse: bool) -> nn.Module | None:
    """A copy of the network with kernels, fused or not; None where it cannot be fused."""
    from bitfront.trainables.runtime.chains import PackedLayer
    from bitfront.trainables.runtime.fusion import fused

    made = copy.deepcopy(network)
    for name in kernels:
        holder, _, leaf = name.rpartition(".")
        packed = PackedLayer(made.get_submodule(name))
        setattr(made.get_submodule(holder), leaf, packed)
    if not fuse:
        return made
    try:
        return fused(made, example)
    except Exception:  # torch.fx raises many types for code that it cannot follow
        return None
