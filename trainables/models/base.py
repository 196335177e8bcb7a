"""What a model is: a class or function that builds a network for an input shape, with its
parameters declared in its signature. The families are the other modules of this folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from bitfront.trainables.errors import UnknownNameError, UserError, did_you_mean
from bitfront.trainables.own_code import is_reference
from bitfront.trainables.own_code.signatures import summary
from bitfront.trainables.parameters import Domain, Param, Value, resolve
from bitfront.trainables.registry import Registry

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, ...]
Build = TypeVar("Build", bound=Callable[..., Any])


def parameter(default: Value, domain: Domain, doc: str, search: Domain | None = None) -> Any:
    """A declared parameter, written as the default value of a model's argument."""
    return Param(default, domain, doc, search)


@dataclass(frozen=True)
class ModelInfo:
    """A network family: its parameters and how to build one for an input shape."""

    name: str
    doc: str
    build: Callable[..., nn.Module]
    params: dict[str, Param] = field(default_factory=dict)
    image: bool = True
    kind: str = "classification"

    def resolve(self, given: dict[str, Any]) -> dict[str, Any]:
        """The values of all parameters: the given one, else the default."""
        return dict(resolve("model", self.params, given))

    def param(self, name: str) -> Param | None:
        """The declaration of a parameter; None where there is none of that name."""
        return self.params.get(name)

    def make(self, shape: Shape, classes: int, given: dict[str, Any]) -> nn.Module:
        """A freshly initialised network."""
        return self.build(shape=shape, classes=classes, **self.resolve(given))


# For models named `LIBRARY/name`: a function per library that declares any of its networks.
LIBRARIES: dict[str, Callable[[str], ModelInfo]] = {}


class ModelRegistry(Registry[ModelInfo]):
    """The declared models, any network of a library, `timm/deit_tiny_patch16_224`, and any of the
    user's own, `my_net.py:MyNet`."""

    def get(self, name: str) -> ModelInfo:
        library, slash, rest = name.partition("/")
        if not slash or is_reference(name):
            return super().get(name)
        self.find()
        if library not in LIBRARIES:
            hint = did_you_mean(library, LIBRARIES)
            raise UnknownNameError(f"unknown library '{library}' in model '{name}', {hint}")
        return LIBRARIES[library](rest)

    def declare(
        self, name: str, *, image: bool = True, kind: str = "classification"
    ) -> Callable[[Build], Build]:
        """A decorator that registers `build(shape, classes, *, parameter=...)`. The first paragraph
        of its docstring is its description in listings. `image`: it takes images only; `kind`: the
        kind of task it is for."""

        def add(build: Build) -> Build:
            given = inspect.signature(build).parameters
            params = {k: p.default for k, p in given.items() if isinstance(p.default, Param)}
            doc = summary(build)

            def checked(shape: Shape, classes: int, **values: Value) -> nn.Module:
                if image and len(shape) != 3:
                    raise UserError(f"model.name: {name} takes images, not inputs of shape {shape}")
                network: nn.Module = build(shape, classes, **values)
                return network

            self.add(name, ModelInfo(name, doc, checked, params, image, kind))
            return build

        return add


MODELS = ModelRegistry("model", package=__package__)


def build_model(name: str, params: dict[str, Any], shape: Shape, classes: int) -> nn.Module:
    """A freshly initialised network for inputs of `shape` (channels first)."""
    return MODELS.get(name).make(shape, classes, params)
