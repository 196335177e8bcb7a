"""Writing tensors as a safetensors file: whole or not at all, with ordinary permissions."""

from __future__ import annotations

import os
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """A crash at any moment leaves the old file or the new one. safetensors makes files that nobody
    but their owner may read; this one gets the permissions of every other new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.touch()
        ordinary = part.stat().st_mode & 0o777
        save_file(tensors, part, metadata)
        part.chmod(ordinary)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)  # half a file on a full disk
        raise
