"""A traced network as steps of a program in C."""

from __future__ import annotations

import operator
from typing import Any

from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.exports.c import layers, pointwise, windows  # noqa: F401
from bitfront.trainables.runtime.exports.c.pointwise import part_of
from bitfront.trainables.runtime.exports.c.program import (
    OPERATORS,
    Call,
    Program,
    Value,
    folded,
    in_memory,
)
from bitfront.trainables.runtime.exports.form import layer_of

# What returns nothing that is computed with.
CHECKS = ("aten._assert", "aten.sym_")


def translated(traced: Any) -> tuple[Program, Value]:
    """(the program, its output) of a network that was traced with one example."""
    program = Program()
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            program.values[node] = _placeholder(program, traced, node)
        elif node.op == "output":
            out = in_memory(program, program.values[node.args[0][0]])
            return program, out
        elif node.target is operator.getitem:
            program.values[node] = part_of(program, node)
        elif not str(node.target).startswith(CHECKS) and not folded(program, node):
            _write(program, node)
    raise AssertionError("a graph has an output")


def _placeholder(program: Program, traced: Any, node: Any) -> Value:
    """A parameter, a buffer or the input."""
    signature = traced.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    if node.name not in names:
        return Value("in", tuple(int(n) for n in node.meta["val"].shape))
    name = names[node.name]
    stored = traced.state_dict.get(name)
    return program.constant(traced.constants[name] if stored is None else stored)


def _write(program: Program, node: Any) -> None:
    name = str(node.target)
    if name not in OPERATORS:
        raise UserError(f"--c: {layer_of(node)}: {name} has no form in C", "--onnx takes it")
    try:
        program.values[node] = OPERATORS.get(name).write(Call(program, node))
    except UserError:
        raise
    except (KeyError, TypeError, IndexError, AttributeError, RuntimeError) as error:
        # Arguments that no network of ours has, such as None in place of a tensor.
        raise UserError(
            f"--c: {layer_of(node)}: {name} is called in a way C has no form of: "
            f"{type(error).__name__}"
        ) from None
