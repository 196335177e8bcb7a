"""`arrays:FILE`: examples and targets in one safetensors file, as the Python interface writes those
it was handed. The name of the file has the hash of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.files import replacing
from bitfront.trainables.text_files import whole_path

if TYPE_CHECKING:
    import torch

FAMILY = "arrays"
DIGITS = 16


def write_file(parts: Mapping[str, tuple[torch.Tensor, torch.Tensor]], folder: Path | str) -> str:
    """Write examples and targets of the parts `train`, `val` and `test` to a file in `folder`;
    returns the name of the dataset, which is not settled yet."""
    import torch
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    for part, pair in parts.items():
        for axis, tensor in zip("xy", pair, strict=True):
            known = {each.untyped_storage().data_ptr() for each in tensors.values()}
            shared = tensor.untyped_storage().data_ptr() in known  # which safetensors refuses
            tensors[f"{part}.{axis}"] = (tensor.clone() if shared else tensor).contiguous()
    digest = hashlib.sha256()
    for key, tensor in sorted(tensors.items()):
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.view(torch.uint8).numpy().data)
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
