"""The declaration every architecture carries, and the registry of them. Building a network needs
torch, listing them does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bitfront.trainables.errors import UnknownNameError, UserError, did_you_mean
from bitfront.trainables.parameters import Param, Value, resolve
from bitfront.trainables.registry import Registry

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


def check_image(name: str, shape: Shape) -> None:
    if len(shape) != 3:
        raise UserError(f"model.name: {name} takes images, not inputs of shape {shape}")


# What `LIBRARY/name` means: a library's name to a function that declares any of its networks.
LIBRARIES: dict[str, Callable[[str], ModelInfo]] = {}


class ModelRegistry(Registry[ModelInfo]):
    """The declared models, and any network of a library: `timm/deit_tiny_patch16_224`."""

    def get(self, name: str) -> ModelInfo:
        library, slash, rest = name.partition("/")
        if not slash:
            return super().get(name)
        if library not in LIBRARIES:
            hint = did_you_mean(library, LIBRARIES)
            raise UnknownNameError(f"unknown library '{library}' in model '{name}', {hint}")
        return LIBRARIES[library](rest)


MODELS = ModelRegistry("model")


def build_model(name: str, params: dict[str, Any], shape: Shape, classes: int) -> nn.Module:
    """A freshly initialised network for inputs of `shape` (channels first)."""
    info = MODELS.get(name)
    return info.build(shape=shape, classes=classes, **info.resolve(params))
