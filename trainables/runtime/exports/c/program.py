"""A program in C while it is made: values, constants, steps, and where in memory each value is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from bitfront.trainables.errors import UserError
from bitfront.trainables.registry import Registry
from bitfront.trainables.runtime.exports.form import layer_of


@dataclass(frozen=True)
class Value:
    """A tensor of floats: a constant array, the input, or a place in the arena; its elements follow
    each other in memory."""

    name: str
    shape: tuple[int, ...]
    storage: int | None = None
    """which buffer of the arena; None: it is not there"""
    constant: Tensor | None = None

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """How many elements apart neighbours are, per dimension."""
        return strides_of(self.shape)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor whose elements follow each other in memory."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


@dataclass(frozen=True)
class Read:
    """A value as an operation reads it: element (i, j, ...) is at offset + i * strides[0] + ..."""

    value: Value
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Pointwise:
    """A tensor that is not computed yet: an expression of C per element, of elements {0}, {1}, ...
    of `reads`."""

    shape: tuple[int, ...]
    expression: str
    reads: tuple[Read, ...]


@dataclass
class Step:
    """A statement, which reads and writes buffers of the arena."""

    text: str
    reads: set[int]
    writes: int | None


@dataclass
class Program:
    """What is written so far."""

    values: dict[Any, Value | Pointwise] = field(default_factory=dict)
    """by node of the traced network"""
    steps: list[Step] = field(default_factory=list)
    arrays: list[str] = field(default_factory=list)
    """definitions of constant arrays"""
    sizes: list[int] = field(default_factory=list)
    """floats of each buffer"""
    bits: int = 0
    """words of 32 bits for packed inputs"""
    weight_bytes: int = 0
    one_bit: dict[int, int] = field(default_factory=dict)
    """how many weights of one bit a tensor holds, by its address: layers may share it"""
    named: dict[tuple[int, str], str] = field(default_factory=dict)

    @property
    def binary(self) -> int:
        """The number of weights of one bit."""
        return sum(self.one_bit.values())

    def new(self, shape: Sequence[int]) -> Value:
        """A place in the arena."""
        number = len(self.sizes)
        self.sizes.append(math.prod(shape))
        return Value(f"v{number}", tuple(shape), number)

    def step(self, text: str, reads: Sequence[Value], writes: Value | None) -> None:
        """One more statement."""
        used = {value.storage for value in reads if value.storage is not None}
        self.steps.append(Step(text, used, None if writes is None else writes.storage))

    def array(self, kind: str, tensor: Tensor, texts: Callable[[Tensor], Sequence[str]]) -> str:
        """The name of a constant array with these elements; the same tensor has one array."""
        key = (tensor.data_ptr(), f"{kind}{tuple(tensor.shape)}{tensor.stride()}")
        if key not in self.named:
            name = self.named[key] = f"c{len(self.arrays)}"
            elements = list(texts(tensor))
            lines = [", ".join(elements[i : i + 12]) for i in range(0, len(elements), 12)]
            body = ",\n    ".join(lines)
            self.arrays.append(f"static const {kind} {name}[{len(elements)}] = {{\n    {body}\n}};")
            width = {"float": 4, "uint8_t": 1, "uint16_t": 2, "uint32_t": 4}[kind]
            self.weight_bytes += width * len(elements)
            self.named[key] = name
            self.kept.append(tensor)
        return self.named[key]

    kept: list[Tensor] = field(default_factory=list)
    """tensors that arrays were made of, so that no other one gets their address"""

    def floats(self, tensor: Tensor) -> str:
        """The name of a constant array of floats."""
        return self.array("float", tensor, lambda t: [number(v) for v in t.flatten().tolist()])

    def constant(self, tensor: Tensor) -> Value:
        """A constant as a value; its array is written when it is read."""
        whole = tensor.detach().float().contiguous()
        return Value("", tuple(whole.shape), None, whole)

    def address(self, value: Value) -> str:
        """What stands in C for the first element of a value."""
        return value.name if value.constant is None else self.floats(value.constant)


def in_memory(program: Program, found: Value | Pointwise) -> Value:
    """The value itself, or a place into which an expression is computed."""
    if isinstance(found, Value):
        return found
    out = program.new(found.shape)
    write(program, found, Read(out, out.strides))
    return out


def write(program: Program, made: Pointwise, out: Read) -> None:
    """A loop over all elements, which are written where `out` says."""
    every = [out, *made.reads]
    shape, strides = _joined(made.shape, [read.strides for read in every])
    letters = [f"i{n}" for n in range(len(shape))]

    def element(read: Read, steps: Sequence[int]) -> str:
        terms = [f"{s} * {i}" if s != 1 else i for i, s in zip(letters, steps, strict=True) if s]
        terms += [str(read.offset)] if read.offset or not terms else []
        return f"{program.address(read.value)}[{' + '.join(terms)}]"

    texts = [element(read, steps) for read, steps in zip(every, strides, strict=True)]
    loops = "".join(
        f"for (int {i} = 0; {i} < {n}; {i}++) " for i, n in zip(letters, shape, strict=True)
    )
    text = f"{loops}{texts[0]} = {made.expression.format(*texts[1:])};"
    program.step(text, [read.value for read in every], out.value)


def _joined(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Neighbouring dimensions as one where all that is read and written allows it."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for place, size in enumerate(shape):
        if size == 1:
            continue
        now = [each[place] for each in strides]
        if sizes and all(known[-1] == step * size for known, step in zip(steps, now, strict=True)):
            sizes[-1] *= size
            for known, step in zip(steps, now, strict=True):
                known[-1] = step
        else:
            sizes.append(size)
            for known, step in zip(steps, now, strict=True):
                known.append(step)
    return sizes, steps


def number(value: float) -> str:
    """A float in C, exactly."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}"
    return f"{text}f" if any(c in text for c in ".en") else f"{text}.0f"


