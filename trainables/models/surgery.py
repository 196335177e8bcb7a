"""Changes to networks of libraries, made from outside by hooks: the names of their layers, and so
their checkpoints, stay valid. Also lists attentions, and undoes compilation."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from bitfront.trainables.errors import UserError


def resize_input(model: nn.Module, size: tuple[int, ...]) -> None:
    """Make the network resize every batch of images to `size` first."""

    def resize(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x = F.interpolate(args[0], size=size, mode="bilinear", align_corners=False, antialias=True)
        return (x, *args[1:])

    model.register_forward_pre_hook(resize)


def repeat_grey(model: nn.Module, called: str, channels: int) -> None:
    """Make the network repeat the channel of grey images three times first."""
    if channels != 1:
        raise UserError(f"model.name: {called} takes 1 or 3 channels, not {channels}")

    def repeat(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0].expand(-1, 3, -1, -1), *args[1:])

    model.register_forward_pre_hook(repeat)


def keep_all_paths(model: nn.Module) -> None:
    """Make no block of a network of timm be skipped in training."""
    from timm.layers.drop import DropPath

    for module in model.modules():
        if isinstance(module, DropPath):
            module.drop_prob = 0.0


def without_compilation(model: nn.Module) -> nn.Module:
    """The network that `torch.compile` was given, its parts likewise: compiled code would be made
    anew for every change of a layer, and knows nothing of it otherwise."""
    for module in model.modules():
        module._compiled_call_impl = None
        for name, child in module.named_children():
            if is_compiled(child):
                setattr(module, name, child._orig_mod)
    return model._orig_mod if is_compiled(model) else model  # type: ignore[return-value]


def is_compiled(model: nn.Module) -> bool:
    """Whether it is what `torch.compile` returns. Told by its name, since the module of its class
    takes a second to import."""
    return type(model).__name__ == "OptimizedModule" and hasattr(model, "_orig_mod")


def patch_size(model: nn.Module) -> tuple[int, int]:
    """(height, width) of the patches a transformer cuts images into; (1, 1) for other networks."""
    found = getattr(getattr(model, "patch_embed", None), "patch_size", (1, 1))
    height, width = found if isinstance(found, tuple | list) else (found, found)
    return (int(height), int(width))


def attentions(model: nn.Module) -> dict[str, nn.Module]:
    """The self-attentions of a network by name: those with one linear layer for queries, keys and
    values together, as in timm."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(getattr(module, "qkv", None), nn.Linear)
        and isinstance(getattr(module, "proj", None), nn.Linear)
        and hasattr(module, "num_heads")
    }


def _normed(module: nn.Module, _args: tuple[Any, ...], out: Tensor) -> Tensor:
    normed: Tensor = module.added_norm(out)  # type: ignore[operator]
    return normed


def add_attention_norms(model: nn.Module, called: str) -> None:
    """Add a LayerNorm behind the projection of every attention, x + LN(proj(attention(...))), with
    weight 1 and bias 0 at first (protocol 2 of PC++, docs/methods.md 1.11, 1.15)."""
    found = attentions(model)
    if not found:
        raise UserError(
            f"model.attention_norm: {called} has no attention to put a LayerNorm behind"
        )
    for module in found.values():
        width: int = module.proj.out_features  # type: ignore[union-attr,assignment]
        module.add_module("added_norm", nn.LayerNorm(width))
        module.register_forward_hook(_normed)
