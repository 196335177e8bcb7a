"""The cheapest and dearest points of a space, limits, and the reference of hypervolumes."""

import random

import pytest

from bitfront.search.config.bounds import cost_bounds, feasible_share, reference_point, violations
from bitfront.trainables.cost import task_cost_table


def test_bounds_hold_for_random_points_and_are_reached(make_space):
    _, space = make_space("space.model.width=[8, 16]", "space.model.depth=[3, 5]")
    bounds = cost_bounds(space)
    rng = random.Random(0)
    seen = [space.costs(space.random_point(rng)) for _ in range(300)]
    for name, (low, high) in bounds.items():
        values = [costs[name] for costs in seen]
        assert low <= min(values)
        assert max(values) <= high
    assert min(c["flops"] for c in seen) == bounds["flops"][0]


def test_the_feasible_share_follows_the_limit(make_space):
    config, space = make_space("limits.flops_pct=60")
    share = feasible_share(config, space)
    assert 0 < share < 1
    rng = random.Random(1)
    broken = [bool(violations(config, space.costs(space.random_point(rng)))) for _ in range(400)]
    assert share == pytest.approx(1 - sum(broken) / 400, abs=0.1)


def test_the_reference_is_chance_and_beyond_full_precision(make_space):
    config, space = make_space()
    accuracy, flops = reference_point(config, space)
    assert accuracy == pytest.approx(0.1)
    full = task_cost_table(config.task).totals("FFFF")["flops"]
    assert flops == pytest.approx(1.1 * full)
