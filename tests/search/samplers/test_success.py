"""What the sampler learns from trials that failed."""

import numpy as np
import pytest

from bitfront.search.samplers.surrogate.atlas import likeness
from bitfront.search.samplers.surrogate.failures import SuccessModel
from bitfront.search.samplers.surrogate.model import Rows
from bitfront.search.samplers.surrogate.past import blames_point
from testbed.mixed import failing
from testbed.simulator import simulate


def rows_of(codes, numeric=None):
    """Plans of two levels, and settings, as the model sees them."""
    n, groups = codes.shape
    dear = 1 - codes.sum(1) / max(1, groups)
    return Rows(
        levels=likeness("FB")[codes].reshape(n, -1),
        trend=np.stack([dear, dear], axis=1),
        numeric=np.zeros((n, 0)) if numeric is None else numeric,
        category=np.zeros((n, 0), np.int64),
        groups=groups,
        alike=0.5,
        believed=np.zeros((n, 0)),
    )


def plans(count, seed):
    rng = np.random.default_rng(seed)
    return (rng.random((count, 16)) < rng.random((count, 1))).astype(int)


@pytest.mark.parametrize("seed", range(3))
def test_two_of_sixteen_layers_are_found_to_blame(seed):
    codes, asked = plans(40, seed), plans(400, seed + 100)
    succeeded = 1.0 - codes[:, [3, 9]].any(1)
    chance = SuccessModel(rows_of(codes), succeeded).chance(rows_of(asked))
    fails = asked[:, [3, 9]].any(1)
    assert ((chance > 0) & (chance < 1)).all()
    assert np.median(chance[~fails]) > 3 * np.median(chance[fails])


def test_a_cliff_is_found_where_it_is():
    rng = np.random.default_rng(0)
    numeric = rng.random((30, 3))
    codes = np.zeros((30, 0), np.int64)
    model = SuccessModel(rows_of(codes, numeric), (numeric[:, 1] < 0.6).astype(float))
    asked = np.full((2, 3), 0.5)
    asked[:, 1] = 0.4, 0.8
    below, above = model.chance(rows_of(np.zeros((2, 0), np.int64), asked))
    assert below > 0.75
    assert above < 0.25


def test_without_a_success_hope_is_farthest_from_the_failures():
    codes = np.array([[1] * 8, [1] * 7 + [0], [1] * 6 + [0] * 2])
    asked = np.array([[1] * 7 + [0], [0] * 8])
    near, far = SuccessModel(rows_of(codes), np.zeros(3)).chance(rows_of(asked))
    assert far > near


def test_machines_are_not_the_fault_of_a_point():
    assert [r for r in ("nan", "oom", "error", "lost worker", "hung", None) if blames_point(r)] == [
        "nan",
        "oom",
        "error",
    ]


def test_a_search_leaves_a_region_that_fails():
    """Two of 20 layers must not be binary: without learning from it, 45 of the first 50 fail."""
    problem = failing(0)
    search = problem.config.search.model_copy(update={"sampler": "free-cost", "trials": 30})
    config = problem.config.model_copy(update={"search": search})
    ended = simulate(config, problem.space(), problem.answer(0), workers=1).ended
    failed = [entry.state == "failed" for entry in ended]
    assert sum(failed[:15]) > sum(failed[15:])
    assert sum(failed) < 20
