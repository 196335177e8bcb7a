"""The packed checkpoint: one safetensors file with 1 bit per binary weight, the scales, everything
else in float32 or float16, and the spec of the network. A loaded network computes the same logits,
bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import CodeError, UnknownNameError, UserError, first_line, quoted
from bitfront.trainables.layers.accumulators import Accumulator, accumulate_fixed
from bitfront.trainables.layers.binary import BinaryLayer
from bitfront.trainables.layers.inputs import SignInput, by_channel, quantize_input
from bitfront.trainables.layers.pruning import as_bitmap
from bitfront.trainables.layers.sums import sum_first_fixed
from bitfront.trainables.layers.treatments import treated
from bitfront.trainables.methods import build_method
from bitfront.trainables.models import MODELS, build_model
from bitfront.trainables.models.activations import with_activations
from bitfront.trainables.own_code import places, references_in, shown
from bitfront.trainables.plan import (
    BINARY_INPUTS,
    PlanLayer,
    binary_layers,
    check_plan,
    plan_layers,
)
from bitfront.trainables.structure.attention import Projection, open_attentions
from bitfront.trainables.structure.counting import COUNTERS
from bitfront.trainables.structure.kinds import as_outputs, as_stored, groups_of
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.tensor_files import write_tensors
from bitfront.trainables.text_files import check_format, parse_json
from bitfront.trainables.training.network import laid_out, layout_of

FORMAT = "bitfront-packed"
# Version 2: B layers add signs and scale the sums; in version 1 they multiplied with scaled signs.
VERSION = 2
# The tensors that the file may hold for a binary or pruned weight.
PARTS = ("bits", "scale", "mask", "index", "values")
# The dtypes in which everything that is not binary may be stored.
RESTS = {"float32": torch.float32, "float16": torch.float16}


class Planned(Protocol):
    """A model with its plan applied: a `Network`, or one that was made binary without a search."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def binary(self) -> Sequence[BinaryLayer]: ...


def pack_bits(signs: Tensor) -> Tensor:
    """The signs as bytes of eight bits each, +1 as 1 and -1 as 0, the last byte filled with
    zeros."""
    bits = (signs.flatten() > 0).cpu().numpy()
    return torch.from_numpy(np.packbits(bits))


