"""Checkpoints that a user brings: read without running code in them, and matched with a network by
the names and shapes of tensors."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.packed import FORMAT as PACKED
from bitfront.trainables.structure.attention import old_name
from bitfront.trainables.structure.kinds import as_outputs, as_stored, groups_of

# Prefixes that wrappers put before every name of a state dict.
WRAPPERS = ("module.", "_orig_mod.")


# Keys under which training scripts keep the state dict.
NESTED = ("state_dict", "model_state_dict", "model", "net")


# What stands before every name of a vision transformer's file of JAX, and where the embedding of
# positions is.
JAX_PREFIXES = ("", "opt/target/", "params/", "params/img/")
JAX_POSITIONS = ("Transformer/posembed_input/pos_embedding", "pos_embedding")


LATENT = ".parametrizations.weight.original"


SHOWN_AT_MOST = 4


@dataclass(frozen=True)
class Fit:
    """How the names and shapes of a state dict match those of a network."""

    source: str
    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    other_shape: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return not (self.missing or self.unexpected or self.other_shape)

    def text(self) -> str:
        """One line per kind of mismatch, with a few names each."""
        total = len(self.loaded) + len(self.missing) + len(self.other_shape)
        lines = [f"{self.source}: {len(self.loaded)} of the network's {total} tensors"]
        for what, names in (
            ("not in it, left at random", self.missing),
            ("of another shape, left at random", self.other_shape),
            ("in it, but not in the network", self.unexpected),
        ):
            if names:
                more = ", ..." if len(names) > SHOWN_AT_MOST else ""
                lines.append(f"  {len(names)} {what}: {', '.join(names[:SHOWN_AT_MOST])}{more}")
        return "\n".join(lines)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies on the CPU of all tensors of a network, by name, as they are in one without a plan: a
    latent is named like its weight."""
    return {
        name: as_stored(tensor.detach().cpu(), groups).contiguous().clone()
        for name, (tensor, groups) in _plain(model).items()
    }


def _plain(model: nn.Module) -> dict[str, tuple[Tensor, int]]:
    """The tensors of a network by the names they have without a plan, each with what `as_stored`
    needs to bring it into the layout it has there."""
    found = {}
    for key, tensor in model.state_dict().items():
        groups, name = 0, key
        if key.endswith(LATENT):
            layer = key.removesuffix(LATENT)
            groups, name = groups_of(model.get_submodule(layer)), f"{layer}.weight"
        found[old_name(model, name)] = (tensor, groups)
    return found


@torch.no_grad()
def load_weights(model: nn.Module, weights: dict[str, Tensor], source: str) -> Fit:
    """Copy the tensors whose names and shapes match into the network, also into the latents of
    binary layers; returns what matched. Raises a UserError where no weight matches."""
    plain = _plain(model)
    shapes = {name: as_stored(tensor, groups) for name, (tensor, groups) in plain.items()}
    fit = match(shapes, weights, source)
    for name in fit.loaded:
        target, groups = plain[name]
        target.copy_(as_outputs(weights[name], groups))
    return fit


def match(targets: dict[str, Tensor], weights: dict[str, Tensor], source: str) -> Fit:
    """Which weights fit which tensors; a UserError where no matrix does."""
    same = [n for n in targets if n in weights and weights[n].shape == targets[n].shape]
    fit = Fit(
        source,
        loaded=tuple(same),
        missing=tuple(n for n in targets if n not in weights and not _optional(n)),
        unexpected=tuple(n for n in weights if n not in targets and not _optional(n)),
        other_shape=tuple(n for n in targets if n in weights and n not in same),
    )
    if not any(targets[name].dim() > 1 for name in fit.loaded):
        raise UserError(f"{fit.text()}\n  no weight of the network is in it: another architecture?")
    return fit


def _optional(name: str) -> bool:
    """Whether a tensor may be missing: counters of batch norms, and parameters of quantizers."""
    marks = (".num_batches_tracked", ".parametrizations.", ".input_quantizer.")
    return any(mark in name for mark in marks)


