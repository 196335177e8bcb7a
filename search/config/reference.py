"""The reference of the search YAML, docs/yaml.md, made from the schema and the registries.

python -m bitfront.search.config.reference > docs/yaml.md"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel

from bitfront.search.config.known import COSTS, METRICS, samplers
from bitfront.search.config.reference_texts import DATA, EXAMPLE, LIMITS, PAPER, SPACE
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.space import TASK_KEYS
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import MODELS
from bitfront.trainables.selectors import SELECTORS

# Keys whose values are the names in a registry.
CHOICES = {"search.sampler": lambda: _alternatives(samplers())}

# Keys that mean something else in a YAML that does not have them than in older files.
DEFAULTS = {"task.activations": "`auto`"}


def reference() -> str:
    """The whole page."""
    lines = [
        "# The search YAML",
        "",
        "Written by `python -m bitfront.search.config.reference` from the schema; a test keeps it",
        "true. A mistake is reported with file, line, key and the nearest valid word before",
        "anything starts. Any key can be set on the command line: `--set task.epochs=3`.",
        "`bitfront preview FILE --rehearse` runs the whole search with made-up accuracies: how",
        "many of its trials will run, and which rows of `paper` no trial would answer (design.md).",
        "",
        "A whole file; most keys may be left out:",
        "",
        f"```yaml\n{EXAMPLE}```",
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        *_rows(SearchConfig, ""),
        "",
        f"Objectives are metrics ({_words(METRICS)}) and costs ({_words(COSTS)}).",
        LIMITS,
        DATA,
        SPACE.replace("TASK_KEYS", _words(TASK_KEYS)),
        PAPER,
        "## Methods and their parameters",
        "",
        "| method | levels | parameter | default | accepted | recommended |",
        "|---|---|---|---|---|---|",
    ]
    for name, method in METHODS.items():
        levels = "".join(method.levels)
        if not method.params:
            lines.append(f"| `{name}` | {levels} | | | | |")
        lines += [_parameter(f"`{name}` | {levels}", k, p) for k, p in method.params.items()]
    lines += [
        "",
        "## Selectors and their switches",
        "",
        "| selector | trains | parameter | default | accepted | recommended |",
        "|---|---|---|---|---|---|",
    ]
    for name, selector in SELECTORS.items():
        trains = "yes" if selector.trained else "no"
        if not selector.params:
            lines.append(f"| `{name}` | {trains} | | | | |")
        lines += [_parameter(f"`{name}` | {trains}", k, p) for k, p in selector.params.items()]
    lines += [
        "",
        "## Models and their parameters",
        "",
        "| model | parameter | default | accepted | recommended |",
        "|---|---|---|---|---|",
    ]
    for name, model in MODELS.items():
        lines += [_parameter(f"`{name}`", k, p) for k, p in model.params.items()]
    return "\n".join(lines) + "\n"


def _parameter(owner: str, name: str, param: Any) -> str:
    told = param.describe()
    default = str(told["default"]).lower() if isinstance(told["default"], bool) else told["default"]
    cells = [f"`{name}`: {told['doc']}", default, told["accepts"], told["range"]]
    return f"| {owner} | {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(content: Any) -> str:
    """The content of a cell: a bar in it, as in |w|, would begin another cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", str(content))


def _texts(model: type[BaseModel]) -> dict[str, str]:
    """The sentence below each field of a model, inherited fields included. Pydantic can read them
    too, but only whenever a model is made, which takes a tenth of a second at every start."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        (found,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(found, ast.ClassDef)
        for field, below in pairwise(found.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match below:
                    case ast.Expr(ast.Constant(str(text))):
                        texts[field.target.id] = inspect.cleandoc(text)
    return texts


def _rows(model: type[BaseModel], prefix: str) -> list[str]:
    rows, texts = [], _texts(model)
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        inner = _inner_model(field.annotation)
        text = texts.get(name, "").replace("\n", " ")
        if field.is_required():
            default = "required"
        elif inner is not None or field.default_factory is not None:
            made = field.get_default(call_default_factory=True)
            default = "" if isinstance(made, BaseModel) or made in (None, {}) else f"`{made}`"
        else:
            default = "" if field.default in (None, "") else f"`{_plain(field.default)}`"
        default = DEFAULTS.get(key, default)
        bounds = "".join(_bound(m) for m in field.metadata)
        kind = CHOICES[key]() if key in CHOICES else f"{_type(field.annotation)}{bounds}"
        rows.append(f"| `{key}` | {kind} | {default} | {_cell(text)} |")
        if inner is not None and name != "limits":
            rows += _rows(inner, f"{key}.")
        item = _list_item(field.annotation)
        if item is not None:
            rows += _rows(item, f"{key}[].")
    return rows


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model of the mapping that a key holds, required or not; None for other values."""
    options = [a for a in get_args(annotation) if a is not type(None)]
    if get_origin(annotation) in (Union, types.UnionType) and len(options) == 1:
        annotation = options[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _list_item(annotation: Any) -> type[BaseModel] | None:
    return _inner_model(get_args(annotation)[0]) if get_origin(annotation) is list else None


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *rest = get_args(annotation)
        found = [m for r in rest for m in getattr(r, "metadata", [r])]
        return _type(inner) + "".join(_bound(m) for m in found)
    if origin is Literal:
        return _alternatives(get_args(annotation))
    if origin in (Union, types.UnionType):
        return " or ".join(_type(a) for a in get_args(annotation) if a is not type(None))
    if origin is dict:
        return "mapping"
    if origin is list:
        return "list"
    words = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}
    return words.get(getattr(annotation, "__name__", ""), "mapping")


def _alternatives(words: Iterable[Any]) -> str:
    return " \\| ".join(f"`{word}`" for word in words)


def _bound(metadata: Any) -> str:
    for kind, sign in (("Ge", ">="), ("Gt", ">"), ("Le", "<="), ("Lt", "<")):
        if isinstance(metadata, getattr(annotated_types, kind)):
            return f" {sign} {getattr(metadata, kind.lower()):g}"
    return ""


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(names: Any) -> str:
    return ", ".join(f"`{n}`" for n in names)


if __name__ == "__main__":
    print(reference(), end="")
