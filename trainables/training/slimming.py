"""Network slimming (Liu et al., ICCV 2017), the structured-pruning baseline of MixBin
(docs/methods.md 4.5): a full-precision network is trained with an L1 penalty on its batch-norm
scales, loses the channels with the smallest scales until it meets a budget, and is trained again
without them.

Its flops are counted by MixBin's convention: (n + 3e) times the share of output channels that a
layer keeps, for n MACs and e output elements. Input channels count in full: with a shortcut around
every convolution the input contains channels of other layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.costs.flops import PER_ELEMENT
from bitfront.trainables.data import Part, in_order
from bitfront.trainables.methods import Method
from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.checkpoint_files import load_weights, weights_of
from bitfront.trainables.training.loop import Training

Norms = dict[str, nn.modules.batchnorm._BatchNorm]


@dataclass(frozen=True)
class Slimmed:
    """The result of network slimming: the channels that are left, the cost and the accuracy."""

    kept: dict[str, int]
    """channels that are left, by layer"""
    flops_pct: float
    val_accuracy: float
    training_epochs: int


def norms_after(model: nn.Module, layers: list[str], example: Tensor) -> Norms:
    """The batch norm that takes each layer's output, by name of the layer, determined by one
    forward pass."""
    made: dict[int, str] = {}
    kept: list[Tensor] = []  # keeps outputs alive, so that no id is used twice
    found: Norms = {}

    def after(name: str) -> Any:
        def hook(_module: nn.Module, _args: Any, output: Tensor) -> None:
            made[id(output)] = name
            kept.append(output)

        return hook

    def before(module: nn.Module, args: Any) -> None:
        if id(args[0]) in made:
            found[made[id(args[0])]] = module  # type: ignore[assignment]

    handles = []
    for name, module in model.named_modules():
        if name in layers:
            handles.append(module.register_forward_hook(after(name)))
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            handles.append(module.register_forward_pre_hook(before))
    was_training = model.training
    try:
        model.eval()
        with torch.no_grad():
            model(example)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return found


def slim_pct(table: CostTable, kept: Mapping[str, float]) -> float:
    """The flops of a slimmed network in percent of those of the whole one; `kept` is the share of
    channels that is left, by layer."""
    whole = left = 0.0
    for layer in table.layers:
        if layer.kind == "classifier" and not layer.planned:
            continue
        flops = layer.macs + PER_ELEMENT * layer.elements
        whole += flops
        left += flops * kept.get(layer.name, 1.0)
    return 100.0 * left / whole


def channels_to_keep(
    table: CostTable, scales: Mapping[str, Tensor], budget_pct: float
) -> dict[str, Tensor]:
    """Masks of the channels to keep, by layer. Channels are removed in the order of |scale| over
    all layers until the network is within the budget; every layer keeps at least one."""
    masks = {name: torch.ones(len(s), dtype=torch.bool) for name, s in scales.items()}
    shares = dict.fromkeys(scales, 1.0)
    ranked = sorted(
        (float(value), name, index)
        for name, s in scales.items()
        for index, value in enumerate(s.abs().tolist())
    )
    for _, name, index in ranked:
        if slim_pct(table, shares) <= budget_pct:
            break
        if int(masks[name].sum()) > 1:
            masks[name][index] = False
            shares[name] = float(masks[name].float().mean())
    return masks


class SmallScales(Method):
    """Full-precision training with an L1 penalty on batch-norm scales gamma: after each step of the
    optimizer a proximal step, gamma <- sign(gamma) max(|gamma| - lr penalty, 0)."""

    name = "slimming: sparse"

    def __init__(self, training: Training, norms: Norms, penalty: float) -> None:
        super().__init__()
        self.training = training
        self.norms = norms
        self.shrink = penalty

    @torch.no_grad()
    def after_step(self) -> None:
        by = self.shrink * self.training.optimizer.param_groups[0]["lr"]
        for norm in self.norms.values():
            norm.weight.copy_(norm.weight.sign() * (norm.weight.abs() - by).clamp_min(0.0))


class WithoutChannels(Method):
    """Full-precision training without the removed channels, whose outputs are 0."""

    name = "slimming: without channels"

    def __init__(self, norms: Norms, masks: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.norms = norms
        self.masks = masks
        self.after_step()

    @torch.no_grad()
    def after_step(self) -> None:
        for name, norm in self.norms.items():
            norm.weight.mul_(self.masks[name])
            norm.bias.mul_(self.masks[name])


def slim(
    task: Task,
    budget_pct: float,
    data: tuple[Part, Part],
    penalty: float = 1e-4,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Slimmed:
    """Train with the penalty, remove channels, train the rest with the same schedule; returns the
    result."""
    table = task_cost_table(task)
    names = [layer.name for layer in table.plan_layers]
    spec = TrialSpec(task=task, plan="F" * len(names), seed=seed)
    sparse = Training(spec, *data, device, validate_each_epoch=False)
    example, _ = next(in_order(sparse.train, 2))
    sparse.method = SmallScales(sparse, norms_after(sparse.model, names, example), penalty)
    while not sparse.done:
        sparse.epoch()
    scales = {name: norm.weight.detach().cpu() for name, norm in sparse.method.norms.items()}
    masks = channels_to_keep(table, scales, budget_pct)
    final = Training(spec, *data, device, validate_each_epoch=False)
    load_weights(final.model, weights_of(sparse.model), "the sparse network")
    on_device = {name: mask.to(device) for name, mask in masks.items()}
    final.method = WithoutChannels(norms_after(final.model, names, example), on_device)
    while not final.done:
        final.epoch()
    return Slimmed(
        kept={name: int(mask.sum()) for name, mask in masks.items()},
        flops_pct=slim_pct(table, {n: float(m.float().mean()) for n, m in masks.items()}),
        val_accuracy=final.history[-1]["val_accuracy"],
        training_epochs=2 * task.epochs,
    )
