"""`nn.MultiheadAttention`: its projections as layers a plan can decide. torch reads their weights
without calling a layer, and has those of queries, keys and values in one parameter, `in_proj`."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

# The parameters of the projections, and the layers they become.
PARAMETERS = {f"{name}_weight": name for name in ("in_proj", "q_proj", "k_proj", "v_proj")}
OUTPUT = "out_proj"


class Projection(nn.Module):
    """The projection of an attention's inputs: a weight, and a quantizer of inputs as a hook. The
    attention multiplies; called, it returns its input, quantized by its hook if it has one."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight
        self.out_features, self.in_features = weight.shape

    def forward(self, x: Tensor) -> Tensor:
        return x


def _weight(name: str) -> property:
    def found(self: nn.Module) -> Tensor | None:
        layer = self._modules.get(name)
        return None if layer is None else layer.weight  # type: ignore[return-value]

    return property(found)


class Opened:
    """A mixin: an attention whose projections are modules of their own."""

    in_proj_weight = _weight("in_proj")
    q_proj_weight = _weight("q_proj")
    k_proj_weight = _weight("k_proj")
    v_proj_weight = _weight("v_proj")

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        modules: dict[str, Any] = self._modules  # type: ignore[attr-defined]
        query, key, value = _taken(modules, query, key, value)
        projection = modules[OUTPUT]
        if not (projection._forward_pre_hooks or "forward" in vars(projection)):
            return super().forward(query, key, value, *args, **kwargs)  # type: ignore[misc]
        # Something happens when the last projection is called: torch, which only reads its weight,
        # gets the identity in its place.
        modules[OUTPUT] = _identity(projection)
        try:
            out, weights = super().forward(query, key, value, *args, **kwargs)  # type: ignore[misc]
        finally:
            modules[OUTPUT] = projection
        return projection(out), weights


def _taken(
    modules: dict[str, Any], query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs as the projections take them. One that is given twice stays one tensor: torch
    projects it once."""
    if modules.get("in_proj") is None:
        q, k, v = (modules[f"{letter}_proj"] for letter in "qkv")
        return q(query), k(key), v(value)
    taken = {id(x): modules["in_proj"](x) for x in {id(x): x for x in (query, key, value)}.values()}
    return taken[id(query)], taken[id(key)], taken[id(value)]


def _identity(projection: nn.Module) -> SimpleNamespace:
    bias: Tensor | None = projection.bias  # type: ignore[assignment]
    width: int = projection.in_features  # type: ignore[assignment]
    weight: Tensor = projection.weight  # type: ignore[assignment]
    return SimpleNamespace(
        weight=torch.eye(width, device=weight.device, dtype=weight.dtype),
        bias=None if bias is None else torch.zeros_like(bias),
    )


@lru_cache(maxsize=64)
def _opened_class(attention: Any) -> Any:
    return type(f"Opened{attention.__name__}", (Opened, attention), {})


def open_attention(attention: nn.MultiheadAttention) -> None:
    """Make the projections of an attention modules of their own, in place: `in_proj`, or `q_proj`,
    `k_proj` and `v_proj`. It computes what it did before."""
    if isinstance(attention, Opened):
        return
    for parameter, name in PARAMETERS.items():
        weight = attention._parameters.pop(parameter, None)
        if weight is not None:
            attention.add_module(name, Projection(weight))
    found: Any = type(attention)
    attention.__class__ = _opened_class(found)


def open_attentions(model: nn.Module, names: set[str]) -> None:
    """Open the attentions of a network whose projections are among these names of layers."""
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.MultiheadAttention) and any(
            f"{path}.{name}".lstrip(".") in names for name in (*PARAMETERS.values(), OUTPUT)
        ):
            open_attention(module)


def names_of(attention: nn.MultiheadAttention) -> list[str]:
    """The names of the projections of an attention's inputs, opened or not."""
    return [
        name
        for parameter, name in PARAMETERS.items()
        if attention._parameters.get(parameter) is not None or name in attention._modules
    ]


def projections(attention: nn.MultiheadAttention) -> dict[str, nn.Parameter]:
    """The weights of the projections of an attention, by the names of their layers, in the order of
    their use. An output projection whose weight is computed is left out."""
    found = {
        name: weight
        for parameter, name in PARAMETERS.items()
        if (weight := attention._parameters.get(parameter)) is not None
    }
    last = attention.out_proj._parameters.get("weight")
    return found | ({} if last is None else {OUTPUT: last})


def old_name(model: nn.Module, name: str) -> str:
    """The name that a parameter has in a network whose attentions have not been opened."""
    path, _, tensor = name.rpartition(".")
    holder, _, leaf = path.rpartition(".")
    if tensor == "weight" and leaf in PARAMETERS.values():
        found = model.get_submodule(holder)
        if isinstance(found, Opened):
            return f"{holder}.{leaf}_weight".lstrip(".")
    return name
