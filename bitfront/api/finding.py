"""Which layers of a network the letters of a plan stand for in `bf.binarize` and `bf.cost`: those
that they stand for in a search over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from torch import Tensor, nn

from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.plan import LEVELS, PlanLayer, plan_layers, with_real_inputs
from bitfront.trainables.settings import Activations, settled_activations
from bitfront.trainables.structure.counting import Site
from bitfront.trainables.structure.passing import guessed, has_names, of_shape, passed
from bitfront.trainables.structure.scope import SCOPES, Scope

if TYPE_CHECKING:
    import pandas as pd

SAY_SHAPE = "say what it takes: shape=(3, 32, 32), without the batch, or example=x[:1], a batch"


@dataclass(frozen=True)
class Chosen:
    """What a task says of its layers: `binarize`, `keep_full` and `activations`, which is never
    `auto`."""

    scope: Scope
    keep_full: tuple[str, ...]
    activations: str


def chosen_for(
    model: nn.Module, binarize: Scope, keep_full: Sequence[str], activations: str
) -> Chosen:
    """The choices for a network, checked."""
    known = get_args(Activations)
    if activations not in known:
        raise UserError(f"activations: {activations}, {did_you_mean(activations, known)}")
    if isinstance(binarize, str) and binarize not in SCOPES:
        raise UserError(
            f"binarize: {quoted(binarize)} is not known, {did_you_mean(binarize, SCOPES)}",
            "or a list of layers: binarize=['stage3.*']",
        )
    listed = (keep_full,) if isinstance(keep_full, str) else tuple(keep_full)
    scope = binarize if isinstance(binarize, str) else tuple(binarize)
    ours = type(model).__module__.startswith("bitfront.trainables.models.")
    return Chosen(scope, listed, settled_activations(activations, ours))  # type: ignore[arg-type]


def inputs_for(
    model: nn.Module, shape: Sequence[int] | None, example: Any, called: str
) -> Tensor | None:
    """The batch that is followed through the network: the example, or zeros of the shape; None
    where neither is given. `called`: the function that errors name."""
    if not isinstance(model, nn.Module):
        raise UserError(f"{called}: {type(model).__name__} is no network", "pass an nn.Module")
    if example is not None:
        if not isinstance(example, Tensor) or example.dim() < 2 or not len(example):
            what = f"a {type(example).__name__}"
            what += f" of shape {tuple(example.shape)}" if isinstance(example, Tensor) else ""
            raise UserError(f"{called}: example is {what}, not a batch of inputs", "example=x[:1]")
        return example
    if shape is None:
        return None
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(type(side) is int and side > 0 for side in extents):
        raise UserError(f"{called}: {shape} is no shape of an input", "shape=(3, 32, 32)")
    return of_shape(model, extents)


def found_layers(
    model: nn.Module, scope: Scope, keep_full: Sequence[str], inputs: Tensor | None
) -> list[PlanLayer]:
    """The layers that a plan decides. In a network whose layers have known names, and in one that
    lists them itself, no example is needed; in others one of a guessed shape is followed where
    `inputs` is None."""
    if has_names(model) or callable(getattr(model, "plan_layers", None)):
        layers = plan_layers(model, scope, keep_full)
    else:
        batch = guessed(model) if inputs is None else inputs
        if batch is None:
            raise UserError(
                f"binarize: the layers of {type(model).__name__} are found by following an example "
                "through it, and no shape that was tried fits",
                SAY_SHAPE,
            )
        layers = passed(model, batch).planned(scope, keep_full)
    if not layers:
        raise UserError(
            f"binarize: {type(model).__name__} has no layer that a plan decides",
            "first and last layers are left out: binarize='all' takes them too",
        )
    return layers


def for_all(plan: str, layers: Sequence[PlanLayer]) -> str:
    """The plan; one letter stands for all layers."""
    if len(plan) == 1 and plan in LEVELS and len(layers) != 1:
        return with_real_inputs(plan * len(layers), layers)
    return plan


def layers_table(layers: Sequence[PlanLayer], plan: str, sites: Mapping[str, Site]) -> pd.DataFrame:
    """A row per letter of the plan: its layer, what kind of layer that is, the shape of its weight,
    and the layers that share it."""
    import pandas as pd

    return pd.DataFrame(
        {
            "layer": layer.name,
            "level": level,
            "kind": sites[layer.name].kind,
            "weight": "x".join(map(str, sites[layer.name].weight)),
            "shared_with": ", ".join(layer.tied),
        }
        for layer, level in zip(layers, plan, strict=True)
    )
