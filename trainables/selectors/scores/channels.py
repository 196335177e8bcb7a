"""Which channels network slimming removes: those of the smallest batch-norm scales of a network
that was trained to have small ones (Liu et al., ICCV 2017; docs/methods.md 4.5)."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch

from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.costs import KeptChannels
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.channels import Wiring
from bitfront.trainables.methods.slimming import Left, written
from bitfront.trainables.models import build_model
from bitfront.trainables.models.activations import with_activations
from bitfront.trainables.selectors.scores.scoring import Scoring
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.network import Network

Scales = Mapping[str, Sequence[float]]


def channel_scales(scoring: Scoring, penalty: float) -> dict[str, list[float]]:
    """|gamma| of every channel with a batch norm behind it, by layer, after a training with the L1
    penalty; it is kept for the trials, which start from it."""
    task = scoring.spec.task
    spec = TrialSpec(
        task=task,
        method="slimming",
        params={"penalty": penalty},
        plan="S" * scoring.layers,
        seed=scoring.spec.seed,
    )
    network = Network(spec, "cpu")
    weights = scoring.trained_weights(spec, f"{task.epochs} epochs with a penalty on scales")
    parameters = {id(p): name for name, p in network.model.named_parameters()}
    return {
        layer: weights[parameters[id(norm.weight)]].abs().tolist()
        for layer, norm in network.method.norms.items()  # type: ignore[attr-defined]
    }


def channels_within(task: Task, scales: Scales, budget_pct: float, seed: int = 0) -> str:
    """The channels that are left within a budget, as `slimming.channels` has them. Channels are
    removed in the order of their scales over all layers, each layer keeps one at least, and the
    first network within the budget is taken; without scales, random ones stand in."""
    given = json.dumps({name: list(values) for name, values in scales.items()})
    return _within(task.model_dump_json(), given, budget_pct, seed)


@lru_cache(maxsize=256)
def _within(task: str, scales: str, budget_pct: float, seed: int) -> str:
    slimmer = _slimmer(task, scales, seed)
    low, high = 0, len(slimmer.order)
    while low < high:  # the cost falls with every channel that is removed
        middle = (low + high) // 2
        if slimmer.pct(middle) <= budget_pct:
            high = middle
        else:
            low = middle + 1
    return written(slimmer.left(low))


@lru_cache(maxsize=8)
def _slimmer(task: str, scales: str, seed: int) -> Slimmer:
    given = Task.model_validate_json(task)
    info = DATASETS.get(given.dataset)
    model = build_model(given.model.name, given.model.params, info.shape, info.classes)
    model = with_activations(model, given.settled_activations, info.shape, given.model.name)
    table = task_cost_table(given)
    wiring = Wiring(model, [layer.name for layer in table.layers], info.shape)
    channels = wiring.channels()
    found: dict[str, list[float]] = json.loads(scales)
    if not found:
        rng = random.Random(seed)
        found = {name: [rng.random() for _ in range(count)] for name, count in channels.items()}
    if {name: len(values) for name, values in found.items()} != channels:
        raise UserError("slimming: its scales are those of another network")
    return Slimmer(table, wiring, found)


class Slimmer:
    """A network from which channels are removed one after the other, the smallest scale first."""

    def __init__(self, table: CostTable, wiring: Wiring, scales: Scales) -> None:
        self.table = table
        self.wiring = wiring
        ranked = sorted(
            (value, name, channel)
            for name, values in scales.items()
            for channel, value in enumerate(values)
        )
        last = {name: channel for _, name, channel in ranked}
        self.order = [(name, channel) for _, name, channel in ranked if last[name] != channel]
        places = {channel: place for place, channel in enumerate(self.order)}
        self.places = {
            name: torch.tensor([places.get((name, i), len(places)) for i in range(len(values))])
            for name, values in scales.items()
        }
        self.whole = {la.name: torch.ones(la.channels, dtype=torch.bool) for la in table.layers}

    def left(self, removed: int) -> dict[str, Left]:
        """What is left of every layer without the first `removed` channels of the order. Inputs
        that are zero for every example are gone too."""
        outputs = {name: places >= removed for name, places in self.places.items()}
        found = {}
        for name, inputs in self.wiring.inputs(outputs).items():
            outs = outputs.get(name, self.whole.get(name))
            if outs is not None:
                kept = self.wiring.weights(name, outs, inputs)
                found[name] = Left(tuple(outs.tolist()), tuple(inputs.tolist()), kept)
        return found

    def pct(self, removed: int) -> float:
        """The flops without the first `removed` channels, in percent of the whole network's."""
        left = self.left(removed)
        kept = {name: KeptChannels(each.weights, sum(each.outputs)) for name, each in left.items()}
        plan = "S" * len(self.table.plan_layers)
        return self.table.totals(plan, kept=kept)["flops_pct"]
