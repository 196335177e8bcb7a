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
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.space import TASK_KEYS
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import MODELS
from bitfront.trainables.selectors import SELECTORS

EXAMPLE = """\
name: my-search
task:
  dataset: fashion-mnist
  model: {name: cresnet, depth: 8, width: 8}
  epochs: 5
  subset: 6000                            # examples; all of them when left out
  optimizer: {name: sgd, lr: 0.1, weight_decay: 1e-4}
space:
  method: [bnn, bnn++]
  plan: {per: layer, levels: [F, W, B]}
  model.width: [4, 8]
  optimizer.lr: {float: [0.03, 0.3], log: true}
  bnn++.mu: {schedule: {from: 5, to: {float: [10, 100], log: true}}}
objectives: {val_accuracy: max, flops: min}
limits: {flops_pct: 60}
search: {trials: 30, confirm: 0.2, early_stopping: true}
resources: {cpus: 1, gpus: 0}
"""

SPACE = """\
## `space`: what may change between trials

| key | value |
|---|---|
| `method` | a method, or a list of methods to choose among |
| `plan` | which layers are binary: see below |
| `METHOD.PARAMETER` | a parameter of one method; drawn only for trials of that method |
| `model.PARAMETER` | a parameter of the network; costs and the length of the plan follow it |
| TASK_KEYS | a part of the task |

A value is one of

| form | meaning |
|---|---|
| `3` | always this |
| `[a, b, c]` or `{choice: [a, b, c]}` | one of a list |
| `{float: [low, high]}`, with `log: true` | a number in a range, on a linear or log scale |
| `{int: [low, high]}`, with `step: n` or `log: true` | a whole number |
| `search` | the range the method or model recommends for this parameter |
| `{schedule: {from: a, to: b, until: f, shape: s}}` | a path over fractions of training |

In a schedule each of `from`, `to`, `until` and `shape` may itself be a range or a list. It is short
for four parameters: `bnn++.mu: {schedule: {from: 5, to: 50}}` sets `mu_start` to 5 and `mu_end` to
50; `until` and `shape` are `mu_until` and `mu_shape`. A method has a schedule `x` where the table
of methods below has `x_start`.

A plan is one of

| form | meaning |
|---|---|
| `FBBF` | one letter per layer: F full precision, S that but pruned, W binary weights, B weights \
and activations, A with narrow accumulators too |
| `B` | one letter for every layer |
| `{per: layer, levels: [F, B]}` | a level drawn for every `layer`, `block`, `stage` or `model` |
| `{only: block, level: W}` | one `layer`, `block` or `stage` binary, drawn; all others not |
| `{selector: mixbin-grad, budget: [80, 40], rule: at_least}` | by a selector, for % of the flops |

A plan in which every layer is F has nothing binary: its trial is one of the method `fp`, whichever
method was drawn, and tables show it as such.

A selected plan has these keys

| key | meaning |
|---|---|
| `selector` | one of `bitfront selectors`, or a list to choose among |
| `budget` | percent of the trial's own network in full precision (`flops_own_pct`), as MixBin \
counts it: a number, a list or a range |
| `rule` | `at_least`: stop before the flops fall below the budget; `nearest`: as near as it gets |
| `level` | of the chosen layers: `B` (the default) or `W` |
| `seeds` | draws of random and pseudo-random, a list; default: the search's seed |
| `params` | parameters of the selector, below |
| `trained_on` | changes of the task whose network the selector looks at: with \
`{dataset: cifar10}` it selects there, and trials train here |

A selector that looks at a trained network runs before the first trial, on the machines of the
trials; its order of layers serves all budgets and is kept for all searches of a home. Its scores
are in the search's folder and on the parent run: `selection-NAME.json`, `.csv`, `.html`, `.png`.
`search.start_from` begins a search over free plans with plans of a selector.
"""


DATA = """\
## Data of your own

| `task.dataset` | reads |
|---|---|
| `my_data.py:load`, `my_package.data:load` | what this function returns; `task.data` has its \
arguments |
| `folder:NAME:SIZE`, `folder:./birds:64` | images in `NAME/train/CLASS` and `NAME/test/CLASS`, or \
in `NAME/CLASS`, of which 20 % are then set aside for the test; NAME is a folder of the data \
directory or a path |
| `hf:PATH`, `hf:PATH:IMAGE_COLUMN:LABEL_COLUMN:SIZE` | a Hugging Face dataset that `save_to_disk` \
has written, where the library `datasets` is installed; nothing is downloaded |
| `arrays:FILE` | tensors `train.x`, `train.y`, `val.x`, ... of a safetensors file |

A function returns a part, `(train, test)`, `(train, val, test)` or a dict of parts with the keys
`train`, `val` and `test`. A part is a torch Dataset of (x, y), a list of such examples, a pair of
arrays or tensors, or a DataLoader. Integer targets are classes, counted from 0; float targets are
regression of one number or several. A validation part that is not given is split off
(`task.val_fraction`); without a test part, `bitfront train` leaves the validation part out of
training and reports it. A dict may have these keys too, or the function attributes of these names:

| key | meaning |
|---|---|
| `loss` | a function (outputs, targets) -> mean loss of a batch, a tensor of one number |
| `metric` | a function (outputs, targets) -> number, of a whole part on the CPU, or a dict of \
them by name; `f1` is the objective `val_f1`, and the first one the quality of the task |
| `direction` | of the metric: `max` (the default) or `min`, or a dict by name |
| `outputs` | of the network, where the targets do not tell |
| `kind` | `classification` or `regression`, where the type of the targets does not tell |

The data are looked at once, when the YAML is read: `bitfront validate`, `run` and `bitfront
datasets my_data.py:load` print shape, range, classes and sizes. The name in the search's folder
carries what was found, `my_data.py:load@3f2a9c1b7d20;3x32x32;10;n=800/0/200`. Numbers are used as
they come; uint8 images (channels first) are normalised by mean and deviation of their channels. Up
to 2 GiB of examples are kept in memory; more, and examples that differ each time they are read
(random transforms), are read for every batch. Random transforms draw from the seed of the trial
where they use the generators of torch, numpy or Python themselves.
"""


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
        "Limits are on costs, which are known before a trial is trained. `flops_pct` is of the",
        "dearest full-precision network of the space, the same one for all trials, in tables,",
        "figures, MLflow and `export --budget`; `flops_own_pct` is of the trial's own network.",
        "",
        DATA,
        SPACE.replace("TASK_KEYS", _words(TASK_KEYS)),
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
