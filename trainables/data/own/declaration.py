"""The settled name of data of the user's own, which carries their declaration:
`my_data.py:load@3f2a9c1b7d20;3x32x32;10;n=800/100/100`. Written once, when the data are looked at;
read wherever the dataset is named, without running any code and without the data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import quote, unquote

from bitfront.trainables.errors import UserError, quoted
from bitfront.trainables.own_code import shown
from bitfront.trainables.parameters import Value

Target = Literal["classes", "regression", "own"]
# Families whose names have a path.
_WITH_PATHS = ("arrays", "hf", "folder")
# The type of examples that are integers.
INTEGERS = "int64"
# An argument of the user's function, `;load.size=64`.
ARGUMENT = "load."


@dataclass(frozen=True)
class OwnMetric:
    """A metric of the user's own. `chance`: its value for outputs that are all zero."""

    name: str
    maximize: bool
    chance: float


@dataclass(frozen=True)
class Declared:
    """What a settled name says about the data.

    `outputs`: of the network, the number of classes for classification; `sizes`: examples of
    (training, validation, test) part, 0 for a part that is not given, None where nothing is known;
    `spread`: standard deviation of the targets of regression; `mean` and `std`: of the channels of
    uint8 images; `integers`: examples are integers, such as token numbers, and stay so; `each`:
    they are read for every batch, `random`: and differ each time."""

    shape: tuple[int, ...]
    outputs: int
    target: Target = "classes"
    sizes: tuple[int, int, int] | None = None
    metrics: tuple[OwnMetric, ...] = ()
    own_loss: bool = False
    loss_chance: float = 0.0
    spread: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    integers: bool = False
    each: bool = False
    random: bool = False
    arguments: Mapping[str, Value] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of task."""
        if self.metrics or self.own_loss:
            return "own"
        return "classification" if self.target == "classes" else "regression"


def base_of(name: str) -> str:
    """The name without its declaration: a reference, or `FAMILY:...`."""
    return name.partition(";")[0]


def dataset_title(name: str) -> str:
    """The name as people read it: without its declaration, the hash of code and the folders
    of a path."""
    base = shown(base_of(name))
    family, _, rest = base.partition(":")
    return f"{family}:{rest.rpartition('/')[2]}" if family in _WITH_PATHS else base


def is_settled(name: str) -> bool:
    """Whether the name carries a declaration."""
    return any("=" not in part for part in name.split(";")[1:])


def with_arguments(name: str, arguments: Mapping[str, Value]) -> str:
    """The name, not settled yet, with arguments of the user's function."""
    return ";".join([name, *_argument_fields(arguments)])


def arguments_of(name: str) -> dict[str, Value]:
    """The arguments of the user's function that a name carries, settled or not."""
    pairs = (part.partition("=") for part in name.split(";")[1:])
    return {
        unquote(key.removeprefix(ARGUMENT)): json.loads(unquote(value))
        for key, _, value in pairs
        if key.startswith(ARGUMENT)
    }


def write(base: str, declared: Declared) -> str:
    """The settled name."""
    target = str(declared.outputs) if declared.target == "classes" else declared.target
    parts = [base, "x".join(map(str, declared.shape)), target]
    if declared.target != "classes" and declared.outputs != 1:
        parts.append(f"outputs={declared.outputs}")
    if declared.sizes is not None:
        parts.append("n=" + "/".join(map(str, declared.sizes)))
    for metric in declared.metrics:
        mode = "max" if metric.maximize else "min"
        parts.append(f"metric={metric.name}/{mode}/{metric.chance:.4g}")
    if declared.own_loss:
        parts.append(f"loss={declared.loss_chance:.4g}")
    if declared.target == "regression":
        parts.append(f"spread={declared.spread:.4g}")
    for key, numbers in (("mean", declared.mean), ("std", declared.std)):
        if numbers:
            parts.append(f"{key}=" + "/".join(f"{number:.4f}" for number in numbers))
    if declared.integers:
        parts.append(f"x={INTEGERS}")
    if declared.each:
        parts.append("read=random" if declared.random else "read=each")
    return ";".join([*parts, *_argument_fields(declared.arguments)])


def read(name: str) -> Declared:
    """The declaration that a settled name carries; a UserError where it is damaged."""
    try:
        return _read(name)
    except (ValueError, KeyError, OverflowError):
        raise UserError(
            f"dataset {quoted(name)}: damaged: its declaration cannot be read",
            "write the name alone: bitfront looks at the data and adds the rest",
        ) from None


def _read(name: str) -> Declared:
    _, shape, target, *rest = name.split(";")
    pairs = [part.partition("=")[::2] for part in rest]
    single = {key: value for key, value in pairs if key != "metric"}
    named: dict[str, Target] = {"regression": "regression", "own": "own"}
    kind = named.get(target, "classes")
    outputs = int(target if kind == "classes" else single.get("outputs", "1"))
    extents = tuple(map(int, shape.split("x")))
    if outputs < 1 or min(extents) < 1 or math.prod(extents) > 10**9 or len(extents) > 8:
        raise ValueError
    train, val, test = map(int, single["n"].split("/")) if "n" in single else (0, 0, 0)
    return Declared(
        shape=extents,
        outputs=outputs,
        target=kind,
        sizes=(train, val, test) if "n" in single else None,
        metrics=tuple(_metric(value) for key, value in pairs if key == "metric"),
        own_loss="loss" in single,
        loss_chance=float(single.get("loss", "0")),
        spread=float(single.get("spread", "1")),
        mean=tuple(_numbers(single.get("mean", ""))),
        std=tuple(_numbers(single.get("std", ""))),
        integers=_is_integers(single),
        each="read" in single,
        random=single.get("read") == "random",
        arguments=arguments_of(name),
    )


def _is_integers(single: Mapping[str, str]) -> bool:
    if single.get("x", INTEGERS) != INTEGERS:
        raise ValueError
    return "x" in single


def as_floats(name: str) -> str:
    """The settled name of the same data, whose integers reach the network as floats."""
    return write(base_of(name), replace(read(name), integers=False))


def _metric(text: str) -> OwnMetric:
    name, mode, chance = text.split("/")
    return OwnMetric(name, {"max": True, "min": False}[mode], float(chance))


def _numbers(text: str) -> Iterator[float]:
    return (float(number) for number in text.split("/") if number)


def _argument_fields(arguments: Mapping[str, Value]) -> list[str]:
    return [
        f"{ARGUMENT}{quote(key, safe='')}={quote(json.dumps(value), safe='')}"
        for key, value in sorted(arguments.items())
    ]
