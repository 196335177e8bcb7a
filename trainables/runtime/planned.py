"""Networks under plans as loading a packed file makes them, with random weights: latency does not
depend on values. For measuring; a trained network is loaded by `bitfront.trainables.packed`."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.cost import CostTable, cost_table
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.inputs import SignInput, quantize_input
from bitfront.trainables.layers.quantizers import sign
from bitfront.trainables.layers.sums import sum_first_fixed
from bitfront.trainables.layers.treatments import treated
from bitfront.trainables.models import Shape, build_model
from bitfront.trainables.models.activations import with_activations
from bitfront.trainables.plan import PlanLayer
from bitfront.trainables.runtime.network import Fast, fast
from bitfront.trainables.structure.attention import Projection, open_attentions
from bitfront.trainables.structure.kinds import outputs_of
from bitfront.trainables.structure.scope import Scope
from bitfront.trainables.task import Task
from bitfront.trainables.training.network import laid_out, layout_of

# Levels that run otherwise than in torch's simulation of training.
MEASURED = "FWB"


@dataclass(frozen=True)
class Subject:
    """A network that is measured, and which of its layers a plan decides."""

    model: str
    params: dict[str, Any]
    shape: Shape
    classes: int
    scope: Scope = "body"
    keep_full: Sequence[str] = ()
    activations: str = "keep"
    integers: bool | None = None
    axes: bool = False

    @classmethod
    def of(cls, task: Task) -> Subject:
        """The network of a task."""
        info = DATASETS.get(task.dataset)
        return cls(
            task.model.name,
            task.model.params,
            info.shape,
            info.classes,
            task.binarize,
            task.keep_full,
            task.settled_activations,
            info.integers,
            info.has_axes,
        )

    @cached_property
    def table(self) -> CostTable:
        """Its layers; its identity."""
        return cost_table(
            self.model,
            self.params,
            self.shape,
            self.classes,
            self.scope,
            activations=self.activations,
            keep_full=self.keep_full,
            integers=self.integers,
            axes=self.axes,
        )

    @property
    def layers(self) -> tuple[PlanLayer, ...]:
        """The layers that a plan decides."""
        return self.table.plan_layers

    def inputs(self, batch: int) -> Tensor:
        """So many examples."""
        shape = (batch, *self.shape)
        if self.integers:
            return torch.arange(math.prod(shape)).view(shape) % 2
        return torch.randn(shape, generator=torch.Generator().manual_seed(0))

    @cached_property
    def full(self) -> nn.Module:
        """The network in full precision, as it is laid out when it is loaded."""
        torch.manual_seed(0)
        model = build_model(self.model, self.params, self.shape, self.classes)
        model = with_activations(model, self.activations, self.shape, self.model)
        return laid_out(model, layout_of(self.model, model)).eval().requires_grad_(False)

    @torch.no_grad()
    def at(self, plan: str) -> Fast:
        """The network under a plan, on kernels where they fit. Layers of levels F share their
        weights with the network in full precision, so that many plans fit into memory."""
        unknown = set(plan) - set(MEASURED)
        if unknown:
            raise UserError(
                f"level {min(unknown)} is not measured: no runtime computes it faster than torch "
                "simulates it"
            )
        shared = {id(p): p for p in self.full.parameters()}
        network = copy.deepcopy(self.full, shared)
        decided = [(layer, level) for layer, level in zip(self.layers, plan, strict=True)]
        binary = [(layer, level) for layer, level in decided if level != "F"]
        open_attentions(network, {layer.name for layer, _ in binary})
        for layer, level in binary:
            for name in (layer.name, *layer.tied):
                self._binarized(network.get_submodule(name), level)
        made = fast(network, self.inputs(2))
        _share(made.network, self.full)
        return made

    def _binarized(self, module: Any, level: str) -> None:
        """Make a layer what loading makes of one with binary weights, in place."""
        signs = sign(module.weight.detach())
        module.weight = nn.Parameter(signs, requires_grad=False)
        if level == "B":
            if not isinstance(module, Projection):
                sum_first_fixed(module, torch.full((outputs_of(module),), 0.01))
            quantize_input(module, treated(self.activations, module, SignInput(None)))
        else:
            module.weight.data *= 0.01
        module.eval()


def _share(network: nn.Module, full: nn.Module) -> None:
    """Let layers of a copy that are those of `full` have its weights."""
    own = dict(full.named_modules())
    for name, module in network.named_modules():
        other = own.get(name)
        if other is None or type(other) is not type(module):
            continue
        for key, value in module._parameters.items():
            same = other._parameters.get(key)
            if value is not None and same is not None and torch.equal(value, same):
                module._parameters[key] = same