def read_checkpoint(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """The tensors of the state dict in a file, by name, without the prefixes of wrappers. Code in
    the file is never run."""
    if sha256 is not None and file_digest(path) != sha256:
        raise UserError(
            f"{path}: another file than the one this was set up with (its sha256 differs)"
        )
    readers: dict[str, Callable[[Path], Any]] = {".safetensors": _safetensors, ".npz": _npz}
    content = readers.get(path.suffix, _torch_file)(path)
    tensors = {k: v for k, v in _state_dict(content).items() if isinstance(v, Tensor)}
    if not tensors:
        raise UserError(f"{path}: there is no state dict in it")
    return {_unwrapped(name): tensor for name, tensor in tensors.items()}


def file_digest(path: Path) -> str:
    """The SHA-256 of a file; a UserError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _safetensors(path: Path) -> dict[str, Any]:
    try:
        with safe_open(str(path), framework="pt") as file:
            if (file.metadata() or {}).get("format") == PACKED:
                raise UserError(
                    f"{path}: a packed binary network",
                    "its full-precision weights are gone; start from a full-precision checkpoint",
                )
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a safetensors file, or damaged: {error}") from None


def _torch_file(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except Exception as error:  # torch raises a dozen types for a foreign or damaged file
        raise UserError(
            f"{path}: cannot be read as a state dict: {first_line(error)}",
            "save one with torch.save(model.state_dict(), FILE) or as safetensors",
        ) from None


def _npz(path: Path) -> dict[str, Any]:
    """The tensors of a vision transformer in the layout of its authors' JAX code, by the names of
    timm."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except Exception as error:  # numpy raises a dozen types for a foreign or damaged file
        raise UserError(f"{path}: cannot be read as npz: {first_line(error)}") from None
    prefix = next((p for p in JAX_PREFIXES if f"{p}embedding/kernel" in arrays), None)
    if prefix is None:
        raise UserError(
            f"{path}: no vision transformer in the layout of JAX: no embedding/kernel in it",
            "save other networks with torch.save(model.state_dict(), FILE) or as safetensors",
        )
    if any(array.dtype.kind != "f" for array in arrays.values() if array.ndim):
        raise UserError(f"{path}: only arrays of floats can be read, not bfloat16")
    stripped = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    try:
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in _renamed(stripped)}
    except KeyError as error:
        raise UserError(f"{path}: no vision transformer: {error.args[0]} is missing") from None


def _renamed(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """(name in timm, array in torch's layout) of every array of a vision transformer: kernels have
    their outputs last, those of attention are (width, heads, width of a head) or, for the
    projection, (heads, width of a head, width)."""
    for at, name in (("cls", "cls_token"), *((key, "pos_embed") for key in JAX_POSITIONS)):
        if at in arrays:
            yield name, arrays[at]
    yield "patch_embed.proj.weight", arrays["embedding/kernel"].transpose(3, 2, 0, 1)
    yield "patch_embed.proj.bias", arrays["embedding/bias"]
    yield from _norm(arrays, "Transformer/encoder_norm", "norm")
    if "head/kernel" in arrays:
        yield "head.weight", arrays["head/kernel"].T
        yield "head.bias", arrays["head/bias"]
    for i in itertools.count():
        block = f"Transformer/encoderblock_{i}/"
        if f"{block}LayerNorm_0/scale" not in arrays:
            return
        # The older layout numbers all modules of a block, the newer one each kind of them.
        older = f"{block}LayerNorm_2/scale" in arrays
        attention = f"{block}MultiHeadDotProductAttention_{int(older)}"
        yield from _norm(arrays, f"{block}LayerNorm_0", f"blocks.{i}.norm1")
        yield from _norm(arrays, f"{block}LayerNorm_{1 + older}", f"blocks.{i}.norm2")
        three = [arrays[f"{attention}/{part}/kernel"] for part in ("query", "key", "value")]
        yield (
            f"blocks.{i}.attn.qkv.weight",
            np.concatenate([k.reshape(len(k), -1).T for k in three]),
        )
        three = [arrays[f"{attention}/{part}/bias"].ravel() for part in ("query", "key", "value")]
        yield f"blocks.{i}.attn.qkv.bias", np.concatenate(three)
        out = arrays[f"{attention}/out/kernel"]
        yield f"blocks.{i}.attn.proj.weight", out.reshape(-1, out.shape[-1]).T
        yield f"blocks.{i}.attn.proj.bias", arrays[f"{attention}/out/bias"]
        for layer in (0, 1):
            dense = f"{block}MlpBlock_{3 * older}/Dense_{layer}"
            yield f"blocks.{i}.mlp.fc{layer + 1}.weight", arrays[f"{dense}/kernel"].T
            yield f"blocks.{i}.mlp.fc{layer + 1}.bias", arrays[f"{dense}/bias"]


def _norm(arrays: dict[str, np.ndarray], at: str, name: str) -> Iterator[tuple[str, np.ndarray]]:
    yield f"{name}.weight", arrays[f"{at}/scale"]
    yield f"{name}.bias", arrays[f"{at}/bias"]


def _state_dict(content: Any) -> dict[str, Any]:
    """The innermost mapping of names to tensors under the usual keys."""
    while isinstance(content, dict):
        inner = next((content[k] for k in NESTED if isinstance(content.get(k), dict)), None)
        if inner is None:
            return {str(k): v for k, v in content.items()}
        content = inner
    return {}


def _unwrapped(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.removeprefix(wrapper)
    return name
