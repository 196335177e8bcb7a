"""Writes tensors as a safetensors file, atomically and with the usual permissions."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from bitfront.trainables.files import replacing


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write the tensors so that a crash leaves the old file or the new one. safetensors makes files
    that only their owner may read; this one gets the permissions of other new files."""
    with replacing(path) as part:
        ordinary = part.stat().st_mode & 0o777
        save_file(tensors, part, metadata)
        part.chmod(ordinary)
