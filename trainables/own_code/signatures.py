"""What code of the user's own declares by its docstring and by the defaults of its arguments:
`def quantize(w, slope=2.0)` has the parameter `slope`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, Literal, get_args, get_origin

from bitfront.trainables.errors import UserError, quoted
from bitfront.trainables.parameters import Choice, Domain, Float, Int, Param

# What a number may be where a signature says no more.
LARGEST = 10**9
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def summary(found: object) -> str:
    """The first paragraph of an object's docstring in one line, without its full stop."""
    return " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split()).rstrip(".")


def arguments(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The named arguments of a function, in order."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have none
        return []
    return [argument for argument in given if argument.kind not in _VARIADIC]


def parameters(function: Callable[..., Any], given: Collection[str] = ()) -> dict[str, Param]:
    """The parameters of a function: its arguments but for those that are `given` to it. A UserError
    for one without a default."""
    found = {}
    for argument in arguments(function):
        if argument.name in given:
            continue
        if argument.default is inspect.Parameter.empty:
            raise UserError(
                f"its argument '{argument.name}' has no default, so that nobody gives it a value",
                f"write {argument.name}=1.0 or the like: it can be set and searched then",
            )
        found[argument.name] = declared(argument)
    return found


def declared(argument: inspect.Parameter) -> Param:
    """The parameter that an argument with a default declares."""
    default = argument.default
    if isinstance(default, Param):
        return default
    if not isinstance(default, bool | int | float | str):
        raise UserError(
            f"its argument '{argument.name}' has the default {quoted(repr(default))}",
            "a parameter is a number, a truth value or a word",
        )
    return Param(default, _domain(default, argument.annotation))


def _domain(default: bool | float | str, annotation: Any) -> Domain:
    if get_origin(annotation) is Literal:
        return Choice(tuple(dict.fromkeys((default, *get_args(annotation)))))
    if isinstance(default, bool):
        return Choice((True, False))
    if isinstance(default, str):
        return Choice((default,))
    if isinstance(default, int):
        return Int(-LARGEST, LARGEST)
    return Float(-LARGEST, LARGEST)


def is_open(domain: Domain) -> bool:
    """Whether the domain is that of an argument that says no more than its default."""
    return not isinstance(domain, Choice) and (domain.low, domain.high) == (-LARGEST, LARGEST)
