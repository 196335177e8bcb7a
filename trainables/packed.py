"""The packed checkpoint: one safetensors file with 1 bit per binary weight, the scales, everything
else in float32 or float16, and the spec of the network. A loaded network computes the same logits,
bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bitfront.trainables.cost import task_plan_layers
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError, first_line, quoted
from bitfront.trainables.layers.accumulators import Accumulator, accumulate_fixed
from bitfront.trainables.layers.inputs import SignInput, quantize_input
from bitfront.trainables.layers.pruning import as_bitmap
from bitfront.trainables.methods import build_method
from bitfront.trainables.models import build_model
from bitfront.trainables.own_code import is_reference, look_in
from bitfront.trainables.own_code.loading import load_object
from bitfront.trainables.plan import BINARY_INPUTS, binary_layers, check_plan
from bitfront.trainables.structure.attention import open_attentions
from bitfront.trainables.structure.counting import COUNTERS
from bitfront.trainables.structure.kinds import as_outputs, as_stored, groups_of
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.tensor_files import write_tensors
from bitfront.trainables.text_files import check_format, parse_json
from bitfront.trainables.training.network import Network, laid_out, layout_of

FORMAT = "bitfront-packed"
VERSION = 1
# The tensors that the file may hold for a binary or pruned weight.
PARTS = ("bits", "scale", "mask", "index", "values")
# The note on the folder in which code of the user's own was.
CODE_NOTE = "where the code was"
# The dtypes in which everything that is not binary may be stored.
RESTS = {"float32": torch.float32, "float16": torch.float16}


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
def round_rest(network: Network, rest: str) -> None:
    """Round everything that is not binary to the values it will have in the file, in place, so that
    metrics are measured on the network that is stored."""
    for key, value in _rest(network).items():
        rounded = value.to(RESTS[rest])
        if not bool(rounded.isfinite().all()):
            raise UserError(f"{key} does not fit {rest}: it holds {float(value.abs().max()):.3g}")
        value.copy_(rounded)


def _rest(network: Network) -> dict[str, Tensor]:
    """What is neither a weight of a planned layer nor integers, by name; a tensor that has several
    names under the first one."""
    return {key: value for key, value in _stored(network).items() if value.is_floating_point()}


def _stored(network: Network) -> dict[str, Tensor]:
    """All tensors but the weights of planned layers and counters of batch norms."""
    model = network.model
    planned = {id(layer.latent) for layer in network.binary}
    ours = tuple(
        f"{name}.parametrizations."
        for name, module in model.named_modules()
        if parametrize.is_parametrized(module, "weight")
        and id(module.parametrizations.weight._parameters.get("original")) in planned
    )
    known: dict[int, str] = {}
    for key, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and not key.startswith(ours) and not key.endswith(COUNTERS):
            known.setdefault(id(value), key)
    state = model.state_dict()
    return {key: state[key] for key in known.values()}


def packed_tensors(network: Network, rest: str = "float32") -> dict[str, Tensor]:
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
    network: Network, spec: TrialSpec, path: Path, notes: dict[str, Any], rest: str = "float32"
) -> int:
    """Write the packed network; returns the bytes its tensors take. With another `rest` than
    float32, the caller must have called `round_rest`."""
    tensors = packed_tensors(network, rest)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "rest": rest,
        "spec": spec.model_copy(
            update={"task": spec.task.model_copy(update={"data_dir": None, "code_dir": None})}
        ).model_dump_json(),
        "notes": json.dumps(notes | _where_the_code_was(spec)),
    }
    metadata["sha256"] = _digest(tensors, metadata)
    write_tensors(tensors, path, metadata)
    return payload_bytes(tensors)


def _where_the_code_was(spec: TrialSpec) -> dict[str, str]:
    """A note on the folder of the user's own code; {} where the network is none of theirs."""
    folder = spec.task.code_dir
    return {CODE_NOTE: folder} if folder and is_reference(spec.task.model.name) else {}