def unpack_bits(packed: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The signs that `pack_bits` packed."""
    count = int(np.prod(shape))
    if packed.numel() != -(-count // 8):  # NumPy would fill up what is missing with zeros
        raise ValueError(f"{packed.numel()} bytes for {count} bits")
    bits = np.unpackbits(packed.numpy(), count=count)
    return torch.from_numpy(bits.astype(np.float32)).mul_(2).sub_(1).view(shape)


@torch.no_grad()
def round_rest(network: Planned, rest: str) -> None:
    """Round everything that is not binary to the values it will have in the file, in place, so that
    metrics are measured on the network that is stored."""
    for key, value in _rest(network).items():
        rounded = value.to(RESTS[rest])
        if not bool(rounded.isfinite().all()):
            raise UserError(f"{key} does not fit {rest}: it holds {float(value.abs().max()):.3g}")
        value.copy_(rounded)


def _rest(network: Planned) -> dict[str, Tensor]:
    """What is neither a weight of a planned layer nor integers, by name; a tensor that has several
    names under the first one."""
    return {key: value for key, value in _stored(network).items() if value.is_floating_point()}


def _stored(network: Planned) -> dict[str, Tensor]:
    """All tensors but the weights of planned layers and counters of batch norms."""
    model = network.model
    planned = {id(layer.latent) for layer in network.binary}
    ours = tuple(
        f"{name}.parametrizations."
        for name, module in model.named_modules(remove_duplicate=False)
        if parametrize.is_parametrized(module, "weight")
        and id(module.parametrizations.weight._parameters.get("original")) in planned
    )
    known: dict[int, str] = {}
    for key, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and not key.startswith(ours) and not key.endswith(COUNTERS):
            known.setdefault(id(value), key)
    state = model.state_dict()
    return {key: state[key] for key in known.values()}


def packed_tensors(network: Planned, rest: str = "float32") -> dict[str, Tensor]:
    """The tensors of the file, by name; with float32 their size is the `bytes` cost."""
    binary = {layer.name: layer for layer in network.binary}
    tensors: dict[str, Tensor] = {}
    for name, layer in binary.items():
        signs, scale = layer.hard_parts()
        if layer.kept is not None:
            tensors |= _packed_mask(name, signs != 0)
            signs = signs[signs != 0]
        if layer.level == "S":
            tensors[f"{name}.weight.values"] = signs.cpu()
        else:
            tensors[f"{name}.weight.bits"] = pack_bits(signs)
        if scale is not None:
            tensors[f"{name}.weight.scale"] = scale.contiguous()
    for key, value in _stored(network).items():
        stored = value.detach().cpu()
        if value.is_floating_point():
            stored = stored.to(RESTS[rest])
        tensors[key] = stored.contiguous()
    return tensors


def _packed_mask(name: str, mask: Tensor) -> dict[str, Tensor]:
    """The mask of kept weights: one bit per weight or one index per kept weight, whichever is
    smaller."""
    if as_bitmap(mask.numel(), int(mask.sum())):
        return {f"{name}.weight.mask": pack_bits(mask)}
    return {f"{name}.weight.index": mask.flatten().nonzero().flatten().to(torch.int32).cpu()}


def _unpacked(name: str, tensors: dict[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """The signs of a layer, or its weights at level S, with 0 for pruned weights."""
    mask, index = (tensors.get(f"{name}.weight.{form}") for form in ("mask", "index"))
    if mask is None and index is None:
        return unpack_bits(tensors[f"{name}.weight.bits"], shape)
    whole = torch.zeros(int(np.prod(shape)))
    where = unpack_bits(mask, (len(whole),)) > 0 if mask is not None else index.long()  # type: ignore[union-attr]
    values = tensors.get(f"{name}.weight.values")
    if values is None:
        count = (len(whole[where]),)
        values = unpack_bits(tensors[f"{name}.weight.bits"], count)
    whole[where] = values
    return whole.view(shape)


def payload_bytes(tensors: dict[str, Tensor]) -> int:
    """The bytes of the values of tensors."""
    return sum(t.numel() * t.element_size() for t in tensors.values())


def save(
    network: Planned, spec: TrialSpec, path: Path, notes: dict[str, Any], rest: str = "float32"
) -> int:
    """Write the packed network; returns the bytes its tensors take. With another `rest` than
    float32, the caller must have called `round_rest`."""
    tensors = packed_tensors(network, rest)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "rest": rest,
        "spec": spec.model_copy(
            update={"task": spec.task.model_copy(update={"data_dir": None})}
        ).model_dump_json(),
        "notes": json.dumps(notes),
    }
    layers = _binary_layers(network)
    if layers:
        metadata["layers"] = json.dumps(layers)
    code = places.origins(references_in(spec.model_dump(mode="json")))
    if code:
        metadata["code"] = json.dumps(code)
    metadata["sha256"] = _digest(tensors, metadata)
    write_tensors(tensors, path, metadata)
    return payload_bytes(tensors)


def _binary_layers(network: Planned) -> list[list[Any]]:
    """[name, level, names of the layers that share its weight] of every layer that is not F, so
    that loading needs no plan of a network that may be the user's own."""
    names = {id(module): name for name, module in network.model.named_modules()}
    return [
        [layer.name, layer.level, [names[id(module)] for module in layer.tied]]
        for layer in network.binary
    ]


def load(path: Path, own: nn.Module | None = None) -> tuple[nn.Module, TrialSpec, dict[str, Any]]:
    """(model in evaluation mode, its spec, notes); a UserError for damaged and other files. `own`:
    a new network of the same class, to be filled; without it one is built as the spec says."""
    metadata = _metadata(path)
    with _opened(path) as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if metadata.pop("sha256", None) != _digest(tensors, metadata):
        raise UserError(f"{path}: damaged: its checksum does not match")
    tensors = {k: t.float() if t.is_floating_point() else t for k, t in tensors.items()}
    try:
        spec = TrialSpec.model_validate_json(metadata["spec"])
        code = _look_for_code(metadata, path)
        model = _built(spec, own, path)
        _fill(model, spec, tensors, _planned(model, spec, metadata.get("layers")))
        notes = parse_json(metadata["notes"], "notes")
    except CodeError as error:
        were = "; ".join(f"{shown(text)} was {place}" for text, place in code.items())
        hint = "; ".join(filter(None, (error.hint, were)))
        raise CodeError(f"{path}: code of its network: {error.message}", hint) from None
    except UserError as error:
        raise UserError(f"{path}: damaged: {error.message}") from None
    except Exception as error:  # torch and numpy raise many types for tensors that do not fit
        what = "its own description" if own is None else "the network that was given"
        reason = first_line(error)
        raise UserError(f"{path}: its tensors do not fit {what}: {reason}") from None
    if not isinstance(notes, dict):
        raise UserError(f"{path}: damaged: its notes")
    return model, spec, notes


def _look_for_code(metadata: Mapping[str, str], path: Path) -> dict[str, str]:
    """Look for code of the user's own where it was when the file was written, and beside the file;
    returns the places by reference."""
    stored = parse_json(metadata.get("code", "{}"), "code")
    if not isinstance(stored, dict):
        raise UserError("its code")
    code = {str(text): str(place) for text, place in stored.items()}
    places.look_where(code)
    if code:
        places.look_in(path.absolute().parent)
    return code


def describe(path: Path) -> TrialSpec:
    """The spec of the packed network, without reading its tensors."""
    try:
        return TrialSpec.model_validate_json(_metadata(path)["spec"])
    except (ValidationError, KeyError):
        raise UserError(f"{path}: damaged: its description cannot be read") from None


def scaled_before_sums(path: Path) -> bool:
    """Whether the network of this file multiplied with scaled signs when it was measured; its
    outputs may differ in the last bits from those of integer sums."""
    metadata = _metadata(path)
    return metadata["version"] == "1" and "B" in describe(path).plan


def is_packed(path: Path) -> bool:
    """Whether a file is a packed checkpoint."""
    with _opened(path) as file:
        return (file.metadata() or {}).get("format") == FORMAT


def _metadata(path: Path) -> dict[str, str]:
    with _opened(path) as file:
        metadata = file.metadata() or {}
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path}: a safetensors file, but not one that bitfront packed")
    version = str(metadata.get("version"))
    if version.isdecimal() and len(version) < 9:
        check_format(int(version), VERSION, f"{path}: the packed checkpoint")
    if version not in ("1", str(VERSION)):
        raise UserError(f"{path}: packed by another version of bitfront: {quoted(version)}")
    return metadata


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(str(path), framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a packed checkpoint, or damaged: {error}") from None


def _planned(model: nn.Module, spec: TrialSpec, stored: str | None) -> list[tuple[PlanLayer, str]]:
    """(layer, letter) of every layer that is not F: as stored; in files of version 0.1, which did
    not store them, as the network has them."""
    if stored is None:
        layers = plan_layers(model, spec.task.binarize, spec.task.keep_full)
        return binary_layers(check_plan(spec.plan, layers), layers)
    found = [(name, level, tuple(tied)) for name, level, tied in parse_json(stored, "layers")]
    if [level for _, level, _ in found] != [letter for letter in spec.plan if letter != "F"]:
        raise UserError("its layers are not those of its plan")
    return [(PlanLayer(name, name, name, tied=tied), level) for name, level, tied in found]


def _fill(
    model: nn.Module,
    spec: TrialSpec,
    tensors: dict[str, Tensor],
    planned: list[tuple[PlanLayer, str]],
) -> None:
    """Load the tensors of a packed file into a new network, and make its binary layers what they
    were, in place."""
    open_attentions(model, {layer.name for layer, _ in planned})
    modules = dict(model.named_modules())
    activations = spec.task.settled_activations
    parts = tuple(f".weight.{part}" for part in PARTS)
    state = {
        key: t
        for key, t in tensors.items()
        if not key.endswith(parts) and ".input_quantizer." not in key
    }
    quantizers: dict[str, nn.Module] = {}
    for layer, level in planned:
        weight: Tensor = modules[layer.name].weight
        groups = groups_of(modules[layer.name])
        signs = _unpacked(layer.name, tensors, tuple(as_outputs(weight, groups).shape))
        scale = tensors.get(f"{layer.name}.weight.scale")
        for name in (layer.name, *layer.tied):
            if level == "A":
                # Not for other levels: they need no code of a method, which may be the user's own.
                method = build_method(spec.method, dict(spec.params))
                bits, slope = int(method.values["acc_bits"]), float(method.values["acc_slope"])
                accumulate_fixed(modules[name], Accumulator(bits, slope), scale)
            if level in BINARY_INPUTS:
                quantizers[name] = _input_quantizer(name, modules[name], activations, tensors)
            if level == "B" and not isinstance(modules[name], Projection):
                sum_first_fixed(modules[name], scale)
        apart = level == "A" or hasattr(modules[layer.name], "output_scale")
        whole = signs if scale is None or apart else signs * scale
        state[f"{layer.name}.weight"] = as_stored(whole, groups)
        # torch multiplies in another order with a weight that has gradients, even without them.
        weight.requires_grad_(False)
    missing, unexpected = model.load_state_dict(state, strict=False)
    filled = {id(t) for key, t in model.state_dict(keep_vars=True).items() if key in state}
    for name, quantizer in quantizers.items():
        quantize_input(modules[name], quantizer)
    tensors_of = model.state_dict(keep_vars=True)
    missing = [
        key
        for key in missing
        if not key.endswith((COUNTERS, "_extra_state")) and id(tensors_of[key]) not in filled
    ]
    if missing or unexpected:
        raise KeyError(f"missing {missing}, unexpected {unexpected}")
    laid_out(model, layout_of(spec.task.model.name, model)).eval()


def _input_quantizer(
    name: str, module: nn.Module, activations: str, tensors: dict[str, Tensor]
) -> nn.Module:
    """The quantizer of a layer's input, with the tensors of the file."""
    prefix = f"{name}.input_quantizer."
    own = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
    shift = own.get("shift", own.get("quantizer.shift"))
    quantizer = treated(activations, module, SignInput(shift))
    missing, unexpected = quantizer.load_state_dict(own, strict=False)
    missing = [key for key in missing if not key.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise KeyError(f"{name}: missing {missing}, unexpected {unexpected}")
    if not by_channel(quantizer.eval(), module):
        raise ValueError(f"{name}: its input's shifts are not one per channel")
    return quantizer


def _built(spec: TrialSpec, own: nn.Module | None, path: Path) -> nn.Module:
    """`own`, or a new network, with the activations of the spec."""
    task, info = spec.task, DATASETS.get(spec.task.dataset)
    name = task.model.name
    if own is None:
        try:
            MODELS.get(name)
        except UnknownNameError:
            again = f"in Python, make it and pass it: bf.load({str(path)!r}, model={name}(...))"
            raise CodeError(f"its class {name} is stored, not how it was made", again) from None
        own = build_model(name, task.model.params, info.shape, info.classes)
    return with_activations(own, task.settled_activations, info.shape, task.model.name)


def _digest(tensors: dict[str, Tensor], metadata: dict[str, str]) -> str:
    """A hash of the tensors and the metadata; the metadata matter, since another letter in the plan
    makes another network of the same tensors."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for key in sorted(tensors):
        tensor = tensors[key].cpu().contiguous()
        digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
