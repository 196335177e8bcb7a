"""The model behind `free-cost`: its expected gains, its additive fronts, its predictions."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtri

from bitfront.search.front import Objective, hypervolume, non_dominated
from bitfront.search.samplers.surrogate.fronts import Staircase, additive_front, staircase_index
from bitfront.search.samplers.surrogate.model import QualityModel, Rows, _Scales

OBJECTIVES = [Objective("val_accuracy", True), Objective("flops", False)]
WORST, DEAREST = 0.1, 0.9


def improvement(front, point):
    """What one point adds to the hypervolume of a front, the long way round."""
    reference = [WORST, DEAREST]
    with_point = hypervolume([*front, point], reference, OBJECTIVES)
    return with_point - hypervolume(front, reference, OBJECTIVES)


@pytest.mark.parametrize("size", [0, 1, 2, 6, 15])
def test_the_expected_gain_is_the_mean_gain_in_hypervolume(size):
    rng = np.random.default_rng(size)
    quality, cost = rng.random(size), rng.random(size)
    front = list(zip(quality.tolist(), cost.tolist(), strict=True))
    # Cheaper than all, somewhere, as dear as a point of the front, at and beyond the reference.
    own = cost[:1] if size else np.array([0.5])
    at = np.concatenate([[0.0], rng.random(3), own, [DEAREST, 0.95]])
    mean, spread = rng.random(len(at)), rng.uniform(0.02, 0.3, len(at))
    found = Staircase.of(quality, cost, WORST, DEAREST).expected_improvement(at, mean, spread)
    draws = ndtri((np.arange(400) + 0.5) / 400)
    for c, m, s, gain in zip(at, mean, spread, found, strict=True):
        sampled = np.mean([improvement(front, (m + s * z, c)) for z in draws])
        assert gain == pytest.approx(sampled, rel=0.01, abs=2e-4)
    assert found[-2] == found[-1] == 0


def test_a_point_that_is_sure_to_be_dominated_gains_nothing():
    stairs = Staircase.of(np.array([0.8]), np.array([0.2]), WORST, DEAREST)
    sure = np.array([1e-6])
    assert stairs.expected_improvement(np.array([0.3]), np.array([0.7]), sure)[0] < 1e-9
    better = stairs.expected_improvement(np.array([0.3]), np.array([0.85]), sure)[0]
    assert better == pytest.approx(0.05 * 0.6, rel=1e-3)


def test_points_beyond_the_reference_are_no_steps():
    quality, cost = np.array([0.05, 0.5, 0.95]), np.array([0.1, 0.4, 0.91])
    stairs = Staircase.of(quality, cost, WORST, DEAREST)
    assert stairs.cost.tolist() == [0.4]
    assert stairs.at(np.array([0.39, 0.4, 0.95])).tolist() == [WORST, 0.5, 0.5]


@pytest.mark.parametrize("seed", range(5))
def test_the_staircase_is_the_front(seed):
    rng = np.random.default_rng(seed)
    quality, cost = rng.integers(0, 8, 30) / 8, rng.integers(0, 8, 30) / 8
    points = list(zip(quality.tolist(), cost.tolist(), strict=True))
    index = staircase_index(quality, cost)
    assert sorted(index) == non_dominated(points, OBJECTIVES)
    assert (np.diff(cost[index]) > 0).all()


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_additive_front_is_what_brute_force_finds(levels, seed):
    rng = np.random.default_rng(seed)
    groups, buckets = 6, 64
    gain = rng.normal(size=(groups, levels))
    # Dearer or cheaper than the first level, as on a relabelled problem.
    cost = rng.lognormal(size=(groups, levels)) * rng.choice((-1, 1), (groups, levels))
    gain[:, 0] = cost[:, 0] = 0.0
    plans = additive_front(gain, cost, buckets)
    every = np.array(list(itertools.product(range(levels), repeat=groups)))

    def total(parts, chosen):
        return parts[np.arange(groups), chosen].sum(1)

    above = cost - cost.min(1, keepdims=True)
    unit = above.max(1).sum() / buckets
    steps = np.rint(above / unit)
    for plan in every[staircase_index(total(gain, every), total(steps, every))]:
        same_cost = total(steps, plans) == total(steps, plan[None])
        assert total(gain, plans)[same_cost] == pytest.approx(total(gain, plan[None]))
    error = groups * unit  # half a bucket a layer, here and there
    for plan in every[staircase_index(total(gain, every), total(cost, every))]:
        as_cheap = total(cost, plans) <= total(cost, plan[None]) + error
        assert total(gain, plans)[as_cheap].max() >= total(gain, plan[None]) - 1e-9


def test_layers_that_cost_the_same_at_every_level_do_not_break_the_additive_front():
    gain = np.array([[0.0, 1.0], [0.0, -1.0]])
    assert additive_front(gain, np.zeros((2, 2))).tolist() == [[1, 0]]


def test_a_belief_is_expected_first_and_given_up_where_trials_say_otherwise():
    """The quality falls where a belief has it rise: the model follows the belief at few trials that
    tell nothing, and the trials where they tell."""
    places = np.linspace(0, 1, 30)[:, None]
    codes = np.zeros((30, 0), np.int64)
    rows = rows_of(codes, numeric=places, believed=2 * places)
    rng = np.random.default_rng(0)
    few = rows.take(np.array([0, 1, 2]))
    trusting = QualityModel(few, np.array([0.5, 0.6, 0.4]), np.zeros(3), rng).expected(rows)
    assert trusting[-1] > trusting[0]
    wrong = QualityModel(rows, 1 - places[:, 0], np.zeros(30), rng)
    assert np.allclose(wrong.expected(rows), 1 - places[:, 0], atol=0.05)
    assert wrong.health().rank_correlation > 0.9


def rows_of(codes, levels=2, numeric=None, category=None, believed=None):
    """Plans as the model sees them; the cost is the share of layers at the first level."""
    n = len(codes)
    cheap = (codes == 0).mean(1) if codes.shape[1] else np.full(n, 0.5)
    return Rows(
        levels=np.eye(levels, dtype=np.float32)[codes].reshape(n, -1),
        trend=np.stack([cheap, cheap], axis=1),
        numeric=np.zeros((n, 0)) if numeric is None else numeric,
        category=np.zeros((n, 0), dtype=np.int64) if category is None else category,
        groups=codes.shape[1],
        alike=1 / levels,
        believed=np.zeros((n, 0)) if believed is None else believed,
        values=() if category is None else (2,) * category.shape[1],
    )


PART = np.array([0.01, 0.02, 0.03, 0.05, 0.08, 0.13, 0.02, 0.01])


def some_plans(count, seed=0, levels=2):
    """Different plans, and a quality without noise: a part a layer and a pair of layers."""
    rng = np.random.default_rng(seed)
    codes = np.unique(rng.integers(0, levels, (4 * count, len(PART))), axis=0)
    codes = rng.permutation(codes)[:count]
    quality = 0.9 - (codes > 0) @ PART - 0.04 * codes[:, 3] * codes[:, 4]
    return codes, quality


def fitted(codes, quality, extra=None, **kind):
    noise = np.zeros(len(codes)) if extra is None else extra
    return QualityModel(rows_of(codes, **kind), quality, noise, np.random.default_rng(0))


@pytest.mark.parametrize("levels", [2, 3])
def test_the_model_goes_through_what_has_no_noise_and_learns_the_rest(levels):
    codes, quality = some_plans(90, levels=levels)
    model = fitted(codes[:60], quality[:60], levels=levels)
    mean, spread = model.predict(rows_of(codes, levels))
    assert np.abs(mean[:60] - quality[:60]).max() < 0.1 * quality.std()
    assert spread[:60].max() < 0.2 * quality.std()
    assert np.corrcoef(mean[60:], quality[60:])[0, 1] > 0.95
    surprise = np.abs(mean[60:] - quality[60:]) / np.hypot(spread[60:], model.noise_sd)
    assert np.mean(surprise < 2.5) > 0.9


def test_what_is_believed_is_no_longer_uncertain_and_changes_no_expectation():
    codes, quality = some_plans(30)
    model = fitted(codes[:12], quality[:12])
    asked, others = rows_of(codes[20:21]), rows_of(codes[21:])
    mean, spread = model.predict(asked)
    others_mean, others_spread = model.predict(others)
    model.believe(asked)
    after_mean, after_spread = model.predict(asked)
    assert after_spread[0] < 0.5 * spread[0]
    assert after_mean == pytest.approx(mean, abs=1e-4)
    assert model.predict(others)[0] == pytest.approx(others_mean, abs=1e-4)
    assert (model.predict(others)[1] <= others_spread + 1e-9).all()


def test_a_guess_counts_less_than_a_measurement():
    codes, quality = some_plans(30)
    wrong = quality.copy()
    wrong[7] += 0.1
    sure = fitted(codes, wrong)
    extra = np.zeros(30)
    extra[7] = 0.1**2
    unsure = fitted(codes, wrong, extra)
    there = rows_of(codes[7:8])
    assert unsure.predict(there)[1][0] > sure.predict(there)[1][0]
    assert abs(unsure.predict(there)[0][0] - quality[7]) < abs(
        sure.predict(there)[0][0] - quality[7]
    )


def test_predictions_do_not_depend_on_the_order_of_the_rows():
    codes, quality = some_plans(60)
    rng = np.random.default_rng(3)
    numeric, category = rng.random((60, 2)), rng.integers(0, 2, (60, 1))
    quality = quality + 0.05 * numeric[:, 0] - 0.03 * category[:, 0]
    rows, extra = rows_of(codes, 2, numeric, category), rng.random(60) * 1e-4
    order = rng.permutation(40)
    asked = rows.take(slice(40, 60))
    straight = QualityModel(rows.take(slice(0, 40)), quality[:40], extra[:40], rng)
    shuffled = QualityModel(rows.take(order), quality[order], extra[order], rng)
    for a, b in zip(straight.predict(asked), shuffled.predict(asked), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("levels", [2, 3, 4])
def test_whatever_its_scales_the_kernel_is_one(levels):
    """A matrix of covariances has no negative eigenvalue; more levels than two are no exception."""
    codes, quality = some_plans(60, levels=levels)
    model = fitted(codes, quality, levels=levels)
    relations = model._relations(model._rows, model._rows)
    scales = _Scales.start(len(PART), 0, 0)
    for index, name in enumerate(scales.names):
        for step in (-3.0, 3.0):
            kernel = model._kernel(relations, scales.moved(index, step))
            assert np.linalg.eigvalsh(kernel)[0] > -1e-6, (name, step)


@pytest.mark.timeout(60)
def test_a_space_without_a_free_plan_is_modelled_by_its_settings_alone():
    rng = np.random.default_rng(0)
    numeric, category = rng.random((40, 2)), rng.integers(0, 2, (40, 1))
    quality = 0.5 + 0.2 * np.sin(3 * numeric[:, 0]) - 0.1 * category[:, 0]
    rows = rows_of(np.zeros((40, 0), dtype=np.int64), 2, numeric, category)
    model = QualityModel(rows.take(slice(0, 30)), quality[:30], np.zeros(30), rng)
    mean, spread = model.predict(rows)
    assert np.abs(mean[:30] - quality[:30]).max() < 0.2 * quality.std()
    assert np.corrcoef(mean[30:], quality[30:])[0, 1] > 0.9
    assert (spread > 0).all()


def test_equal_qualities_and_equal_points_are_no_trouble():
    codes, _ = some_plans(10)
    model = fitted(np.concatenate([codes, codes]), np.full(20, 0.7))
    mean, spread = model.predict(rows_of(codes))
    assert mean == pytest.approx(np.full(10, 0.7), abs=1e-6)
    assert np.isfinite(spread).all()
