"""A model with its plan applied, its memory format and its device."""

from __future__ import annotations

import torch
from torch import nn

from bitfront.trainables.cost import task_plan_layers
from bitfront.trainables.data import DATASETS
from bitfront.trainables.layers.binary import BinaryLayer, apply_plan
from bitfront.trainables.layers.verify import verify_binary
from bitfront.trainables.methods import build_method
from bitfront.trainables.models import MODELS, build_model
from bitfront.trainables.models.activations import with_activations
from bitfront.trainables.own_code import is_reference
from bitfront.trainables.plan import check_plan
from bitfront.trainables.task import TrialSpec


def memory_format(model: nn.Module) -> torch.memory_format:
    """The memory format of a model: channels last where there are convolutions, which are a fifth
    faster with it (docs/design.md 7.4), except where a strided 1x1 convolution has fewer than 8
    input channels: on a CPU, torch 2.15 writes past the end of a buffer in its backward pass, and
    the process dies."""
    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    unsafe = any(
        m.in_channels < 8 and set(m.kernel_size) == {1} and set(m.stride) != {1} for m in convs
    )
    unsafe = unsafe or any(p.dim() == 5 for p in model.parameters())  # another one
    return torch.channels_last if convs and not unsafe else torch.preserve_format


class Network:
    """A model with its plan applied: what is trained, evaluated, packed and reloaded."""

    def __init__(self, spec: TrialSpec, device: torch.device | str = "cpu") -> None:
        info = DATASETS.get(spec.task.dataset)
        model_spec, activations = spec.task.model, spec.task.settled_activations
        model = build_model(model_spec.name, model_spec.params, info.shape, info.classes)
        model = with_activations(model, activations, info.shape, model_spec.name)
        layers = task_plan_layers(spec.task, model)
        self.method = build_method(spec.method, dict(spec.params))
        check_plan(spec.plan, layers, self.method.levels)
        self.binary: list[BinaryLayer] = apply_plan(
            model, layers, spec.plan, self.method, activations
        )
        self.method.attach(model, info.shape)
        self.layout = layout_of(model_spec.name, model)
        self.model = laid_out(model.to(device), self.layout)

    def verify(self) -> None:
        verify_binary(self.model, self.binary)


def device_from_resources(gpus: float) -> torch.device:
    """CUDA when a GPU was granted and torch has it, else the CPU."""
    return torch.device("cuda" if gpus > 0 and torch.cuda.is_available() else "cpu")


def layout_of(name: str, model: nn.Module) -> torch.memory_format:
    """The memory format of the model of that name. Networks of the user's own, whatever they are
    called, keep the usual one: `view` in their code may rely on it."""
    library = "/" in name and not is_reference(name)
    ours = type(model).__module__.startswith("bitfront.") or name in MODELS.find()
    return memory_format(model) if library or ours else torch.preserve_format


def laid_out(model: nn.Module, layout: torch.memory_format | None = None) -> nn.Module:
    """The model, converted to this memory format, by default its own, in place. A weight that fits
    both formats (one input channel, or a 1x1 kernel) gets contiguous strides: on AVX-512 torch
    chooses a kernel by the strides, and with others a reloaded network would differ in the last
    bits."""
    model.to(memory_format=memory_format(model) if layout is None else layout)
    for weight in model.parameters():
        both = weight.dim() == 4 and weight.is_contiguous()
        if both and weight.is_contiguous(memory_format=torch.channels_last):
            usual = torch.empty(weight.shape, device="meta").stride()
            weight.data = weight.data.as_strided(weight.shape, usual)
    return model
