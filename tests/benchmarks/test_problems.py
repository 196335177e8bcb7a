"""Problems that searches are measured on: three objectives, and points that were not trained."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from bitfront.search.front import Objective, hypervolume
from bitfront.search.ledger.states import TrialState
from testbed import dense
from testbed.dense import build
from testbed.problems import CHANCE
from testbed.three import STEPS, heights, three

OBJECTIVES = [Objective("accuracy", True), Objective("flops", False), Objective("bytes", False)]


def trials(plans):
    return [SimpleNamespace(spec=SimpleNamespace(plan=p), state=TrialState.COMPLETE) for p in plans]


def test_the_volume_under_heights_is_that_of_three_objectives():
    rng = np.random.default_rng(0)
    accuracy, costs = rng.uniform(0.2, 0.9, 12), rng.random((12, 2))
    cell = (1.1 / STEPS) ** 2
    found = cell * (heights(accuracy, costs, 1.1) - CHANCE).sum()
    points = [(a, *c) for a, c in zip(accuracy.tolist(), costs.tolist(), strict=True)]
    exact = hypervolume(points, [CHANCE, 1.1, 1.1], OBJECTIVES)
    assert found == pytest.approx(exact, rel=0.03)


def test_shares_of_three_objectives_grow_and_stay_below_one():
    problem, rng = three(0), np.random.default_rng(1)
    plans = ["".join(row) for row in rng.choice(["F", "B"], (60, 20))] + ["F" * 20, "B" * 20]
    for strict in (False, True):
        shares = [problem.share_of(trials(plans[:n]), strict) for n in (10, 60, 62)]
        assert 0 <= shares[0] <= shares[1] <= shares[2] < 1
    assert problem.share_of([]) == 0


@pytest.mark.parametrize("name", ["blocks", "edge-popup"])
def test_points_are_numbers_and_numbers_are_points(name):
    _, space = dense.search(name)
    inputs = dense.Inputs(space)
    rows = inputs.drawn(np.random.default_rng(0), 20)
    changed = inputs.changed(rows, np.random.default_rng(1))
    assert (changed != rows).any(1).all()
    assert np.abs(changed).max() <= 1
    np.testing.assert_allclose(inputs.of(map(inputs.at, changed)), changed, atol=1e-9)
    price = dense.prices(inputs)(rows[:5])
    dearest = max(costs["flops"] for costs in space.full_costs())
    for row, share in zip(rows[:5], price, strict=True):
        point = inputs.at(row)
        spec = space.walk(lambda name, domain, p=point: p.get(name, dense.only(domain)))
        assert space.costs(spec)["flops"] / dearest == pytest.approx(share, rel=0.02)


def test_perceptrons_answer_for_points_they_have_not_seen(monkeypatch):
    """The accuracy rises with the first inputs and falls where two of them come together."""
    rng = np.random.default_rng(0)
    rows = rng.choice([-1.0, 1.0], (300, 8))
    accuracy = 0.7 + 0.05 * rows[:, 0] + 0.03 * rows[:, 1] - 0.04 * rows[:, 2] * rows[:, 3]
    monkeypatch.setattr(build, "STEPS", 200)
    weights = build.fitted(rows[:200], accuracy[:200])
    missed = dense.answer(weights, rows[200:]) - accuracy[200:]
    assert np.sqrt((missed**2).mean()) < 0.25 * accuracy.std()


def test_an_interrupted_build_trains_nothing_twice(monkeypatch, tmp_path):
    asked = []

    def train(spec):
        asked.append(json.dumps(spec, sort_keys=True))
        return [0.5, 0.6 + 0.1 * spec["task"]["optimizer"]["lr"]]

    monkeypatch.setattr(build, "train", train)
    monkeypatch.setattr(build, "GENERATION", 6)
    monkeypatch.setattr(build, "REPEATED", 2)
    first = build.trained("edge-popup", 12, tmp_path)
    count = len(asked)
    again = build.trained("edge-popup", 12, tmp_path)
    assert count == len(set(asked)) == 14
    assert len(asked) == count
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert first[2] == 0
