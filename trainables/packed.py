"""The packed checkpoint: 1 bit a binary weight, the scales, everything else in float32, in one
safetensors file that carries its own spec. Loading it gives the same logits, bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from trainables.binary import Accumulator, SignInput, accumulate_fixed, quantize_input
from trainables.data import DATASETS
from trainables.methods import build_method
from trainables.models import build_model
from trainables.plan import BINARY_INPUTS, binary_layers, plan_layers
from trainables.registry import UserError
from trainables.task import TrialSpec
from trainables.training import Network, memory_format

FORMAT = "bitfront-packed"
VERSION = 1


def pack_bits(signs: Tensor) -> Tensor:
    """+1 as 1 and -1 as 0, eight to a byte, the last byte filled with zeros."""
    bits = (signs.flatten() > 0).cpu().numpy()
    return torch.from_numpy(np.packbits(bits))


def unpack_bits(packed: Tensor, shape: tuple[int, ...]) -> Tensor:
    count = int(np.prod(shape))
    bits = np.unpackbits(packed.numpy(), count=count)
    return torch.from_numpy(bits.astype(np.float32)).mul_(2).sub_(1).view(shape)


def packed_tensors(network: Network) -> dict[str, Tensor]:
    """What the file holds; its bytes are the `bytes` cost."""
    binary = {layer.name: layer for layer in network.binary}
    tensors = {}
    for name, layer in binary.items():
        signs, scale = layer.hard_parts()
        tensors[f"{name}.weight.bits"] = pack_bits(signs)
        if scale is not None:
            tensors[f"{name}.weight.scale"] = scale.contiguous()
    for key, value in network.model.state_dict().items():
        if ".parametrizations." in key or not value.is_floating_point():
            continue
        tensors[key] = value.detach().cpu().contiguous()
    return tensors


def payload_bytes(tensors: dict[str, Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors.values())


def save(network: Network, spec: TrialSpec, path: Path, notes: dict[str, Any]) -> int:
    """Write the packed network; returns the bytes its tensors take."""
    tensors = packed_tensors(network)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "spec": spec.model_copy(
            update={"task": spec.task.model_copy(update={"data_dir": None})}
        ).model_dump_json(),
        "notes": json.dumps(notes),
    }
    metadata["sha256"] = _digest(tensors, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    save_file(tensors, part, metadata)
    part.replace(path)
    return payload_bytes(tensors)


def load(path: Path) -> tuple[nn.Module, TrialSpec, dict[str, Any]]:
    """(model in evaluation mode, its spec, notes), or a clear error for any other file."""
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a packed checkpoint, or damaged: {error}") from None
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path}: a safetensors file, but not one that bitfront packed")
    if metadata.get("version") != str(VERSION):
        raise UserError(f"{path}: packed by another version of bitfront: {metadata.get('version')}")
    if metadata.pop("sha256", None) != _digest(tensors, metadata):
        raise UserError(f"{path}: damaged: its checksum does not match")
    try:
        spec = TrialSpec.model_validate_json(metadata["spec"])
        model = _rebuild(spec, tensors)
    except (ValidationError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: its tensors do not fit its own description: {reason}") from None
    return model, spec, json.loads(metadata["notes"])


def _rebuild(spec: TrialSpec, tensors: dict[str, Tensor]) -> nn.Module:
    info = DATASETS.get(spec.task.dataset)
    model = build_model(spec.task.model.name, spec.task.model.params, info.shape, info.classes)
    layers = plan_layers(model, spec.task.binarize)
    modules = dict(model.named_modules())
    method = build_method(spec.method, dict(spec.params))
    own = (".weight.bits", ".weight.scale", ".input_quantizer.shift")
    state = {key: t for key, t in tensors.items() if not key.endswith(own)}
    quantizers: dict[str, SignInput] = {}
    for layer, level in binary_layers(spec.plan, layers):
        module = modules[layer.name]
        weight: Tensor = module.weight
        signs = unpack_bits(tensors[f"{layer.name}.weight.bits"], tuple(weight.shape))
        scale = tensors.get(f"{layer.name}.weight.scale")
        if level == "A":
            bits, slope = int(method.values["acc_bits"]), float(method.values["acc_slope"])
            accumulate_fixed(module, Accumulator(bits, slope), scale)
            scale = None
        state[f"{layer.name}.weight"] = signs if scale is None else signs * scale
        if level in BINARY_INPUTS:
            shift = tensors.get(f"{layer.name}.input_quantizer.shift")
            quantizers[layer.name] = SignInput(shift)
    missing, unexpected = model.load_state_dict(state, strict=False)
    for name, quantizer in quantizers.items():
        quantize_input(modules[name], quantizer)
    missing = [key for key in missing if not key.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise KeyError(f"missing {missing}, unexpected {unexpected}")
    return model.to(memory_format=memory_format(model)).eval()


def _digest(tensors: dict[str, Tensor], metadata: dict[str, str]) -> str:
    """Of the description too: another letter in the plan is another network."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for key in sorted(tensors):
        tensor = tensors[key].cpu().contiguous()
        digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
