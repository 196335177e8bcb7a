"""Whether the binary activations of a search say anything, measured on the most binary network of
its space with a few examples, before the first trial (`trainables.layers.responses`)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from bitfront.search.config.bounds import extreme_specs
from bitfront.spaces.space import Space
from bitfront.trainables.cost import task_cost_table
from bitfront.trainables.data import DATASETS, in_order, load_train
from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.responses import Responses, respond
from bitfront.trainables.models.own import hint_for
from bitfront.trainables.own_code import is_reference, shown
from bitfront.trainables.own_code.loading import blamed
from bitfront.trainables.plan import BINARY_INPUTS, with_real_inputs
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.tasks import kind_of
from bitfront.trainables.training.network import Network

# How many examples are looked at; fewer where they would take more than MOST_FLOPS (multiply-adds,
# some seconds of a CPU core), and a network that two of them take too long with is not looked at.
EXAMPLES, MOST_FLOPS = 8, 5e10
# The largest network that is built for it, in parameters.
MOST_PARAMETERS = 300_000_000
# Layers that a warning names.
NAMED = 3

_HINT = "task.activations: norm makes the sign of an input mean above or below its average"
_AFTER = "look at what the network computes of the output of its last layer"


def unresponsive(space: Space, read: bool = True) -> str | None:
    """A warning where binary inputs of the network are the same for every example; None where they
    are not. Raises UserError where the outputs are the same, too, in a network of a library or of
    the user's own: no training would help. `read`: read examples of the dataset; else they are
    random, unless the package has the dataset."""
    spec = _most_binary(space)
    responses = None if spec is None else measured(spec, read)
    if spec is None or responses is None:
        return None
    name, hint = shown(spec.task.model.name), _hint(spec)
    if responses.constant and not spec.task.declared:
        raise UserError(
            f"{name}: with all binary layers that the plan allows, its output is the same for "
            f"every example: {_reason(responses)}",
            hint if responses.degenerate else _AFTER,
        )
    if not responses.finite and not spec.task.declared:
        return f"{name}: its output has NaN or infinite numbers before any training"
    return f"{name}: {_reason(responses)}; {hint}" if responses.degenerate else None


def _reason(responses: Responses) -> str:
    """Which layers get the same signs whatever the example is."""
    layers = responses.degenerate
    if not responses.layers:
        return "no activation is binary, so that it is the network itself"
    if not layers:
        return "binary activations tell examples apart, but what follows does not"
    names = ", ".join(layers[:NAMED]) + (", ..." if len(layers) > NAMED else "")
    return (
        f"{len(layers)} of {len(responses.layers)} layers get the same binary input for every "
        f"example ({names})"
    )


def _hint(spec: TrialSpec) -> str:
    if spec.task.settled_activations != "norm":
        return _HINT
    return "leave B out of space.plan, or leave these layers in full precision"


def _most_binary(space: Space) -> TrialSpec | None:
    """The point with the most binary inputs, of the task's own network if the space has it. None
    where no point has any, but not for a network of the user's own, of which nobody knows yet
    whether it looks at its input."""
    found = []
    for spec in extreme_specs(space):
        plan = with_real_inputs(spec.plan, task_cost_table(spec.task).plan_layers)
        inputs = sum(letter in BINARY_INPUTS for letter in plan)
        found.append((spec.task == space.task, inputs, spec.model_copy(update={"plan": plan})))
    own = is_reference(space.task.model.name)
    with_inputs = [point for point in found if point[1] or own]
    return max(with_inputs, key=lambda point: point[:2])[2] if with_inputs else None


def measured(spec: TrialSpec, read: bool = True) -> Responses | None:
    """The responses of the network of a trial; None where it is too large to be looked at, or takes
    something else than tensors."""
    return _measured(spec.canonical().model_dump_json(), read)


@lru_cache(maxsize=64)
def _measured(text: str, read: bool) -> Responses | None:
    spec = TrialSpec.model_validate_json(text)
    table = task_cost_table(spec.task)
    flops = max(1.0, table.totals("F" * len(spec.plan))["flops"])
    examples = min(EXAMPLES, int(MOST_FLOPS // flops))
    if examples < 2 or table.parameters > MOST_PARAMETERS:
        return None
    x = _examples(spec.task, examples, read)
    if x is None:
        return None
    with torch.random.fork_rng([]):
        torch.manual_seed(spec.seed)
        network = Network(spec)
    name = spec.task.model.name
    if not is_reference(name):
        return respond(network.model, network.binary, x)
    try:
        with blamed(name, f"{shown(name)} fails on examples of the data"):
            return respond(network.model, network.binary, x)
    except UserError as error:
        raise UserError(error.message, error.hint or hint_for(error)) from error


def _examples(task: Task, count: int, read: bool) -> Tensor | None:
    """Some examples of the dataset of a task, or random ones of their shape; None where examples
    are not single tensors."""
    info = DATASETS.get(task.dataset)
    if kind_of(task.dataset).networks != "classification":
        return None
    if info.embedded or read:
        part = load_train(task.dataset, task.data_dir, task.normalize)
        x, _ = next(iter(in_order(part.subset(_spaced(len(part), count)), count)))
        if isinstance(x, Tensor) and len(x) > 1:
            return x
    if info.integers:  # which of them the network knows is not known
        return None
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, *info.shape, generator=generator)


def _spaced(size: int, count: int) -> Tensor:
    """`count` places spread over a dataset, whose neighbours may be of one class."""
    return torch.linspace(0, size - 1, min(size, count)).long()
