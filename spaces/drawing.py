"""Values of domains: the ends of one, its middle, a random value, or what a function draws."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from bitfront.trainables.parameters import Choice, Domain, Float, Int, Value

Draw = Callable[[str, Domain], Any]


def ends(domain: Domain) -> list[Value]:
    """All values of a choice, the lowest and the highest of a range."""
    if isinstance(domain, Choice):
        return list(domain.values)
    return [domain.low, domain.high] if domain.low != domain.high else [domain.low]


def every_value(domain: Domain) -> list[Any]:
    """All values of a choice and of a range of whole numbers; both ends of a range of others."""
    if isinstance(domain, Choice | Float):
        return ends(domain)
    return list(range(domain.low, domain.high + 1, domain.step))


def random_value(domain: Domain, rng: random.Random) -> Value:
    """A value drawn uniformly, on the scale of the domain."""
    if isinstance(domain, Choice):
        return rng.choice(domain.values)
    if isinstance(domain, Int) and not domain.log:
        return rng.randrange(domain.low, domain.high + 1, domain.step)
    if domain.log:
        value = math.exp(rng.uniform(math.log(domain.low), math.log(domain.high)))
    else:
        value = rng.uniform(domain.low, domain.high)
    value = min(max(value, domain.low), domain.high)
    return round(value) if isinstance(domain, Int) else value


def drawn_value(draw: Draw, name: str, domain: Domain) -> Any:
    """The value that `draw` returns; for a domain of one value that value, without a call."""
    if domain.size == 1:
        return ends(domain)[0]
    return draw(name, domain)


def middle(domain: Domain) -> Any:
    """The value that is believed best; without a belief the first value of a choice, or the middle
    of a range on its scale."""
    if domain.prior is not None:
        return domain.prior.value
    if isinstance(domain, Choice):
        return domain.values[0]
    low, high = domain.low, domain.high
    value = math.sqrt(low * high) if domain.log else (low + high) / 2
    if isinstance(domain, Int):
        steps = round((value - domain.low) / domain.step)
        return domain.low + steps * domain.step
    return value
