"""Binary layers and networks that were not trained: what kernels are tested and measured with."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.layers.binary import apply_plan
from bitfront.trainables.layers.inputs import SignInput, quantize_input
from bitfront.trainables.layers.quantizers import sign
from bitfront.trainables.layers.sums import sum_first_fixed
from bitfront.trainables.layers.treatments import treated
from bitfront.trainables.methods import build_method
from bitfront.trainables.models import build_model
from bitfront.trainables.plan import plan_layers
from bitfront.trainables.structure.kinds import per_channel
from bitfront.trainables.training.network import laid_out


@torch.no_grad()
def made_binary(
    layer: nn.Module, scale: Tensor | None = None, shifted: bool = False, activations: str = "keep"
) -> nn.Module:
    """The layer as a loaded network has it: its weight is its signs, its input is quantized."""
    weight: Any = layer.weight
    weight.copy_(sign(weight))
    weight.requires_grad_(False)
    sum_first_fixed(layer, scale)
    shift = torch.randn(per_channel(layer, inputs=True)) if shifted else None
    quantizer = treated(activations, layer, SignInput(shift))
    for module in quantizer.modules():
        drawn_statistics(module)
    quantize_input(layer, quantizer)
    return layer.eval()


@torch.no_grad()
def drawn_statistics(module: nn.Module) -> None:
    """Means, variances, factors and shifts of a norm at random, as if it had been trained."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        module.running_mean.normal_()  # type: ignore[union-attr]
        module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
        if module.affine:
            module.weight.uniform_(-2, 2)
            module.bias.normal_()


def planned_network(
    name: str, params: dict[str, Any], shape: tuple[int, ...], plan: str, **given: Any
) -> tuple[nn.Module, nn.Module]:
    """(the network in full precision, the same network under a plan), both as loading lays them
    out. One letter of a plan stands for all layers."""
    model = build_model(name, params, shape, 10).eval()
    for module in model.modules():
        drawn_statistics(module)
    full = laid_out(copy.deepcopy(model)).eval()
    layers = plan_layers(model)
    letters = plan * len(layers) if len(plan) == 1 else plan
    method = build_method(given.pop("method", "bnn"), given)
    binary = apply_plan(model, layers, letters, method)
    for each in binary:
        signs, scale = each.hard_parts()
        holder: Any = each.module
        nn.utils.parametrize.remove_parametrizations(holder, "weight", leave_parametrized=True)
        with torch.no_grad():
            whole = signs if scale is None or each.level == "B" else signs * scale
            holder.weight.copy_(whole)
        holder.weight.requires_grad_(False)
        if each.level == "B":
            sum_first_fixed(holder, scale)
    return full, laid_out(model).eval()
