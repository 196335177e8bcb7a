"""Pydantic's errors in the words of somebody who wrote a YAML. The only module that knows
pydantic's types of errors; no class of ours and no word of Python is in a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bitfront.search.config.errors import KeyPath, KeyProblem
from bitfront.trainables.errors import did_you_mean

# The most characters of a wrong value that a message repeats.
MOST_SHOWN = 60
MAPPING = "keys and values"
UNKNOWN = "unknown key"

M = TypeVar("M", bound=BaseModel)

# What should stand there instead, by the type of the error.
WANTED = {
    "bool": "true or false",
    "date": "text",
    "datetime": "text",
    "decimal": "a number",
    "dict": MAPPING,
    "float": "a number",
    "finite_number": "a finite number",
    "frozen_set": "a list",
    "int": "a whole number",
    "int_from_float": "a whole number",
    "invalid_key": "keys that are words",
    "list": "a list",
    "mapping": MAPPING,
    "model": MAPPING,
    "model_attributes": MAPPING,
    "dataclass": MAPPING,
    "none_required": "nothing",
    "recursion_loop": "something that does not contain itself",
    "recursion_depth_exceeded": "something less deep",
    "set": "a list",
    "string": "text",
    "tuple": "a list",
}
BOUNDS = {
    "greater_than": ("gt", "greater than {}"),
    "greater_than_equal": ("ge", "at least {}"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "at most {}"),
    "multiple_of": ("multiple_of", "a multiple of {}"),
    "too_short": ("min_length", "at least {} long"),
    "too_long": ("max_length", "at most {} long"),
    "string_too_short": ("min_length", "at least {} characters long"),
    "string_too_long": ("max_length", "at most {} characters long"),
}
# What pydantic calls the alternatives of a value that may be of several types, in paths.
TAG = re.compile(
    r"bool|int|float|str|none|\[key\]|(list|dict|literal)\[.*\]|(constrained|function)-.*"
)
ENDINGS = ("_type", "_parsing", "_parsing_size", "_sub_class", "_unicode")


def mistakes(
    error: ValidationError,
    data: Any,
    keys_at: Callable[[KeyPath], Sequence[str]] = lambda _path: (),
    short_at: Callable[[KeyPath], str] = lambda _path: "",
) -> list[tuple[KeyPath, str]]:
    """(key, what is wrong with it) for everything wrong with `data`. `keys_at` returns the keys
    below a path, `short_at` what may be written there as a single value. Where a value may be of
    several types, one message names them all."""
    together: dict[KeyPath, list[Any]] = {}
    for item in error.errors(include_url=False):
        path = _written(item["loc"], data)
        together.setdefault(path, []).append(item)
    return [(path, _message(path, items, keys_at, short_at)) for path, items in together.items()]


def first_mistake(error: ValidationError, data: Any = None) -> tuple[KeyPath, str]:
    """(key, message) of the first mistake; without `data`, keys are as the schema names them."""
    return mistakes(error, data)[0]


def validated(model: type[M], raw: Any, path: KeyPath) -> M:
    """`raw`, which stands at `path`, as a `model`; a KeyProblem for its first mistake. Keys that
    are not known come first: a value may be missing because its key is misspelt."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        keys = [field.alias or name for name, field in model.model_fields.items()]
        found = mistakes(error, raw, lambda below: keys if not below else ())
        unknown = [(where, text) for where, text in found if text.startswith(UNKNOWN)]
        where, text = (unknown or found)[0]
        raise KeyProblem((*path, *where), text) from None


def shown(value: Any) -> str:
    """A value as it may be repeated in a message; '' for what has no short form."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if not isinstance(value, str | int | float):
        return ""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a very long number"
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "..."


def _written(loc: Sequence[str | int], data: Any) -> KeyPath:
    """The key as it stands in the file: where a value may be of several types, pydantic adds the
    name of each to its path."""
    path: list[str | int] = []
    for part in loc:
        if _has(data, part):
            data = data[part]
        elif TAG.fullmatch(str(part)):
            continue
        else:  # a key that is missing, or what a short form stands for
            data = None
        path.append(part)
    return tuple(path)


def _has(data: Any, part: str | int) -> bool:
    if isinstance(data, dict):
        return part in data
    return isinstance(data, list) and isinstance(part, int) and 0 <= part < len(data)


def _message(
    path: KeyPath,
    items: list[Any],
    keys_at: Callable[[KeyPath], Sequence[str]],
    short_at: Callable[[KeyPath], str],
) -> str:
    """One sentence about everything wrong with one value."""
    first = items[0]
    given = first["input"]
    if first["type"] == "extra_forbidden":
        return f"{UNKNOWN}, {did_you_mean(str(path[-1]), keys_at(path[:-1]))}"
    if first["type"] == "missing":
        return "is missing"
    if all(item["type"] == "literal_error" for item in items):
        words = [word for item in items for word in _choices(item)]
        return f"{shown(given)} is not known, {did_you_mean(str(given)[:MOST_SHOWN], words)}"
    own = [item for item in items if item["type"] in ("value_error", "assertion_error")]
    if own:
        text = str(own[0]["ctx"]["error"]) if "error" in own[0].get("ctx", {}) else own[0]["msg"]
        text = text.removeprefix("Value error, ")
        # One of our own sentences, which may quote the value.
        return text if len(text) <= 300 else f"{text[:MOST_SHOWN]} ... {text[-120:]}"
    wanted = list(dict.fromkeys(w for item in items if (w := _wanted(item))))
    if MAPPING in wanted:
        known = list(keys_at(path)) if first["type"].startswith("model") else []
        keys = ", ".join(known[:6] + ["..."] * (len(known) > 6))
        long = f"keys and values ({keys})" if keys else MAPPING
        wanted = [w for w in (short_at(path), long) if w]
    what = " or ".join(wanted) if wanted else "something else"
    got = f", got {shown(given)}" if shown(given) else ""
    return f"should be {what}{got}{_hint(given, wanted)}"


def _wanted(item: Any) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind in BOUNDS:
        key, text = BOUNDS[kind]
        if kind == "too_short" and context.get(key) == 1:
            return "a list with something in it"
        return text.format(_plain(context.get(key)))
    if kind in ("literal_error", "enum"):
        return " or ".join(f"'{w}'" for w in _choices(item))
    if kind == "string_pattern_mismatch":
        return "a name of letters, digits, '-', '_' and '.'"
    for ending in ENDINGS:
        if kind.endswith(ending) and kind.removesuffix(ending) in WANTED:
            return WANTED[kind.removesuffix(ending)]
    return WANTED.get(kind, "")


def _plain(number: Any) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)


def _choices(item: Any) -> list[str]:
    expected = str(item.get("ctx", {}).get("expected", ""))
    return [w.strip(" '") for w in re.split(r",| or ", expected) if w.strip(" '")]


def _hint(given: Any, wanted: Sequence[str]) -> str:
    """Advice for a number with a unit or a comma, and for a name that looks like a number; else
    ''."""
    if "text" in wanted and isinstance(given, bool | int | float):
        return ": put it in quotes"
    if not isinstance(given, str) or not any("number" in w for w in wanted):
        return ""
    match = re.fullmatch(
        r"\s*([-+]?[0-9]+(?:[.,][0-9]+)?)\s*(?:%|[A-Za-z]{1,3})?\s*", given[:MOST_SHOWN]
    )
    return f": write {match[1].replace(',', '.')}" if match else ""
