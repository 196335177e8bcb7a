"""What data of the user's own consist of: the parts as they were returned, and a metric and a loss
where they bring their own. Examples are read in `reading`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from bitfront.trainables.data.own import array_files, hugging_face
from bitfront.trainables.data.own.declaration import arguments_of, base_of
from bitfront.trainables.errors import UserError, did_you_mean, first_line, quoted
from bitfront.trainables.own_code import is_reference, load_object, shown
from bitfront.trainables.own_code.loading import blamed

TRAIN, VAL, TEST = "train", "val", "test"
PARTS = (TRAIN, VAL, TEST)
_ALSO = {"validation": VAL, "valid": VAL, "training": TRAIN}
SETTINGS = ("metric", "loss", "direction", "kind", "outputs")
_KINDS = ("classification", "regression")
FORMS = (
    "return a Dataset, (train, test), (train, val, test) or a dict of parts; a part is a Dataset "
    "of (x, y), a pair of arrays or a DataLoader"
)
# Families whose datasets have a reader of their own: name -> what a user's function would return.
READERS: dict[str, Callable[[str], Any]] = {
    array_files.FAMILY: array_files.read_parts,
    hugging_face.FAMILY: hugging_face.read_parts,
}


@dataclass(frozen=True, eq=False)
class Goal:
    """What is learned, as far as the user says it: (outputs, targets) -> loss of a batch, and
    (outputs, targets) -> number of a whole part, by name."""

    loss: Callable[[Any, Any], Any] | None = None
    metrics: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    maximize: Mapping[str, bool] = field(default_factory=dict)
    kind: str | None = None
    outputs: int | None = None


@dataclass(frozen=True, eq=False)
class Opened:
    """The parts by name, as they were returned, and the goal."""

    parts: Mapping[str, Any]
    goal: Goal


def is_own(name: str) -> bool:
    """Whether the name is that of data this package reads. Other families are looked up first."""
    return name.partition(":")[0] in READERS or is_reference(base_of(name))


@contextmanager
def blame(name: str, doing: str) -> Iterator[None]:
    """Turn an exception of the user's code into one line, with its file and line where the data
    are named by a reference."""
    if is_reference(base_of(name)) and name.partition(":")[0] not in READERS:
        with blamed(base_of(name), doing):
            yield
        return
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name}: {doing}: {first_line(error, typed=True)}") from error


# The user's function is run once in a process; a second entry would keep a second dataset.
@lru_cache(maxsize=1)
def opened(name: str) -> Opened:
    """What the data of this name consist of. Runs the user's function."""
    family = name.partition(":")[0]
    if family in READERS:
        return taken_apart(READERS[family](base_of(name)), name)
    load = load_object(base_of(name))
    returned = load
    if callable(load):
        arguments = _arguments(load, name)
        with blame(name, "an error when the data are loaded"):
            returned = load(**arguments)
    return taken_apart(returned, name, _goal(_attributes(load), name))


def goal_of(name: str) -> Goal:
    """The goal of the data. Loads them only where it is returned together with them."""
    if name.partition(":")[0] in READERS:
        return Goal()
    given = _attributes(load_object(base_of(name)))
    return _goal(given, name) if given else opened(name).goal


def _attributes(load: Any) -> dict[str, Any]:
    return {key: getattr(load, key) for key in SETTINGS if hasattr(load, key)}


