"""What is believed of the quality before any trial: by the user, who names the values that ought to
be best. Each belief is a function of a point that the model (`model.py`) gives a weight; trials
decide how much of it stays. Points in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from bitfront.search.samplers.surrogate.atlas import Codes, Context, is_category, place_of
from bitfront.search.samplers.surrogate.model import Floats
from bitfront.spaces.space import FreePlan, Space
from bitfront.trainables.parameters import Domain, Prior

# The deviation of the best place in a range from the one that was named, and how many times
# likelier the named value of a choice is than another one.
WIDTH = {"low": 0.5, "medium": 0.25, "high": 0.125}
ODDS = {"low": 2.0, "medium": 4.0, "high": 8.0}
# Standard deviations of the quality that a unit of the logarithm of that density is taken for.
WORTH = 0.5


class Beliefs:
    """The priors of a space. That a density pi of the best point steers a search is the idea of
    piBO (Hvarfner et al., 2022, arXiv:2204.11051), where it is a factor pi^(beta/n) of the gain.
    Here each parameter with a prior is a belief of its own,

        b(x) = WORTH log(pi(x) / max pi)

    with pi normal around a number, on its scale, and ODDS to one for a category or a level."""

    def __init__(self, space: Space, contexts: Iterable[Context]) -> None:
        """The beliefs that apply in these contexts."""
        domains: dict[str, Domain] = {}
        groups: set[str] = set()
        for context in {c.kind: c for c in contexts}.values():
            domains |= {n: d for n, d in context.domains.items() if d.prior is not None}
            groups |= set(context.groups)
        free = space.plan if isinstance(space.plan, FreePlan) else None
        parts = {} if free is None else free.priors
        self._settings = sorted(domains.items())
        self._parts: list[tuple[str, Prior]] = sorted(
            (f"plan.{part}", prior) for part, prior in parts.items() if f"plan.{part}" in groups
        )

    def of(self, contexts: Sequence[Context], codes: Codes) -> Floats:
        """(plans, beliefs), of plans each in a context of its own or all in one."""
        n, first = len(codes), contexts[0]
        found = np.zeros((n, len(self._settings) + len(self._parts)))
        for column, (name, domain) in enumerate(self._settings):
            if name in first.domains:
                found[:, column] = [_setting(context, name, domain) for context in contexts]
        for column, (group, prior) in enumerate(self._parts, len(self._settings)):
            if group in first.groups:
                other = codes[:, first.groups.index(group)] != first.levels.index(str(prior.value))
                found[:, column] = -WORTH * math.log(ODDS[prior.confidence]) * other
        return found


def _setting(context: Context, name: str, domain: Domain) -> float:
    """b of one parameter."""
    prior = domain.prior
    assert prior is not None
    if is_category(domain):
        other = context.params[name] != prior.value
        return -WORTH * math.log(ODDS[prior.confidence]) * other
    apart = context.places[name] - place_of(domain, prior.value)
    return -0.5 * WORTH * (apart / WIDTH[prior.confidence]) ** 2
