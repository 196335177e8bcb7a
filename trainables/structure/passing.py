"""One example through a network that exists, as `bf.binarize` and `bf.cost` are given it: which
layers a plan decides follows from the same rules as in a search."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.structure.counting import Counted, count
from bitfront.trainables.structure.flow import plain_attention
from bitfront.trainables.structure.kinds import LAYERS, dimensions, inputs_of

# Extents of inputs that are tried where nobody says them, and the most tries.
EXTENTS = (32, 28, 8, 16, 64, 224, 4, 6, 10, 12, 20, 24, 48, 96, 128, 160, 192, 256, 299, 512, 1024)
TRIES = 120


def has_names(model: nn.Module) -> bool:
    """Whether the layers that a plan decides follow from their names: in networks of ours, and in
    classes of timm and of the classifiers of torchvision."""
    module = type(model).__module__
    parts = module.split(".")
    classifier = parts[:2] == ["torchvision", "models"] and len(parts) == 3
    return classifier or parts[0] == "timm" or module.startswith("bitfront.trainables.models.")


def blank(count: int, shape: tuple[int, ...], network: nn.Module, integers: bool = False) -> Tensor:
    """A batch of zeros for a network, on its device; `integers`: as token numbers."""
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    return torch.zeros(count, *shape, device=device, dtype=torch.int64 if integers else None)


def unreal(model: nn.Module) -> nn.Module:
    """A copy of the network on the meta device, in which layers share the weights they shared."""
    known: dict[int, Any] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                made = torch.empty_like(parameter, device="meta")
                known[id(parameter)] = nn.Parameter(made, parameter.requires_grad)
        for buffer in module._buffers.values():
            if buffer is not None:
                known[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(model, known)


def passed(model: nn.Module, inputs: Tensor) -> Counted:
    """The network after one example of `inputs`, a batch, has passed through it; it stays as it is.
    On the meta device where its code runs there."""
    one, named = inputs[:1].detach(), has_names(model)
    try:
        return count(unreal(model), one.to("meta"), named)
    except Exception:  # whatever it is, the network itself shows it too
        pass
    device = next((p.device for p in model.parameters()), one.device)
    with torch.random.fork_rng(devices=[]):
        try:
            return count(model, one.to(device), named)
        except UserError:
            raise
        except Exception as error:
            shape = "x".join(map(str, inputs.shape[1:]))
            name, reason = type(model).__name__, first_line(error)
            raise UserError(f"inputs of shape {shape} do not fit {name}: {reason}") from error


def of_shape(model: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """A batch of one of this shape: floats, or integers where the network takes only those."""
    floats, integers = (torch.zeros(1, *shape, dtype=d) for d in (torch.float32, torch.int64))
    return integers if not _runs(model, floats) and _runs(model, integers) else floats


def _runs(model: nn.Module, inputs: Tensor) -> bool:
    try:
        passed(model, inputs)
    except UserError:
        return False
    return True


def guessed(model: nn.Module) -> Tensor | None:
    """A batch of one that passes through the network, of a shape that is found by trying; None
    where none is found. Its extents are not those of the data: for which layers there are, not for
    what they cost."""
    try:
        copied = unreal(model).eval()
    except Exception:  # an attribute that cannot be copied
        return None
    with torch.no_grad(), plain_attention():
        for _, inputs in zip(range(TRIES), _candidates(model), strict=False):
            try:
                copied(inputs)
                passed(model, inputs.new_zeros(inputs.shape, device="cpu"))
            except Exception:  # whatever it is, this shape is not the one
                continue
            return inputs.new_zeros(inputs.shape, device="cpu")
    return None


def _candidates(model: nn.Module) -> Iterator[Tensor]:
    """Inputs that the first layer might take, whichever of the layers that is."""
    kinds: dict[tuple[int, int, bool], None] = {}
    for module in model.modules():
        if isinstance(module, LAYERS):
            kinds[dimensions(module), inputs_of(module), False] = None
        elif isinstance(module, nn.Embedding):
            kinds[1, 0, True] = None
    for extent in (0, *EXTENTS):
        for dims, channels, tokens in kinds:
            if tokens and extent:
                yield torch.zeros(1, extent, dtype=torch.int64, device="meta")
            elif dims and extent:
                yield torch.zeros(1, channels, *(extent,) * dims, device="meta")
            elif not dims and not tokens:
                rows = (extent,) if extent else ()
                yield torch.zeros(1, *rows, channels, device="meta")
