"""A C compiler on this machine: that of CC, cc, gcc or clang, else the one in `ziglang`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.exports.c.text import PIPE

OPTIONS = ("-std=c99", "-O2", "-ffp-contract=off")
SECONDS = 300


@cache
def compiler() -> tuple[str, ...] | None:
    """The command of a compiler; None: there is none."""
    given = shlex.split(os.environ.get("CC", ""))
    for command in (given, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return tuple(command)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return None


def compiled(folder: Path, into: Path) -> Path:
    """The network in `folder` as a program that reads examples and writes outputs."""
    command = compiler()
    assert command is not None
    main, program = into / "pipe.c", into / "pipe"
    main.write_text(PIPE, encoding="utf-8")
    parts = [str(main), str(folder / "net.c"), "-I", str(folder), "-lm", "-o", str(program)]
    try:
        line = [*command, *OPTIONS, *parts]
        done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"--c: {command[0]} failed: {error}") from None
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
        raise UserError(f"--c: {command[0]} refuses the program: {first[:200]}")
    return program


def run(program: Path, x: Tensor) -> Tensor:
    """The outputs for a batch."""
    given = x.contiguous().numpy().tobytes()
    done = subprocess.run(
        [str(program)], check=False, input=given, capture_output=True, timeout=SECONDS
    )
    if done.returncode:
        raise UserError(f"--c: the program ended with {done.returncode}")
    return torch.from_numpy(np.frombuffer(done.stdout, np.float32).reshape(len(x), -1).copy())
