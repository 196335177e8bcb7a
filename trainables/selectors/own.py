"""Selectors of the user's own. The smallest is a function that is given what it asks for by name
and returns the layers in the order in which they are made binary:

    def choose(layers, table):
        return sorted(layers, key=...)

It may return indices, names, or a score by name, of which the lowest comes first. `layers` are the
names of the layers, `table` is the cost table, `seed` that of the search. A function that asks for
`model` gets the network trained in full precision, with `train` and `validation` the data, with
`scoring` all that the selectors here use. Other arguments are parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables.cost import CostTable
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code.loading import about, blamed
from bitfront.trainables.own_code.reference import called, shown
from bitfront.trainables.own_code.signatures import arguments, parameters, summary
from bitfront.trainables.selectors.base import SELECTORS, Ranking, Selector, ascending

if TYPE_CHECKING:
    from bitfront.trainables.selectors.scores.scoring import Scoring

FREE = ("layers", "table", "seed")
TRAINED = ("model", "train", "validation", "scoring")


class OwnSelector(Selector):
    """A selector that is a function of the user's own."""

    choose: ClassVar[Callable[..., Any]]
    asks: ClassVar[tuple[str, ...]] = ()
    reference: ClassVar[str]

    def order(self, table: CostTable, seed: int) -> Sequence[int]:
        return self._ranked(table, {"table": table, "seed": seed}).order

    def rank(self, scoring: Scoring) -> Ranking:
        given: dict[str, Any] = {"table": scoring.table, "seed": scoring.spec.seed}
        given |= {"scoring": scoring, "train": scoring.train, "validation": scoring.validation}
        if "model" in self.asks:
            given["model"] = scoring.full_precision()
        return self._ranked(scoring.table, given)

    def _ranked(self, table: CostTable, given: dict[str, Any]) -> Ranking:
        names = [layer.name for layer in table.plan_layers]
        given["layers"] = list(names)
        asked = {name: given[name] for name in self.asks}
        with blamed(self.reference, "cannot choose"):
            found = type(self).choose(**asked, **self.values)
        with about(self.reference):
            return _ranking(found, names)


def _ranking(found: Any, names: Sequence[str]) -> Ranking:
    """The ranking that a function returned: indices, names, or scores by name."""
    hint = "return every layer once, by name or index, or a score for every name"
    if isinstance(found, Mapping):
        if set(found) != set(names):
            raise UserError("its scores are not those of the layers", hint)
        scores = [float(found[name]) for name in names]
        return Ranking(ascending(scores), scores, "score")
    try:
        order = [names.index(each) if isinstance(each, str) else int(each) for each in found]
    except (TypeError, ValueError):
        raise UserError(f"{type(found).__name__} is no order of layers", hint) from None
    if sorted(order) != list(range(len(names))):
        raise UserError(f"it ranks {len(order)} of {len(names)} layers, or one twice", hint)
    return Ranking(order)


@SELECTORS.adopts
def adopt(found: Any, reference: str) -> type[Selector]:
    """The selector that an object of the user's own stands for."""
    name = called(reference)
    doc = summary(found)
    if isinstance(found, type) and issubclass(found, Selector):
        given = {"name": name, "doc": doc}
        missing = {key: value for key, value in given.items() if not hasattr(found, key)}
        return type(found.__name__, (found,), {**missing, "__module__": __name__})
    if not callable(found) or isinstance(found, type):
        raise UserError(
            f"{shown(reference)} is no selector: {type(found).__name__}",
            "write def choose(layers, table), which returns the layers in an order",
        )
    with about(reference):
        asks = tuple(a.name for a in arguments(found) if a.name in (*FREE, *TRAINED))
        params = parameters(found, asks)
    content = {
        "name": name,
        "doc": doc,
        "reference": reference,
        "params": params,
        "trained": bool(set(asks) & set(TRAINED)),
        "asks": asks,
        "choose": staticmethod(found),
        "__module__": __name__,
    }
    return type(name, (OwnSelector,), content)
