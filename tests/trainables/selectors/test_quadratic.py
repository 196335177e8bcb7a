"""Plans where layers act in pairs: the solver against every plan, and its bound."""

import itertools

import numpy as np
import pytest

from bitfront.trainables.selectors import quadratic
from bitfront.trainables.selectors.quadratic import bound, grown, least_damage, value


def drawn(layers, seed):
    """(damage of layers and pairs, percent of the flops that each saves)."""
    rng = np.random.default_rng(seed)
    pairs = np.triu(rng.normal(0, 0.3, (layers, layers)), 1) + np.diag(rng.lognormal(0, 1, layers))
    saved = rng.lognormal(0, 0.5, layers)
    return pairs.tolist(), (90 * saved / saved.sum()).tolist()


def best_of_all(pairs, saved, low, high):
    found = []
    for chosen in itertools.product((0, 1), repeat=len(saved)):
        x = np.array(chosen)
        if low <= 100 - x @ saved <= high:
            found.append(float(x @ np.triu(pairs) @ x))
    return min(found, default=None)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bounds", [(40, 50), (10, 100), (70, 72), (0, 9)])
def test_the_plan_is_the_best_of_all(seed, bounds):
    pairs, saved = drawn(9, seed)
    best = best_of_all(pairs, saved, *bounds)
    found = least_damage(pairs, saved, *bounds)
    if best is None:
        assert found is None
        return
    assert found.exact
    assert found.damage == pytest.approx(best)
    flops = 100 - sum(saved[i] for i in found.binary)
    assert bounds[0] <= flops <= bounds[1]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_searched_is_within_its_gap_of_the_best(monkeypatch, seed):
    pairs, saved = drawn(12, seed)
    best = least_damage(pairs, saved, 40, 50).damage
    monkeypatch.setattr(quadratic, "EXACT", 4)
    quadratic._solved.cache_clear()
    found = least_damage(pairs, saved, 40, 50)
    quadratic._solved.cache_clear()
    assert not found.exact
    assert best - 1e-9 <= found.damage <= best + found.gap
    assert found.damage <= best + 0.05 * abs(best)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bounds", [(40, 50), (10, 100), (95, 100)])
def test_no_plan_is_below_the_bound(seed, bounds):
    pairs, saved = drawn(8, seed)
    best = best_of_all(pairs, saved, *bounds)
    assert bound(np.array(pairs), np.array(saved), *bounds) <= best + 1e-9


def test_a_pair_that_must_not_be_binary_together_is_not():
    """Two cheap layers that ruin each other: a ranking of single layers takes both."""
    pairs = np.diag([0.1, 0.1, 0.3, 9.0])
    pairs[0, 1] = 5.0
    saved = [20.0, 20.0, 20.0, 20.0]
    assert least_damage(np.diag(pairs.diagonal()).tolist(), saved, 60, 60).binary == {0, 1}
    assert least_damage(pairs.tolist(), saved, 60, 60).binary == {0, 2}
    assert grown(pairs.tolist(), saved) == [0, 2, 1, 3]


def test_a_damage_is_that_of_layers_and_pairs():
    pairs = np.array([[1.0, 10.0, 100.0], [0.0, 2.0, 1000.0], [0.0, 0.0, 4.0]])
    assert value(pairs, np.array([True, False, True])) == 105.0
