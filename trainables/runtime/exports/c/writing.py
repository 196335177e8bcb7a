"""Writes the folder of a network in C."""

from __future__ import annotations

from pathlib import Path

from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.exports.c import text
from bitfront.trainables.runtime.exports.c.compiler import compiled, compiler, run
from bitfront.trainables.runtime.exports.c.program import placed
from bitfront.trainables.runtime.exports.c.translation import translated
from bitfront.trainables.runtime.exports.form import Source

__all__ = ["compiled", "compiler", "run", "written"]


def written(source: Source, folder: Path) -> str:
    """Write net.h, net.c, main.c and net.json; returns what there is to say about them."""
    about = source.description
    if about.integers:
        raise UserError("--c: the network takes integers, net_predict takes floats", "--onnx does")
    program, out = translated(source.single)
    for name, content in (
        ("net.h", text.header(about, program, out)),
        ("net.c", text.source(about, program, out)),
        ("main.c", text.test(source.example, source.network(source.example))),
        ("net.json", about.as_json()),
    ):
        (folder / name).write_text(content, encoding="utf-8")
    _, floats = placed(program)
    return (
        f"{program.binary:,} weights of one bit, {program.weight_bytes:,} bytes of constants, "
        f"{4 * (floats + program.bits):,} bytes of buffers"
    )
