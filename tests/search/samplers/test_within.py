"""Plans within limits: counted, drawn and listed; and when a space is exhausted."""

import itertools

import numpy as np
import pytest

from bitfront.search.ledger.ledger import Ledger
from bitfront.search.samplers.surrogate.feasible import Band, FeasiblePlans
from bitfront.spaces.listing import every_point


def brute(bands, groups, levels):
    """All plans within the bands, by listing every plan there is."""
    codes = np.array(list(itertools.product(range(levels), repeat=groups)))
    fine = np.ones(len(codes), dtype=bool)
    for band in bands:
        fine &= band.holds(band.base + band.deltas[np.arange(groups), codes].sum(1))
    return {tuple(row) for row in codes[fine].tolist()}


def drawn_band(rng, groups, levels, whole, width):
    deltas = rng.integers(0, 50, (groups, levels)) if whole else 50 * rng.random((groups, levels))
    base, middle = float(rng.integers(100)), float(deltas.mean(1).sum())
    return Band(base, deltas.astype(float), base + middle - width, base + middle + width)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_listed_is_what_brute_force_finds(seed):
    """One band or two, of whole numbers or of others."""
    rng = np.random.default_rng(seed)
    groups, levels = 6 + seed % 3, 2 + seed % 2
    bands = [drawn_band(rng, groups, levels, seed % 4 < 2, 6.0) for _ in range(1 + seed % 2)]
    plans = FeasiblePlans(bands)
    wanted = brute(bands, groups, levels)
    found = [tuple(row) for row in plans.every(10**6).tolist()]
    assert len(found) == len(set(found))
    assert set(found) == wanted
    assert plans.most >= len(wanted)
    if len(bands) == 1 and seed % 4 < 2:
        assert plans.most == len(wanted)
    assert {tuple(row) for row in plans.drawn(rng, 40).tolist()} <= wanted


def test_draws_are_uniform():
    rng = np.random.default_rng(0)
    band = Band(0.0, np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [0.0, 4.0]]), 3.0, 5.0)
    wanted = brute([band], 4, 2)
    plans, counts = FeasiblePlans([band]).drawn(rng, 8000).tolist(), {}
    for plan in map(tuple, plans):
        counts[plan] = counts.get(plan, 0) + 1
    assert counts.keys() == wanted
    expected = 8000 / len(wanted)
    assert all(abs(n - expected) < 5 * expected**0.5 for n in counts.values())


def test_two_hundred_layers_are_no_trouble():
    rng = np.random.default_rng(0)
    deltas = np.concatenate([np.zeros((200, 1)), rng.random((200, 2))], axis=1)
    plans = FeasiblePlans([Band(0.0, deltas, 20.0, 20.01)])
    codes = plans.drawn(rng, 8)
    total = deltas[np.arange(200), codes].sum(1)
    assert len(codes) == 8
    assert ((total >= 20.0) & (total <= 20.01)).all()
    assert np.isfinite(plans.most)
    assert plans.every(10**6) is None


def test_limits_that_nothing_satisfies_leave_nothing():
    plans = FeasiblePlans([Band(0.0, np.array([[0.0, 2.0], [0.0, 2.0]]), 0.5, 1.5)])
    assert plans.most == 0
    assert plans.every(10).tolist() == []
    assert plans.drawn(np.random.default_rng(0), 3).tolist() == []


@pytest.mark.parametrize("sampler", ["random", "tpe", "free-cost"])
def test_every_plan_within_a_tight_band_is_found(make_space, sampler):
    """2^19 plans, of which a handful satisfy the limit: too many to list, and random draws miss."""
    words = ["task.model={name: cresnet, depth: 20, width: 4}", f"search.sampler={sampler}"]
    words += ["space={method: bnn, plan: {per: layer, levels: [F, B]}}", "search.trials=40"]
    _, space = make_space(*words)
    assert every_point(space, 2000) is None
    costs = space.walk(lambda name, domain: "FB"[len(name) % 2])
    wanted = {name: space.costs(costs)[name] for name in ("bytes", "flops")}
    words += [f"limits.{name}={{min: {cost}, max: {cost}}}" for name, cost in wanted.items()]
    config, space = make_space(*words)
    ledger = Ledger("memory:", config, space)
    found = set()
    while (entry := ledger.ask()) is not None:
        metrics = {"epoch": 3, "val_accuracy": 0.5 + 0.01 * entry.number}
        ledger.tell(entry.id, "complete", metrics, [metrics])
        found.add(entry.spec.plan)
        assert entry.costs.items() >= wanted.items()
    assert ledger.exhausted == (len(found) < 40)
    if ledger.exhausted:
        assert ledger.proposals.proven
    every = ledger.proposals._within.every()
    assert len(found) == min(40, len(every))