def load(path: Path) -> tuple[nn.Module, TrialSpec, dict[str, Any]]:
    """(model in evaluation mode, its spec, notes); a UserError for damaged and other files."""
    metadata = _metadata(path)
    with _opened(path) as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if metadata.pop("sha256", None) != _digest(tensors, metadata):
        raise UserError(f"{path}: damaged: its checksum does not match")
    tensors = {k: t.float() if t.is_floating_point() else t for k, t in tensors.items()}
    with _fitting(path):
        spec = TrialSpec.model_validate_json(metadata["spec"])
        notes = parse_json(metadata["notes"], "notes")
    if not isinstance(notes, dict):
        raise UserError(f"{path}: damaged: its notes")
    _find_code(path, spec, notes)
    with _fitting(path):
        model = _rebuild(spec, tensors)
    return model, spec, notes


@contextmanager
def _fitting(path: Path) -> Iterator[None]:
    """Inside, what goes wrong is a fault of the file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: damaged: {error.message}") from None
    except Exception as error:  # torch and numpy raise many types for tensors that do not fit
        reason = first_line(error)
        raise UserError(f"{path}: its tensors do not fit its own description: {reason}") from None


def _find_code(path: Path, spec: TrialSpec, notes: dict[str, Any]) -> None:
    """Raise a UserError unless the code of a network of the user's own is found and trusted; it is
    looked for beside the file and where it was."""
    name, was = spec.task.model.name, notes.get(CODE_NOTE)
    if not is_reference(name):
        return
    for folder in (was, path.parent):
        if isinstance(folder, str | Path):
            look_in(folder)
    try:
        load_object(name)
    except UserError as error:
        place = f"its code was in {was}" if was else "its code is not in the file"
        hint = f"{error.hint}; {place}" if error.hint else place
        raise UserError(f"{path}: {error.message}", hint) from None


def describe(path: Path) -> TrialSpec:
    """The spec of the packed network, without reading its tensors."""
    try:
        return TrialSpec.model_validate_json(_metadata(path)["spec"])
    except (ValidationError, KeyError):
        raise UserError(f"{path}: damaged: its description cannot be read") from None


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
    if version != str(VERSION):
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


def _rebuild(spec: TrialSpec, tensors: dict[str, Tensor]) -> nn.Module:
    info = DATASETS.get(spec.task.dataset)
    model = build_model(spec.task.model.name, spec.task.model.params, info.shape, info.classes)
    layers = task_plan_layers(spec.task, model)
    check_plan(spec.plan, layers)
    planned = binary_layers(spec.plan, layers)
    open_attentions(model, {layer.name for layer, _ in planned})
    modules = dict(model.named_modules())
    method = build_method(spec.method, dict(spec.params))
    own = (*(f".weight.{part}" for part in PARTS), ".input_quantizer.shift")
    state = {key: t for key, t in tensors.items() if not key.endswith(own)}
    quantizers: dict[str, SignInput] = {}
    for layer, level in planned:
        weight: Tensor = modules[layer.name].weight
        groups = groups_of(modules[layer.name])
        signs = _unpacked(layer.name, tensors, tuple(as_outputs(weight, groups).shape))
        scale = tensors.get(f"{layer.name}.weight.scale")
        for name in (layer.name, *layer.tied):
            if level == "A":
                bits, slope = int(method.values["acc_bits"]), float(method.values["acc_slope"])
                accumulate_fixed(modules[name], Accumulator(bits, slope), scale)
            if level in BINARY_INPUTS:
                shift = tensors.get(f"{name}.input_quantizer.shift")
                quantizers[name] = SignInput(shift)
        whole = signs if scale is None or level == "A" else signs * scale
        state[f"{layer.name}.weight"] = as_stored(whole, groups)
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
    return laid_out(model, layout_of(spec.task.model.name, model)).eval()


def _digest(tensors: dict[str, Tensor], metadata: dict[str, str]) -> str:
    """A hash of the tensors and the metadata; the metadata matter, since another letter in the plan
    makes another network of the same tensors."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for key in sorted(tensors):
        tensor = tensors[key].cpu().contiguous()
        digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
