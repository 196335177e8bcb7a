"""The declaration every architecture carries, and the registry of them. Building a network needs
torch, listing them does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainables.parameters import Param, Value, resolve
from trainables.registry import Registry

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ModelInfo:
    """A network family: its parameters and how to build one for an input shape."""

    name: str
    doc: str
    build: Callable[..., nn.Module]
    params: dict[str, Param] = field(default_factory=dict)
    image: bool = True
    kind: str = "classification"

    def resolve(self, given: dict[str, Any]) -> dict[str, Value]:
        return resolve("model", self.params, given)


MODELS: Registry[ModelInfo] = Registry("model")


def build_model(name: str, params: dict[str, Any], shape: Shape, classes: int) -> nn.Module:
    """A freshly initialised network for inputs of `shape` (channels first)."""
    info = MODELS.get(name)
    return info.build(shape=shape, classes=classes, **info.resolve(params))
