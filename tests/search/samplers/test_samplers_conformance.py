"""Whole searches with every sampler, on simulated workers: budget, limits, states, resuming."""

import math

import pytest

from bitfront.search.config.bounds import violations
from bitfront.search.config.schema import EarlyStoppingSpec, SearchSpec
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.samplers.registry import SAMPLERS
from bitfront.search.session.session import Session
from testbed.problems import synthetic
from testbed.simulator import simulate

EPOCHS = 9
STOPPING = EarlyStoppingSpec(rungs=[0.3], least=4)
# Optuna's Gaussian process takes half a second an ask once it is at work.
TRIALS = dict.fromkeys(SAMPLERS.names(), 15) | {"gp": 12}
SIX_LAYERS = ["task.model={name: mlp, depth: 7, width: 8}", f"task.epochs={EPOCHS}"]


def end_of(entry):
    """Later layers matter more; the learning rate matters to some."""
    lost = sum(0.02 * (i + 1) * (letter == "B") for i, letter in enumerate(entry.spec.plan))
    return 0.9 - lost - 2 * abs(entry.spec.task.optimizer.lr - 0.01)


def curve_of(entry):
    """Every seventh trial ends in nan, every fifth has one on the way, at a rung."""
    end = end_of(entry)
    curve = [end * math.sqrt(epoch / EPOCHS) for epoch in range(1, EPOCHS + 1)]
    if entry.number % 7 == 3:
        curve[-1] = math.nan
    if entry.number % 5 == 4:
        curve[2] = math.nan
    return curve


def check_points(config, space, ledger):
    """What holds for every search: as many different points as asked for, each within the limits
    and with the parameters that apply to it, no more and no less."""
    entries = list(ledger.entries.values())
    assert len(entries) == config.search.trials
    assert len({e.id for e in entries}) == len(entries)
    assert not any(violations(config, e.costs) for e in entries)
    for trial, entry in zip(ledger.study.trials, entries, strict=True):
        asked = {}

        def draw(name, domain, given=trial.params, asked=asked):
            assert domain.contains(given[name])
            asked[name] = given[name]
            return given[name]

        spec = space.walk(draw, config.search.seed)
        assert asked == trial.params
        assert spec.canonical() == entry.spec


def check_states(config, session):
    """Every trial has ended, in a way that its record bears out."""
    ledger = session.ledger
    assert session.running == 0
    assert session.complete
    assert ledger.count("complete", "stopped", "failed") == session.ended == session.budget
    for entry in ledger.entries.values():
        epochs = [r["epoch"] for r in entry.history]
        match entry.state:
            case "complete":
                assert all(map(math.isfinite, entry.values))
                assert epochs == list(range(1, EPOCHS + 1))
            case "stopped":
                assert entry.values is None
                assert epochs == [1, 2, 3]
                assert entry.metrics["stopped_at"] == 0.3
            case "failed":
                assert entry.values is None
                assert entry.failure in ("nan", "oom")
        assert entry.state == "complete" or entry.id not in session.front
    if config.search.early_stopping is None:
        assert ledger.count("stopped") == 0
    else:
        assert ledger.count("stopped") > 0


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("stopping", [None, STOPPING], ids=["to the end", "early stopping"])
@pytest.mark.parametrize("sampler", SAMPLERS.names())
def test_a_search_keeps_its_promises(make_space, sampler, stopping, workers):
    """Methods with parameters of their own, a limit, and answers that are no numbers."""
    config, space = make_space("limits.flops_pct=90", *SIX_LAYERS)
    search = SearchSpec(sampler=sampler, trials=TRIALS[sampler], early_stopping=stopping)
    config = config.model_copy(update={"search": search})
    replayed = simulate(config, space, curve_of, workers)
    session = replayed.session
    check_points(config, space, session.ledger)
    check_states(config, session)
    assert {e.id for e in replayed.ended} == set(session.ledger.entries)
    assert session.failed == sum(
        e.number % 7 == 3 and e.state != "stopped" for e in session.ledger.entries.values()
    )


@pytest.mark.parametrize("sampler", SAMPLERS.names())
def test_a_search_over_plans_alone_keeps_its_promises(sampler):
    """Nothing conditional, so that every model is at work; eight workers and early stopping."""
    problem = synthetic(6, True, 0)
    search = SearchSpec(sampler=sampler, trials=TRIALS[sampler], early_stopping=STOPPING)
    config = problem.config.model_copy(update={"search": search})
    space = problem.space()
    session = simulate(config, space, problem.answer(0), workers=8).session
    check_points(config, space, session.ledger)
    check_states(config, session)


@pytest.mark.parametrize("sampler", SAMPLERS.names())
def test_a_search_survives_failures_and_a_driver_that_died(make_space, tmp_path, sampler):
    config, space = make_space("limits.flops_pct=90", *SIX_LAYERS)
    # A sampler that gets better all the time gives little to stop: only the best goes on.
    stopping = STOPPING.model_copy(update={"keep": 0.2})
    search = SearchSpec(sampler=sampler, trials=14, early_stopping=stopping)
    config = config.model_copy(update={"search": search})
    folder = SearchFolder(tmp_path)

    def turn():
        return Session(config, space, folder, tracker=None)

    first = turn()
    for _ in range(7):
        train(first, first.ask())
    left_open = [first.ask() for _ in range(2)]
    assert not first.complete
    second = turn()
    assert second.front.items == first.front.items
    assert second.best == first.best
    taken_up = [second.ask() for _ in range(2)]
    assert [e.id for e in taken_up] == [e.id for e in left_open]
    for entry in taken_up:
        train(second, entry)
    while (entry := second.ask()) is not None:
        train(second, entry)
    check_points(config, space, second.ledger)
    check_states(config, second)
    assert {e.failure for e in second.ledger.entries.values()} == {None, "nan", "oom"}


def train(session, entry):
    """A trial as a worker reports it: a row an epoch, the whole curve with the last."""
    rows = [{"epoch": i + 1, "val_accuracy": a} for i, a in enumerate(curve_of(entry))]
    if entry.number % 6 == 2:
        session.report(entry.id, rows[0])
        session.fail(entry.id, "oom", "no room")
        return
    for row in rows[:-1]:
        if session.gives_up(entry.id, row):
            session.finish(entry.id, row)
            return
        session.report(entry.id, row)
    session.finish(entry.id, {**rows[-1], "history": rows, "done": True})
