"""Checksums of files and tensors, which show whether stored data are still what was written: one
changed bit of a checkpoint would change all later results. Torch is imported only for tensors."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# A seal is appended to a file: a mark, and the SHA-256 of everything before it. torch and zip
# readers search for the end of an archive backwards, so that a sealed archive opens like any other.
MARK = b"bitfront-sha256:"
SEAL_BYTES = len(MARK) + hashlib.sha256().digest_size
KEY = "sha256"


class DamagedError(ValueError):
    """Stored data differ from what was written."""


def seal(path: Path) -> None:
    """Append its checksum to a file."""
    with path.open("rb+") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        file.seek(0, os.SEEK_END)
        file.write(MARK + digest)


def check(path: Path) -> None:
    """Raise DamagedError for a file that was changed after it was sealed. A torch archive without a
    seal, as version 0.1 wrote them, is checked by the checksums of its zip members, which torch
    does not verify."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - SEAL_BYTES))
        end = file.read()
        if end.startswith(MARK):
            file.seek(0)
            if _digest(file, size - SEAL_BYTES) != end[len(MARK) :]:
                raise DamagedError("its checksum does not fit")
            return
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise DamagedError(str(error)) from None
    if broken is not None:
        raise DamagedError(f"the checksum of {broken} does not fit")


def _digest(file: Any, size: int) -> bytes:
    digest = hashlib.sha256()
    while size > 0:
        block = file.read(min(size, 1 << 20))
        if not block:
            break
        digest.update(block)
        size -= len(block)
    return digest.digest()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, types, shapes and values of tensors, whatever their order."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        # As bytes, since numpy does not have every dtype of torch.
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def sealed_json(data: Mapping[str, Any]) -> str:
    """The data as JSON that contains its own checksum."""
    return json.dumps({**data, KEY: _json_digest(data)}, indent=1)


def opened_json(text: str) -> dict[str, Any]:
    """The data of sealed JSON without the checksum; unsealed JSON as it is. Raises DamagedError
    where the checksum does not match."""
    data = json.loads(text)
    if not isinstance(data, dict):
        raise DamagedError("no JSON object")
    expected = data.pop(KEY, None)
    if expected is not None and expected != _json_digest(data):
        raise DamagedError("its checksum does not fit")
    return data


def _json_digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
