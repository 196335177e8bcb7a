"""Numbers in validated data: `true` and `false` are refused, which pydantic accepts as 1 and 0."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails


def refuse_truths(model: type[BaseModel], data: Any) -> None:
    """Raise a ValidationError where `data` has a bool for a field of the model that takes a
    number."""
    if not isinstance(data, dict):
        return
    wrong = [
        InitErrorDetails(type=f"{kind}_type", loc=(name,), input=value)
        for name, value in data.items()
        if isinstance(value, bool) and (kind := _number(model, name)) is not None
    ]
    if wrong:
        raise ValidationError.from_exception_data(model.__name__, wrong)


@cache
def _number(model: type[BaseModel], key: Any) -> str | None:
    """`int` or `float` for the key of a field that takes numbers; None for every other key."""
    fields = model.model_fields.items()
    field = next((f for name, f in fields if key == (f.alias or name)), None)
    types = set() if field is None else _types(field.annotation)
    if bool in types:
        return None
    return next((kind.__name__ for kind in (int, float) if kind in types), None)


def _types(annotation: Any) -> set[Any]:
    """The types that a value may have, by its annotation."""
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _types(inner[0])
    if get_origin(annotation) in (Union, UnionType):
        return set().union(*map(_types, inner))
    return {annotation}