def _arguments(load: Any, name: str) -> dict[str, Any]:
    """The arguments of the user's function, checked."""
    arguments = arguments_of(name)
    try:
        signature = inspect.signature(load)
    except (TypeError, ValueError):
        return arguments
    known = signature.parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in known.values())
    for key in arguments:
        if key not in known and not takes_all:
            raise UserError(f"{shown(name)} takes no '{key}', {did_you_mean(key, known)}")
    needed = [
        key
        for key, p in known.items()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    missing = [key for key in needed if key not in arguments]
    if missing:
        raise UserError(
            f"{shown(name)} needs a value for '{missing[0]}'",
            f"give it a default, or write data: {{{missing[0]}: ...}} below task",
        )
    return arguments


def taken_apart(returned: Any, name: str, goal: Goal | None = None) -> Opened:
    """The parts of what was returned, by name. `goal`: the one that is known without them."""
    goal = goal or Goal()
    if isinstance(returned, Mapping):
        settings = {key: returned[key] for key in returned if key in SETTINGS}
        parts = {_ALSO.get(key, key): returned[key] for key in returned if key not in settings}
        unknown = [key for key in parts if key not in PARTS]
        if unknown:
            hint = did_you_mean(str(unknown[0]), (*PARTS, *SETTINGS))
            raise UserError(f"{shown(name)} returns a part {quoted(unknown[0])}, {hint}")
        goal = _goal(settings, name) if settings else goal
    elif _are_parts(returned):
        names = {1: (TRAIN,), 2: (TRAIN, TEST), 3: PARTS}.get(len(returned))
        if names is None or (is_array(returned[0]) and len(returned) > 1):
            what = f"{len(returned)} things" if names is None else "bare arrays"
            raise UserError(f"{shown(name)} returns {what}", FORMS)
        parts = dict(zip(names, returned, strict=True))
    else:
        if isinstance(returned, list) and len(returned) in (2, 3) and all(map(is_pair, returned)):
            raise UserError(
                f"{shown(name)} returns a list of {len(returned)} pairs of arrays",
                "return parts as a tuple, (train, test): a list is one of examples",
            )
        parts = {TRAIN: returned}
    parts = {key: part for key, part in parts.items() if part is not None}
    if TRAIN not in parts:
        raise UserError(f"{shown(name)} returns no training part", FORMS)
    return Opened({key: parts[key] for key in PARTS if key in parts}, goal)


def _are_parts(returned: Any) -> bool:
    """Whether it is a tuple of parts, or a list of Datasets or DataLoaders, as `random_split`
    returns; other lists are of examples."""
    if isinstance(returned, tuple):
        return not is_pair(returned)
    few = isinstance(returned, list) and 0 < len(returned) <= len(PARTS)
    return few and all(map(_is_dataset, returned))


def _is_dataset(thing: Any) -> bool:
    """Whether it holds examples, as Datasets and DataLoaders do, and is no example itself."""
    if isinstance(thing, list | tuple | Mapping | str) or hasattr(thing, "shape"):
        return False
    return hasattr(thing, "__getitem__") or hasattr(thing, "dataset")


def is_array(thing: Any) -> bool:
    """Whether it is a tensor, a numpy array or a table of pandas."""
    return hasattr(thing, "shape") and hasattr(thing, "__len__") and len(thing.shape) > 0


def is_pair(thing: Any) -> bool:
    """Whether it is (examples, targets) as two arrays of one length, or of two by mistake."""
    return isinstance(thing, list | tuple) and len(thing) == 2 and all(map(is_array, thing))


def _goal(given: Mapping[str, Any], name: str) -> Goal:
    """The goal that the settings of a dict, or attributes of the function, declare."""
    metrics = given.get("metric") or {}
    if callable(metrics):
        metrics = {getattr(metrics, "__name__", type(metrics).__name__.lower()): metrics}
    if not isinstance(metrics, Mapping) or not all(map(callable, metrics.values())):
        raise UserError(
            f"{shown(name)}: 'metric' should be a function of (outputs, targets), or a dict of them"
        )
    for key in metrics:
        if not str(key).isidentifier() or key == "loss":
            raise UserError(
                f"{shown(name)}: {quoted(key)} is no name of a metric",
                "name it in a dict: metric={'f1': ...}",
            )
    loss, kind, outputs = (given.get(key) for key in ("loss", "kind", "outputs"))
    if loss is not None and not callable(loss):
        raise UserError(
            f"{shown(name)}: 'loss' should be a function of (outputs, targets), got a "
            f"{type(loss).__name__}",
            "class weights: 'loss': torch.nn.CrossEntropyLoss(weight=...)",
        )
    if kind is not None and kind not in _KINDS:
        raise UserError(f"{shown(name)}: kind {quoted(kind)}, one of: {', '.join(_KINDS)}")
    if outputs is not None and (type(outputs) is not int or outputs < 1):
        raise UserError(f"{shown(name)}: 'outputs' is the number of outputs of the network")
    return Goal(loss, dict(metrics), _directions(given, list(metrics), name), kind, outputs)


def _directions(given: Mapping[str, Any], metrics: Sequence[str], name: str) -> dict[str, bool]:
    direction = given.get("direction", "max")
    modes = direction if isinstance(direction, Mapping) else dict.fromkeys(metrics, direction)
    for key in metrics:
        if modes.get(key, "max") not in ("max", "min"):
            raise UserError(f"{shown(name)}: direction {quoted(modes[key])}, write max or min")
    return {key: modes.get(key, "max") == "max" for key in metrics}
