"""Checkpoints that a user brings: read without running code in them, and matched with a network by
the names and shapes of tensors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    content = _safetensors(path) if path.suffix == ".safetensors" else _torch_file(path)
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
