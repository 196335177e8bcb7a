"""Plans: which layers of a network are binary, one letter per layer. The letters are defined here
and nowhere else. What a plan does to a network is in `layers.binary`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitfront.trainables.errors import UserError
from bitfront.trainables.structure.scope import Scope, matching

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Level:
    """The meaning of a letter of a plan. `distance`: its distance from full precision, in steps; S
    is nearer to F than to W."""

    letter: str
    meaning: str
    weight_bits: int
    input_bits: int
    distance: float


BY_LETTER = {
    level.letter: level
    for level in (
        Level("F", "full precision", 32, 32, 0.0),
        Level("S", "full precision, pruned", 32, 32, 0.4),
        Level("W", "binary weights", 1, 32, 1.0),
        Level("B", "binary weights and activations", 1, 1, 2.0),
        Level("A", "binary weights and activations, narrow accumulators", 1, 1, 3.0),
    )
}
LEVELS = {letter: level.meaning for letter, level in BY_LETTER.items()}
BINARY_STEPS = {letter: level.distance for letter, level in BY_LETTER.items()}
# The levels whose layers take binary inputs.
BINARY_INPUTS = "".join(letter for letter, level in BY_LETTER.items() if level.input_bits == 1)


@dataclass(frozen=True)
class PlanLayer:
    """A layer a plan decides: its module path, and the block and stage it belongs to. `real_input`:
    where one level is drawn for several layers, this layer gets W in place of B and A. `tied`: the
    layers that share its weight, and so its letter; `accumulates`: whether it can be of level A."""

    name: str
    block: str
    stage: str
    real_input: bool = False
    tied: tuple[str, ...] = ()
    accumulates: bool = True


# The names torchvision and timm give to layers that change the shape of a shortcut or of a stage.
_BETWEEN = {"downsample", "shortcut"}


def plan_layers(
    model: nn.Module, scope: Scope = "body", keep_full: Sequence[str] = ()
) -> list[PlanLayer]:
    """The layers a plan decides, in forward order: those of the scope (`body`, `all`, or names and
    patterns) but those of `keep_full`. For networks of ours and of libraries; in one of the user's
    own an example is followed (`cost.trace`)."""
    layers = _scope_layers(model, scope if isinstance(scope, str) else "all")
    if isinstance(scope, str) and not keep_full:
        return layers
    names = [layer.name for layer in _scope_layers(model, "all")]
    full = matching(names, keep_full, "keep_full")
    chosen = set(names) if isinstance(scope, str) else matching(names, scope, "binarize")
    return [layer for layer in layers if layer.name in chosen - full]


def _scope_layers(model: nn.Module, scope: str) -> list[PlanLayer]:
    """The layers of the scope `body` or `all`. A network with a method `plan_layers` lists them
    itself. In any other they are all convolutions and linear layers; the body leaves out the first,
    the last, classifiers, and layers in shortcuts or between stages."""
    own = getattr(model, "plan_layers", None)
    if own is not None:
        layers: list[PlanLayer] = own(scope)
        return layers
    names, projections = _weighted(model)
    if scope == "body":
        ends = {*names[:1], *names[-1:], *_classifiers(model)}
        names = [n for n in names if n not in ends and not _BETWEEN & set(n.split("."))]
    return [PlanLayer(n, *block_and_stage(n), accumulates=n not in projections) for n in names]


def _weighted(model: nn.Module) -> tuple[list[str], set[str]]:
    """(names of convolutions and linear layers, those that are projections of the inputs of an
    attention)."""
    from torch import nn

    from bitfront.trainables.structure.attention import names_of
    from bitfront.trainables.structure.kinds import USUAL

    names: list[str] = []
    inside: set[str] = set()
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            found = [f"{name}.{leaf}".lstrip(".") for leaf in names_of(module)]
            names += found
            inside |= set(found)
        elif isinstance(module, USUAL) and module.weight is not None:
            names.append(name)
    return names, inside


def _classifiers(model: nn.Module) -> list[str]:
    """The names of the classifiers of a timm network; it may have several."""
    get = getattr(model, "get_classifier", None)
    found = get() if get is not None else ()
    heads = {id(m) for m in (found if isinstance(found, tuple) else (found,))}
    return [name for name, module in model.named_modules() if id(module) in heads]


def block_and_stage(name: str) -> tuple[str, str]:
    """(block, stage) of a layer's name: `layers.0.blocks.1` and `layers.0` for
    layers.0.blocks.1.mlp.fc1. A block's name ends with the indices after `blocks`, else with the
    first indices; a stage is what holds its blocks."""
    parts = name.split(".")
    start = parts.index("blocks") + 1 if "blocks" in parts else 0
    end = next((i for i in range(start, len(parts)) if parts[i].isdigit()), None)
    if end is None:
        block = parts[:-1] or parts
    else:
        while end + 1 < len(parts) and parts[end + 1].isdigit():
            end += 1
        block = parts[: end + 1]
    stage = block[:-1] or block
    if len(stage) > 1 and stage[-1] == "blocks":
        stage = stage[:-1]
    return ".".join(block), ".".join(stage)


def check_plan(
    plan: str, layers: Sequence[PlanLayer], levels: Sequence[str] | str = "".join(LEVELS)
) -> str:
    """The plan itself; a UserError where its length or a letter is wrong."""
    if len(plan) != len(layers):
        names = ", ".join(layer.name for layer in layers[:6]) + (", ..." if len(layers) > 6 else "")
        raise UserError(
            f"plan: '{plan}' has {len(plan)} letters, the model has {len(layers)} layers to plan",
            f"one letter for each of: {names}" if layers else None,
        )
    for index, level in enumerate(plan):
        if level not in LEVELS:
            raise UserError(
                f"plan: letter {index + 1} is '{level}', a plan has the letters "
                + ", ".join(f"{k} ({v})" for k, v in LEVELS.items())
            )
        if level != "F" and level not in levels:
            raise UserError(
                f"plan: letter {index + 1} is '{level}', but the method takes only "
                + ", ".join(sorted({"F", *levels}, key=list(LEVELS).index))
            )
        if level == "A" and not layers[index].accumulates:
            raise UserError(
                f"plan: letter {index + 1} is 'A', but {layers[index].name} projects the inputs of "
                "an nn.MultiheadAttention, whose sums have no narrow accumulator",
                "give it B or W, or keep it in full precision: task.keep_full",
            )
    return plan


def with_real_inputs(plan: str, layers: Sequence[PlanLayer]) -> str:
    """The plan with W in place of B and A for layers whose input stays real."""
    pairs = zip(plan, layers, strict=True)
    capped = dict.fromkeys(BINARY_INPUTS, "W")
    return "".join(capped.get(level, level) if la.real_input else level for level, la in pairs)


def expand(groups: Sequence[str], letters: Sequence[str]) -> str:
    """The plan that gives every layer the letter of its group (block or stage); letters are in the
    order in which the groups first appear."""
    order = list(dict.fromkeys(groups))
    by_group = dict(zip(order, letters, strict=True))
    return "".join(by_group[group] for group in groups)


def binary_layers(plan: str, layers: Sequence[PlanLayer]) -> list[tuple[PlanLayer, str]]:
    """(layer, letter) of every layer that is not F."""
    return [(layer, level) for layer, level in zip(layers, plan, strict=True) if level != "F"]
