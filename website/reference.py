"""Pages made from other registries, and the list of names whose docstrings are the Python
reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bitfront
from bitfront.trainables.costs import COSTS, cost_names
from bitfront.trainables.models import MODELS
from bitfront.trainables.papers import paper_of
from bitfront.trainables.selectors import SELECTORS
from website.zoo import table, word

API = """\
# Python reference

Everything that `import bitfront as bf` offers, from the docstrings. [In Python](python.md) shows
it at work.
"""
MODEL_INTRODUCTION = """\
# Models

Networks with a name of their own. Any classifier of timm or torchvision is a model too,
`timm/NAME` and `torchvision/NAME`, and [one of yours](own.md) is `my_net.py:MyNet`. `bitfront
cost NAME` shows the layers that a plan decides, and what a plan costs.
"""
SELECTOR_INTRODUCTION = """\
# Selectors

A selector makes a plan for a budget: `plan: {selector: NAME, budget: [40, 20]}` in a
[YAML](yaml.md), `bf.select` in [Python](python.md#a-plan-without-a-search). How far their plans
are from the best of their cost is in the [benchmarks](benchmarks.md), equations are in [section
4](methods.md#4-mixbin).
"""
COST_INTRODUCTION = """\
# Costs

Exact before training: a network is followed once, and the cost of any plan is a sum over its
layers. Each may be an objective or a limit; `bitfront cost` shows one layer by layer. Why FLOPs
are counted as they are: [internals](internals.md#costs). A cost of your own is [a function of a
layer](own.md#a-metric-a-cost-a-selector-a-sampler-of-your-own).
"""


def pages() -> dict[str, str]:
    """All pages, by their place."""
    return {
        "api.md": api(),
        "models.md": models(),
        "selectors.md": selectors(),
        "costs.md": costs(),
    }


def api() -> str:
    """The Python reference: a directive per name, filled in by mkdocstrings."""
    found = []
    for name in bitfront.__all__:
        thing = getattr(bitfront, name)
        heading = f"    options: {{heading: bf.{name}, toc_label: {name}}}\n"
        found.append(f"::: {thing.__module__}.{thing.__qualname__}\n{heading}")
    return "\n".join([API, *found])


def models() -> str:
    """Every model with its parameters."""
    lines = [MODEL_INTRODUCTION]
    for name, model in MODELS.items():
        lines += [f"## {name}\n", f"{model.doc}.\n", *_parameters(model.params)]
    return "\n".join(lines)


def selectors() -> str:
    """Every selector with its parameters and paper."""
    lines = [SELECTOR_INTRODUCTION]
    for name, selector in SELECTORS.items():
        paper = paper_of(selector.paper) if selector.paper else None
        trained = "Trains a network first." if selector.trained else "Trains nothing."
        cited = f" [{paper.text}]({paper.link})." if paper and paper.link else ""
        text = f"{selector.doc[0].upper()}{selector.doc[1:]}. {trained}{cited}\n"
        lines += [f"## {name}\n", text, *_parameters(selector.params)]
    return "\n".join(lines)


def costs() -> str:
    """Every cost."""
    rows = [[f"`{name}`", COSTS.get(name).label, COSTS.get(name).doc] for name in cost_names()]
    return "\n".join([COST_INTRODUCTION, table(["cost", "what it is", "what it counts"], rows)])


def _parameters(params: Mapping[str, Any]) -> list[str]:
    rows = []
    for key, param in params.items():
        told = param.describe()
        rows.append(
            [f"`{key}`", told["doc"], word(told["default"]), told["accepts"], told["range"]]
        )
    heads = ["parameter", "what it is", "default", "accepted", "worth searching"]
    return [table(heads, rows)] if rows else []