def placed(program: Program) -> tuple[list[int], int]:
    """(the first float of each buffer, floats in all): buffers that are needed at the same time do
    not overlap. The largest ones are placed first, each where it fits lowest."""
    spans: dict[int, tuple[int, int]] = {}
    for place, step in enumerate(program.steps):
        used = step.reads | ({step.writes} if step.writes is not None else set())
        for storage in used:
            first, _ = spans.get(storage, (place, place))
            spans[storage] = (first, place)
    offsets = [0] * len(program.sizes)
    done: list[int] = []
    for storage in sorted(spans, key=lambda s: -program.sizes[s]):
        begin, end = spans[storage]
        taken = sorted(
            (offsets[other], offsets[other] + program.sizes[other])
            for other in done
            if spans[other][0] <= end and begin <= spans[other][1]
        )
        at = 0
        for low, high in taken:
            if at + program.sizes[storage] <= low:
                break
            at = max(at, high)
        offsets[storage] = at
        done.append(storage)
    return offsets, max((offsets[s] + program.sizes[s] for s in done), default=0)


# --- operators ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operator:
    """What is written for nodes of the traced network that call this operator of torch."""

    name: str
    write: Callable[[Call], Value | Pointwise]


OPERATORS: Registry[Operator] = Registry("operator")


Writer = TypeVar("Writer", bound=Callable[..., Any])


def operator(*names: str) -> Callable[[Writer], Writer]:
    """A decorator for the function that writes the calls of these operators."""

    def add(write: Writer) -> Writer:
        for name in names:
            OPERATORS.add(name, Operator(name, write))
        return write

    return add


class Call:
    """A node of the traced network: its arguments as values, by name."""

    def __init__(self, program: Program, node: Any) -> None:
        self.program = program
        self.node = node
        names = [argument.name for argument in node.target._schema.arguments]
        # An optional argument may have no default in the schema, and is None then.
        defaults = {
            a.name: a.default_value if a.has_default_value() else None
            for a in node.target._schema.arguments
        }
        self.given = {**defaults, **dict(zip(names, node.args, strict=False)), **node.kwargs}

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what the call returns."""
        found = self.node.meta["val"]
        first = found[0] if isinstance(found, list | tuple) else found
        return tuple(int(n) for n in first.shape)

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    def value(self, name: str) -> Value:
        """An argument in memory."""
        return in_memory(self.program, self.lazy(self.given[name]))

    def lazy(self, argument: Any) -> Value | Pointwise:
        """An argument, perhaps not computed yet."""
        found = self.program.values.get(argument)
        if found is None:
            raise self.refused(f"takes {argument!r:.60}, which is no tensor here")
        return found

    def tensor(self, name: str) -> Tensor | None:
        """An argument that must be a constant; None where it is not given."""
        argument = self.given[name]
        if argument is None:
            return None
        found = self.lazy(argument)
        if isinstance(found, Pointwise) or found.constant is None:
            raise self.refused(f"has a {name} that is computed")
        return found.constant

    def refused(self, why: str) -> UserError:
        """An error that names the layer."""
        return UserError(f"--c: {layer_of(self.node)}: {self.node.target} {why}")


def folded(program: Program, node: Any) -> bool:
    """Whether a node was computed here, since all it takes is constant."""
    found = [program.values.get(each) for each in node.all_input_nodes]
    if not found or not all(isinstance(v, Value) and v.constant is not None for v in found):
        return False
    known = dict(zip(node.all_input_nodes, found, strict=True))
    args, kwargs = torch.fx.node.map_arg(
        (node.args, node.kwargs),
        lambda each: known[each].constant,
    )
    result = node.target(*args, **kwargs)
    if not isinstance(result, Tensor):
        return False
    program.values[node] = program.constant(result)
    return True
