"""`arrays:FILE`: examples and targets in one safetensors file, as the Python interface writes those
it was handed. The name of the file has the hash of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.files import replacing
from bitfront.trainables.text_files import whole_path

FAMILY = "arrays"
DIGITS = 16


def write_arrays(parts: Mapping[str, tuple[Any, Any]], folder: Path | str) -> str:
    """Write the parts (`train`, `val`, `test`: examples and targets as arrays) to a file in
    `folder`; returns the name of the dataset, which is not settled yet."""
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    for part, pair in parts.items():
        for axis, array in zip("xy", pair, strict=True):
            tensor = torch.as_tensor(array).detach().cpu().contiguous()
            known = {each.untyped_storage().data_ptr() for each in tensors.values()}
            shared = tensor.untyped_storage().data_ptr() in known  # the file must hold it twice
            tensors[f"{part}.{axis}"] = tensor.clone() if shared else tensor
    digest = hashlib.sha256()
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    path = whole_path(folder) / f"{digest.hexdigest()[:DIGITS]}.safetensors"
    if not path.is_file():
        with replacing(path) as part_file:
            save_file(tensors, str(part_file))
    return f"{FAMILY}:{path}"


def file_of(name: str) -> Path:
    """The file of `arrays:FILE`."""
    return whole_path(name.partition(":")[2])


def read_parts(name: str) -> dict[str, tuple[Any, Any]]:
    """The parts in the file, by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = file_of(name)
    try:
        tensors = load_file(str(path))
        return {
            part: (tensors[f"{part}.x"], tensors[f"{part}.y"])
            for part in dict.fromkeys(key.partition(".")[0] for key in tensors)
        }
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(
            f"{path}: not found, or no file of arrays ({first_line(error)})",
            "it has tensors train.x, train.y and, if there are any, val.x, val.y, test.x, test.y",
        ) from None
