"""Channels of a network: which batch norm takes the output of a layer, and which inputs of layers
are zero when channels are removed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Norms = dict[str, nn.modules.batchnorm._BatchNorm]
_KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
# Sides of images that are tried, since channels are joined in the same way at any size.
_SIDES = (8, 16, 32)


def weighted(model: nn.Module) -> list[str]:
    """The names of the layers of a network that have channels to remove."""
    return [name for name, module in model.named_modules() if isinstance(module, _KINDS)]


@contextmanager
def _hooked(model: nn.Module, hooks: Sequence[Any]) -> Iterator[None]:
    was_training = model.training
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()


def norms_after(model: nn.Module, layers: Sequence[str], example: Tensor) -> Norms:
    """The batch norm that takes each layer's output, by name of the layer, determined by one
    forward pass."""
    made: dict[int, str] = {}
    kept: list[Tensor] = []  # keeps outputs alive, so that no id is used twice
    found: Norms = {}

    def after(name: str) -> Any:
        def hook(_module: nn.Module, _args: Any, output: Tensor) -> None:
            made[id(output)] = name
            kept.append(output)

        return hook

    def before(module: nn.Module, args: Any) -> None:
        if id(args[0]) in made:
            found[made[id(args[0])]] = module  # type: ignore[assignment]

    hooks = []
    for name, module in model.named_modules():
        if name in layers:
            hooks.append(module.register_forward_hook(after(name)))
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            hooks.append(module.register_forward_pre_hook(before))
    with _hooked(model, hooks):
        model(example)
    return {name: found[name] for name in layers if name in found}


class Wiring:
    """Follows which inputs of the layers of a network are zero once channels are removed, that is,
    once scale and shift of the batch norm behind a layer are zero there. An input that another
    branch adds to, such as a shortcut, is not zero.

    In a copy of the network every layer averages its inputs and every norm is the identity, so that
    a positive example is positive in every channel that is left and exactly zero in the others, for
    activations that keep the sign of positive numbers and zero."""

    def __init__(self, model: nn.Module, layers: Sequence[str], shape: Sequence[int]) -> None:
        known = weighted(model)
        self.layers = [name for name in layers if name in known]
        self.kernels = {name: _kernel(model.get_submodule(name)) for name in self.layers}
        self.model = _averaging(model)
        self.example = _smallest(self.model, shape)
        found = norms_after(self.model, self.layers, self.example)
        self.norms = {name: norm for name, norm in found.items() if norm.affine}

    def weights(self, name: str, outputs: Tensor, inputs: Tensor) -> int:
        """The weights of a layer between the channels of these masks."""
        groups, taps = self.kernels[name]
        pairs = outputs.view(groups, -1).sum(1) * inputs.view(groups, -1).sum(1)
        return int(pairs.sum()) * taps

    def channels(self) -> dict[str, int]:
        """The number of channels of every layer with a batch norm behind it, by name."""
        return {name: norm.num_features for name, norm in self.norms.items()}

    @torch.no_grad()
    def inputs(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Masks of the inputs of every layer that are not zero, by name; `outputs` are masks of the
        channels that are left, by layer."""
        for name, norm in self.norms.items():
            norm.weight.copy_(outputs[name] if name in outputs else torch.ones_like(norm.weight))
        found: dict[str, Tensor] = {}

        def seen(name: str) -> Any:
            def hook(_module: nn.Module, args: Any) -> None:
                x: Tensor = args[0]
                live = x != 0
                dims = [d for d in range(x.dim()) if d != (1 if x.dim() > 2 else x.dim() - 1)]
                mask = live.any(dim=dims) if dims else live
                found[name] = found[name] | mask if name in found else mask

            return hook

        places = [(n, self.model.get_submodule(n)) for n in self.layers]
        hooks = [module.register_forward_pre_hook(seen(n)) for n, module in places]
        with _hooked(self.model, hooks):
            self.model(self.example)
        return found


def weight_mask(weight: Tensor, outputs: Tensor, inputs: Tensor, groups: int = 1) -> Tensor:
    """The mask of the weights between the outputs and inputs of a layer that are left."""
    per_group = inputs.view(groups, -1).repeat_interleave(len(outputs) // groups, 0)
    mask = outputs[:, None] & per_group
    return mask.view(*mask.shape, *(1,) * (weight.dim() - 2)).expand_as(weight)


def _kernel(layer: nn.Module) -> tuple[int, int]:
    """(groups, weights per pair of an output and an input)."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return int(getattr(layer, "groups", 1)), weight[0, 0].numel()


class _Average(nn.Module):
    """In place of a layer: every output is the mean of its inputs, without weights to multiply
    with."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        weight: Tensor = layer.weight  # type: ignore[assignment]
        self.outputs = len(weight)
        self.groups, _ = _kernel(layer)
        self.inputs = weight.shape[1] * self.groups
        self.pool: nn.Module = nn.Identity()
        if isinstance(layer, nn.Conv2d):
            padding: Any = layer.padding
            self.pool = nn.AvgPool2d(layer.kernel_size, layer.stride, padding)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        convolves = isinstance(self.pool, nn.AvgPool2d)
        if x.shape[1 if convolves else -1] != self.inputs:
            raise RuntimeError(f"{self.inputs} inputs, not {tuple(x.shape)}")
        if not convolves:
            return x.mean(-1, keepdim=True).expand(*x.shape[:-1], self.outputs)
        means = x.view(len(x), self.groups, -1, *x.shape[2:]).mean(2)
        out: Tensor = self.pool(means.repeat_interleave(self.outputs // self.groups, 1))
        return out


@torch.no_grad()
def _averaging(model: nn.Module) -> nn.Module:
    """A copy of the network in which layers average and norms do nothing."""
    model = copy.deepcopy(model).cpu()
    for name, module in list(model.named_modules()):
        plain = isinstance(module, nn.Conv2d) and set(module.dilation) == {1}
        if isinstance(module, nn.Linear) or (plain and not isinstance(module.padding, str)):
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, _Average(module))
        elif isinstance(module, _KINDS):
            module.weight.fill_(1 / module.weight[0].numel())
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            if module.affine:
                module.reset_parameters()
    return model


def _smallest(model: nn.Module, shape: Sequence[int]) -> Tensor:
    """A positive example as small as the network takes it."""
    whole = tuple(shape)
    images = [
        (whole[0], side, side) for side in _SIDES if len(whole) == 3 and side < min(whole[1:])
    ]
    for tried in images:
        example = torch.ones(1, *tried)
        try:
            with _hooked(model, ()):
                out = model(example)
        except RuntimeError:
            continue
        if bool((out != 0).any()):
            return example
    return torch.ones(1, *whole)
