"""Samplers of the user's own: a subclass of `Sampler`, a sampler class of Optuna's kind, or a
function that returns one. Arguments called `seed` and `problem` are given; an ask gets a sampler of
its own, so that a resumed search asks what the undisturbed one would have asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.search.samplers.registry import SAMPLERS, Sampler
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code.loading import about, blamed
from bitfront.trainables.own_code.reference import called, shown
from bitfront.trainables.own_code.signatures import arguments, summary

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from bitfront.search.samplers.problem import Problem

GIVEN = ("seed", "problem")


class OwnSampler(Sampler):
    """A sampler that a class or function of the user's own makes."""

    reference: ClassVar[str]
    asks: ClassVar[tuple[str, ...]] = ()
    construct: ClassVar[Callable[..., Any]]

    @classmethod
    def make(cls, seed: int, problem: Problem) -> BaseSampler:
        from optuna.samplers import BaseSampler

        given = {"seed": seed, "problem": problem}
        with blamed(cls.reference, "cannot be made"):
            made = cls.construct(**{name: given[name] for name in cls.asks})
        if not isinstance(made, BaseSampler):
            raise UserError(
                f"{shown(cls.reference)} makes {type(made).__name__}, which is no sampler",
                "return an optuna.samplers.BaseSampler",
            )
        return made


@SAMPLERS.adopts
def adopt(found: Any, reference: str) -> type[Sampler]:
    """The sampler that an object of the user's own stands for."""
    name = called(reference)
    doc = summary(found)
    if isinstance(found, type) and issubclass(found, Sampler):
        given = {"name": name, "doc": doc}
        missing = {key: value for key, value in given.items() if not hasattr(found, key)}
        return type(found.__name__, (found,), {**missing, "__module__": __name__})
    if not callable(found):
        raise UserError(
            f"{shown(reference)} is no sampler: {type(found).__name__}",
            "name a class of Optuna's samplers, or a function of seed that returns one",
        )
    with about(reference):
        asks = _asked(found)
    content = {
        "name": name,
        "doc": doc,
        "reference": reference,
        "asks": asks,
        "construct": staticmethod(found),
        "__module__": __name__,
    }
    return type(name, (OwnSampler,), content)


def _asked(found: Callable[..., Any]) -> tuple[str, ...]:
    """Those of the given arguments that it takes; a UserError where it needs others."""
    taken = arguments(found)
    needed = [a.name for a in taken if a.default is a.empty and a.name not in GIVEN]
    if needed:
        raise UserError(
            f"nobody gives a value for its argument '{needed[0]}'",
            "arguments without a default are seed and problem",
        )
    return tuple(a.name for a in taken if a.name in GIVEN)
