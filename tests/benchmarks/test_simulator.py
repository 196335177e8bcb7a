"""Simulated searches and the problems they are run on."""

import itertools

import numpy as np
import pytest

from bitfront.search.config.schema import EarlyStoppingSpec, SearchSpec
from bitfront.search.front import hypervolume
from testbed import truth
from testbed.problems import CHANCE, EPOCHS, OBJECTIVES, best_known, synthetic, table
from testbed.simulator import simulate

STOPPING = EarlyStoppingSpec(rungs=[0.3], least=4)


def replay(problem, workers=1, seed=0, sampler="random", stopping=None, trials=24):
    search = SearchSpec(sampler=sampler, trials=trials, seed=seed, early_stopping=stopping)
    config = problem.config.model_copy(update={"search": search})
    return simulate(config, problem.space(), problem.answer(seed), workers)


def facts(replayed):
    return [(e.spec.plan, e.state, e.values, e.history) for e in replayed.ended]


def all_plans(layers):
    return ["".join(letters) for letters in itertools.product("FB", repeat=layers)]


# Workers.


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("stopping", [None, STOPPING])
def test_the_same_seed_gives_the_same_search(workers, stopping):
    problem = synthetic(7, True, 0)
    runs = [replay(problem, workers, stopping=stopping) for _ in range(2)]
    assert facts(runs[0]) == facts(runs[1])
    assert (runs[0].time, runs[0].epochs) == (runs[1].time, runs[1].epochs)
    assert facts(runs[0]) != facts(replay(problem, workers, seed=1, stopping=stopping))


@pytest.mark.parametrize("workers", [1, 8])
def test_epochs_are_counted(workers):
    problem = synthetic(7, False, 0)
    whole = replay(problem, workers)
    assert whole.epochs[-1] == 24 * EPOCHS
    assert all(len(e.history) == EPOCHS for e in whole.ended)
    stopped = replay(problem, workers, stopping=STOPPING)
    assert stopped.epochs[-1] == sum(len(e.history) for e in stopped.ended)
    assert stopped.epochs[-1] < whole.epochs[-1]
    assert stopped.epochs == sorted(stopped.epochs)
    assert len(stopped.epochs) == len(stopped.ended) == len(stopped.ask_seconds) == 24
    if workers == 1:
        assert np.cumsum([len(e.history) for e in stopped.ended]).tolist() == stopped.epochs


def test_a_trial_sees_the_curve_the_problem_gives():
    problem = synthetic(7, False, 0)
    for entry in replay(problem).ended:
        curve = problem.observed(problem.bits(entry.spec.plan), 0)
        assert [row["val_accuracy"] for row in entry.history] == curve
        assert entry.values == [curve[-1], problem.price(entry.spec.plan)["flops"]]


def test_more_workers_take_less_time_and_are_all_used():
    problem = synthetic(7, False, 0)
    one, eight = replay(problem), replay(problem, workers=8)
    assert eight.time < one.time / 4
    assert eight.time > one.time / 16
    assert one.time == pytest.approx(one.epochs[-1], rel=0.2)
    # One worker ends its trials in the order in which they were asked for, eight do not.
    assert [e.number for e in one.ended] == list(range(24))
    assert [e.number for e in eight.ended] != list(range(24))


def test_a_search_that_has_tried_everything_ends():
    replayed = replay(synthetic(4, False, 0), workers=8, trials=30)
    assert len(replayed.ended) == 16
    assert replayed.session.complete


# Problems.


@pytest.mark.parametrize("rough", [False, True])
def test_shares_grow_to_one_and_no_further(rough):
    problem = synthetic(6, rough, 0)
    plans = [e.spec.plan for e in replay(problem, trials=40).ended]
    shares = [problem.share(plans[:n]) for n in range(len(plans) + 1)]
    assert shares[0] == 0
    assert shares == sorted(shares)
    assert shares[-1] <= 1 + 1e-6
    assert shares[-1] > shares[1]
    assert problem.share(all_plans(6)) == pytest.approx(1)


@pytest.mark.parametrize("relabel", [False, True])
def test_the_true_volume_is_that_of_all_plans(relabel):
    problem = synthetic(7, True, 3, relabel)
    points = []
    for plan in all_plans(7):
        bits = problem.bits(plan)[None]
        points.append((float(problem.accuracy(bits)[0]), problem.price(plan)["flops"]))
    expected = hypervolume(points, [CHANCE, 1.1], OBJECTIVES)
    assert problem.true_volume == pytest.approx(expected, rel=1e-6)


def test_relabelling_changes_the_letters_and_nothing_else():
    plain, other = synthetic(8, True, 1, relabel=False), synthetic(8, True, 1)
    assert 0 < other.flip.sum() < 8
    assert plain.true_volume == other.true_volume
    assert plain.price("FFFFFFFF")["flops"] == 1
    assert other.price("FFFFFFFF")["flops"] < 1
    swapped = {"F": "B", "B": "F"}
    for plan in all_plans(8)[::7]:
        letters = zip(plan, other.flip, strict=True)
        same = "".join(swapped[letter] if flip else letter for letter, flip in letters)
        assert plain.price(plan) == other.price(same)
        assert plain.observed(plain.bits(plan), 5) == other.observed(other.bits(same), 5)
    plans = [e.spec.plan for e in replay(other, sampler="free-cost", trials=2).ended]
    assert "FFFFFFFF" not in plans


def test_large_problems_are_measured_against_the_best_that_is_known():
    """Where all plans can be listed, the climb finds the true volume but for a trifle."""
    problem = synthetic(8, True, 0)
    accuracy, cost = best_known(problem)
    points = list(zip(accuracy.tolist(), cost.tolist(), strict=True))
    found = hypervolume(points, [CHANCE, 1.1], OBJECTIVES)
    assert 0.999 * problem.true_volume < found <= problem.true_volume * (1 + 1e-6)


@pytest.mark.parametrize("name", truth.names())
def test_a_truth_table_holds_every_plan(name):
    known, problem = truth.read(name), table(name)
    assert sorted(known.plans) == sorted(all_plans(problem.layers))
    assert known.accuracy.shape[:2] == (len(known.plans), len(known.seeds))
    assert ((known.accuracy >= 0) & (known.accuracy <= 1)).all()
    for i in range(0, len(known.plans), 37):
        bits = problem.bits(known.plans[i])
        assert problem.accuracy(bits[None])[0] == known.final[i]
        assert problem.observed(bits, 1) == known.accuracy[i, 1 % len(known.seeds)].tolist()
    assert problem.true_volume == pytest.approx(table(name, relabel=1).true_volume)
    replayed = replay(problem, trials=6)
    assert 0 < problem.share([e.spec.plan for e in replayed.ended]) < 1
