"""What there is, as tables: `bf.methods()`, `bf.models()`, `bf.datasets()`, `bf.selectors()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bitfront.trainables.data import DATASETS
from bitfront.trainables.methods import METHODS
from bitfront.trainables.models import MODELS
from bitfront.trainables.papers import citation
from bitfront.trainables.parameters import Param
from bitfront.trainables.selectors import SELECTORS

if TYPE_CHECKING:
    import pandas as pd


def methods() -> pd.DataFrame:
    """The binarization methods: family, levels, parameters with their defaults, paper."""
    return _table(
        {
            "method": name,
            "family": method.family,
            "levels": method.levels,
            "parameters": _defaults(method.params),
            "paper": citation(method.paper),
            "doc": method.doc,
        }
        for name, method in METHODS.items()
    )


def models() -> pd.DataFrame:
    """The networks that have a name here; any of timm and torchvision is `timm/NAME`."""
    return _table(
        {"model": name, "parameters": _defaults(model.params), "doc": model.doc}
        for name, model in MODELS.items()
    )


def datasets() -> pd.DataFrame:
    """The datasets that have a name here, and how to get those that are not embedded."""
    return _table(
        {
            "dataset": name,
            "shape": info.shape,
            "classes": info.classes,
            "train": info.train_size,
            "test": info.test_size,
            "embedded": info.embedded,
            "source": info.source,
        }
        for name, info in DATASETS.items()
    )


def selectors() -> pd.DataFrame:
    """The algorithms that make a plan for a budget."""
    return _table(
        {
            "selector": name,
            "trained": selector.trained,
            "parameters": _defaults(selector.params),
            "doc": selector.doc,
        }
        for name, selector in SELECTORS.items()
    )


def _table(rows: Iterable[dict[str, object]]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame(list(rows))
    return table.set_index(table.columns[0])


def _defaults(params: Mapping[str, Param]) -> str:
    return ", ".join(f"{name}={param.default}" for name, param in params.items())
