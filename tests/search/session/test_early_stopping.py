"""Early stopping: who is compared with whom, who is given up, and what it is thought to cost."""

import math
import random

import pytest

from bitfront.search.config.schema import EarlyStoppingSpec
from bitfront.search.front import Objective, layers, non_dominated
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import read_entries
from bitfront.search.session.early_stopping import EarlyStopping, ranking, report
from bitfront.search.session.session import Session
from bitfront.search.session.simulation import MemoryFolder
from bitfront.trainables.task import Task, TrialSpec

OBJECTIVES = [Objective("val_accuracy", True), Objective("flops", False)]


def entry_of(number, flops, epochs=10, method="bnn", **known):
    """A trial at a cost. Ids of small numbers are those of no control trials."""
    task = Task(dataset="digits", model={"name": "mlp", "depth": 5, "width": 4}, epochs=epochs)
    return Entry(
        id=f"{number + 500:08x}",
        number=number,
        state=known.pop("state", "running"),
        stored=TrialSpec(task=task, method=method, plan="FBFB" if method != "fp" else "FFFF"),
        costs={"flops": flops},
        **known,
    )


def row(epoch, accuracy):
    return {"epoch": epoch, "val_accuracy": accuracy}


def rule_with(*points, objectives=OBJECTIVES, epoch=1, **spec):
    """A rule that has seen trials with these (accuracy, flops) at its first rung."""
    rule = EarlyStopping(EarlyStoppingSpec(**spec), objectives)
    for i, (accuracy, flops) in enumerate(points):
        rule.remember(entry_of(100 + i, flops, history=[row(epoch, accuracy)]))
    return rule


# The order.


def test_layers_come_before_room():
    # Two layers: (0.9, 5), (0.5, 1) and behind them (0.8, 6), (0.4, 2).
    values = [(0.4, 2), (0.9, 5), (0.8, 6), (0.5, 1)]
    assert ranking(values, OBJECTIVES) == [1, 3, 0, 2]


def test_within_a_layer_the_loneliest_comes_first():
    values = [(0.1, 1), (0.2, 2), (0.3, 3), (0.4, 7), (0.5, 9), (0.6, 10)]
    # The ends, then by how far apart the neighbours are on the cost axis: 6, 5, 3, 2.
    assert ranking(values, OBJECTIVES) == [0, 5, 3, 2, 4, 1]


def test_equal_points_are_ranked_apart_and_none_is_lost():
    values = [(0.5, 1), (0.5, 1), (0.5, 1), (0.9, 2)]
    assert ranking(values, OBJECTIVES) == [0, 3, 1, 2]


def test_one_objective_and_three_are_ranked_too():
    assert ranking([(0.3,), (0.9,), (0.5,)], OBJECTIVES[:1]) == [1, 2, 0]
    three = [*OBJECTIVES, Objective("bytes", False)]
    assert ranking([(0.5, 5, 5), (0.6, 4, 4), (0.1, 9, 1)], three) == [1, 2, 0]


def test_layers_are_what_is_left_after_the_fronts_before():
    """Also with many equal values, which are in layers after one another."""
    draws = random.Random(0)
    values = [(draws.randint(0, 6) / 6, draws.randint(0, 6)) for _ in range(120)]
    left = list(range(120))
    for layer in layers(values, OBJECTIVES):
        front = non_dominated([values[i] for i in left], OBJECTIVES)
        assert {values[i] for i in layer} == {values[left[k]] for k in front}
        assert len({values[i] for i in layer}) == len(layer)
        left = [i for i in left if i not in layer]
    assert not left


# The rule.


FIVE = [(0.5, 1), (0.6, 2), (0.7, 3), (0.8, 4), (0.9, 5)]


def test_the_lowest_are_given_up_and_the_others_go_on():
    assert rule_with(*FIVE).gives_up(entry_of(0, 4.5), row(1, 0.1)) == 0.1
    assert rule_with(*FIVE).gives_up(entry_of(0, 3.5), row(1, 0.95)) is None


@pytest.mark.parametrize(("keep", "stops"), [(0.5, True), (0.8, True), (0.9, False), (1, False)])
def test_the_share_that_goes_on_is_kept(keep, stops):
    """The last of six: five of them are kept at 0.8, all from 0.9 on."""
    found = rule_with(*FIVE, keep=keep).gives_up(entry_of(0, 4.5), row(1, 0.1))
    assert (found is not None) == stops


def test_the_ends_of_the_cost_axis_are_never_given_up():
    for flops in (0.5, 6):
        assert rule_with(*FIVE).gives_up(entry_of(0, flops), row(1, 0.01)) is None
    # As cheap or as dear as another is no end.
    assert rule_with(*FIVE).gives_up(entry_of(0, 5), row(1, 0.01)) == 0.1
    assert rule_with(*FIVE).gives_up(entry_of(0, 1), row(1, 0.01)) == 0.1


def test_quality_has_no_end_to_protect():
    rule = rule_with(*FIVE, objectives=OBJECTIVES[:1])
    assert rule.gives_up(entry_of(0, 0.5), row(1, 0.01)) == 0.1


def test_nobody_is_given_up_before_there_are_enough():
    for known in range(6):
        rule = rule_with(*FIVE[:known], least=5)
        found = rule.gives_up(entry_of(0, 1.5), row(1, 0.01))
        assert (found is not None) == (known >= 4), known


def test_families_are_not_compared():
    """Full-precision training is a family of its own, however bad it looks."""
    fp = entry_of(0, 4.5, method="fp")
    assert rule_with(*FIVE).gives_up(fp, row(1, 0.1)) is None
    assert rule_with(*FIVE).gives_up(entry_of(0, 4.5, method="bnn++"), row(1, 0.1)) == 0.1


def test_rungs_are_fractions_of_a_trials_own_epochs():
    rule = rule_with(*FIVE)  # at epoch 1 of 10
    rule.spec.rungs = [0.1, 0.3]
    long = entry_of(0, 4.5, epochs=40)
    assert rule.gives_up(long, row(1, 0.1)) is None
    assert rule.gives_up(long, row(3, 0.1)) is None
    assert rule.gives_up(long, row(4, 0.1)) == 0.1
    # Nobody else has come to the next rung, which is at its epoch 12.
    assert rule.gives_up(long, row(12, 0.1)) is None
    for i in range(5):
        rule.remember(entry_of(20 + i, i, history=[row(3, 0.5 + 0.1 * i)]))
    assert rule.gives_up(entry_of(1, 3.5, epochs=39), row(12, 0.1)) == 0.3


def test_the_last_epoch_is_no_rung():
    rule = EarlyStopping(EarlyStoppingSpec(least=2), OBJECTIVES)
    for i in range(4):
        trial = entry_of(i, i, epochs=1)
        assert rule.gives_up(trial, row(1, 1 - 0.1 * i)) is None


def test_two_rungs_in_one_epoch_are_one():
    """Three epochs: a tenth and three tenths of them are both the first."""
    rule = EarlyStopping(EarlyStoppingSpec(least=2, keep=0.5), OBJECTIVES)
    found = [
        rule.gives_up(entry_of(i, flops, epochs=3), row(1, accuracy))
        for i, (accuracy, flops) in enumerate([*FIVE, (0.1, 4.5)])
    ]
    assert found[-1] == 0.1
    assert set(found) == {None, 0.1}


@pytest.mark.parametrize("missing", [{}, {"val_accuracy": math.nan}])
def test_a_trial_without_a_number_at_a_rung_is_neither_given_up_nor_counted(missing):
    rule = rule_with(*FIVE[:4], least=5)
    assert rule.gives_up(entry_of(0, 4.5), {"epoch": 1, **missing}) is None
    # With it there would be six, enough to give up this one; without it there are five.
    rule.spec.least = 6
    assert rule.gives_up(entry_of(1, 2.5), row(1, 0.1)) is None


def test_a_trial_counts_once_at_a_rung():
    """A trial that is trained again after a crash comes by twice."""
    rule = rule_with(*FIVE[:3], least=5)
    again = entry_of(0, 2.5)
    for _ in range(5):
        assert rule.gives_up(again, row(1, 0.1)) is None


def test_what_is_remembered_decides_as_if_it_had_been_seen():
    points = [(0.5 + 0.37 * i % 0.4, (7 * i) % 11) for i in range(20)]
    entries = [entry_of(i, flops) for i, (_, flops) in enumerate(points)]
    seen, resumed = (EarlyStopping(EarlyStoppingSpec(), OBJECTIVES) for _ in range(2))
    for trial, (accuracy, _) in zip(entries[:12], points, strict=False):
        trial.history = [row(1, accuracy)]
        if seen.gives_up(trial, trial.history[0]) is None:
            trial.history.append(row(3, accuracy + 0.05))
            seen.gives_up(trial, trial.history[1])
        resumed.remember(trial)
    decisions = []
    for trial, (accuracy, _) in zip(entries[12:], points[12:], strict=True):
        for epoch in (1, 2, 3):
            found = seen.gives_up(trial, row(epoch, accuracy))
            assert resumed.gives_up(trial, row(epoch, accuracy)) == found
            decisions.append(found)
    assert {0.1, None} <= set(decisions)


def test_control_trials_are_a_fixed_share_by_their_ids():
    rule = EarlyStopping(EarlyStoppingSpec(control=0.1), OBJECTIVES)
    trials = [entry_of(i * 7919, 1) for i in range(2000)]
    share = sum(map(rule.is_control, trials)) / len(trials)
    assert share == pytest.approx(0.1, abs=0.02)
    for control, expected in ((0, 0), (1, 2000)):
        rule.spec.control = control
        assert sum(map(rule.is_control, trials)) == expected


def test_control_trials_are_chosen_among_ids_of_any_form():
    rule = EarlyStopping(EarlyStoppingSpec(control=0.1), OBJECTIVES)
    trials = [entry_of(0, 1) for _ in range(2000)]
    for i, trial in enumerate(trials):
        trial.id = f"trial-{i}"
    chosen = [rule.is_control(trial) for trial in trials]
    assert sum(chosen) / len(chosen) == pytest.approx(0.1, abs=0.03)
    assert chosen == [rule.is_control(trial) for trial in trials]


# The session.


@pytest.fixture
def open_session(make_space, tmp_path):
    """A turn at a search with early stopping; the next call is the next turn at the same one."""

    def open_(**stopping):
        stopping = {"rungs": [0.3], "least": 4, "control": 0, **stopping}
        config, space = make_space("search.trials=40", "task.epochs=10")
        search = config.search.model_copy(update={"early_stopping": EarlyStoppingSpec(**stopping)})
        config = config.model_copy(update={"search": search})
        return Session(config, space, SearchFolder(tmp_path), tracker=None)

    return open_


def train(session, entry, end, fails_at=None):
    """A trial as a worker reports it, a row an epoch; returns the epochs it took."""
    history = []
    for epoch in range(1, 11):
        result = {**row(epoch, end * epoch / 10), "done": epoch == 10, "trial_id": "x"}
        if epoch == fails_at:
            result |= {"failure": "nan", "message": "loss is nan", "done": True}
        history.append(row(epoch, end * epoch / 10))
        if session.gives_up(entry.id, result) or result["done"]:
            extra = {"history": history} if epoch == 10 else {}
            session.finish(entry.id, {**result, **extra})
            return epoch
        session.report(entry.id, result)
    raise AssertionError("a trial without an end")


def quality_of(entry):
    """Nothing to do with the cost, so that about half of all trials rank low."""
    return 0.3 + (int(entry.id, 16) % 97) / 160


def run(session, count):
    """So many trials one after another: {id: epochs}."""
    found = {}
    for _ in range(count):
        entry = session.ask()
        found[entry.id] = train(session, entry, quality_of(entry))
    return found


def test_a_stopped_trial_is_recorded_as_stopped_with_its_curve_and_is_on_no_front(
    open_session, tmp_path
):
    session = open_session()
    epochs = run(session, 20)
    stopped = {i for i, n in epochs.items() if n == 3}
    assert 4 <= len(stopped) <= 14
    assert set(epochs.values()) == {3, 10}
    stored = {e.id: e for e in read_entries(SearchFolder(tmp_path).ledger_url, "tiny")}
    for trial_id, entry in stored.items():
        end = quality_of(entry)
        assert entry.state == ("stopped" if trial_id in stopped else "complete")
        assert [r["epoch"] for r in entry.history] == list(range(1, epochs[trial_id] + 1))
        assert entry.history[-1]["val_accuracy"] == pytest.approx(end * epochs[trial_id] / 10)
        assert entry.metrics.get("stopped_at") == (0.3 if trial_id in stopped else None)
    assert not stopped & set(session.front.keys)
    assert all(stored[i].values is None for i in stopped)
    # Stopped when at its best of all so far, a trial is still not the best.
    finished = [quality_of(e) for i, e in stored.items() if i not in stopped]
    assert session.best == pytest.approx(max(finished))


def test_control_trials_run_to_the_end_and_say_what_would_have_been(open_session):
    session = open_session(control=1)
    epochs = run(session, 20)
    assert set(epochs.values()) == {10}
    entries = session.ledger.entries.values()
    assert {e.state for e in entries} == {"complete"}
    spared = [e for e in entries if "would_stop_at" in e.metrics]
    assert 4 <= len(spared) <= 14
    assert {e.metrics["would_stop_at"] for e in spared} == {0.3}
    search = session.config.search
    found = report(
        search.early_stopping, session.config.front_objectives, entries, set(session.front.keys)
    )
    assert (found.stopped, found.control, found.spared) == (0, 20, len(spared))
    assert found.saved == 0
    assert found.tau[0.3] == pytest.approx(1)


def test_without_early_stopping_nothing_is_given_up(make_space, tmp_path):
    config, space = make_space("search.trials=12", "task.epochs=10")
    session = Session(config, space, MemoryFolder(tmp_path), tracker=None)
    assert set(run(session, 12).values()) == {10}


def test_a_resumed_search_gives_up_what_the_undisturbed_one_would_have(open_session, tmp_path):
    expected = run(open_session(), 12)
    assert 3 in expected.values()
    (tmp_path / "ledger.db").rename(tmp_path / "straight.db")
    found = {}
    for _ in range(3):
        found |= run(open_session(), 4)
    assert found == expected


def test_a_failed_trial_counts_after_a_resume_as_it_did_before(open_session, tmp_path):
    """It had come to the rung, and others were compared with it."""
    decisions = []
    for resumes in (False, True):
        session = open_session()
        for _ in range(3):
            entry = session.ask()
            train(session, entry, quality_of(entry), fails_at=5)
        assert session.failed == 3
        if resumes:
            session = open_session()
        decisions.append(run(session, 10))
        (tmp_path / "ledger.db").rename(tmp_path / f"{resumes}.db")
    assert decisions[0] == decisions[1]


def test_a_trial_that_fails_at_a_rung_is_a_failure(open_session):
    session = open_session()
    run(session, 8)
    entry = session.ask()
    assert train(session, entry, 0.01, fails_at=3) == 3
    ended = session.ledger.entries[entry.id]
    assert (ended.state, ended.failure, ended.message) == ("failed", "nan", "loss is nan")
    assert "stopped_at" not in ended.metrics
    assert session.running == 0
    assert session.ended == 9


# The report.


def finished(number, early, end, epochs=10, **metrics):
    """A trial that ran to its end, with an accuracy at 1 and 3 epochs of 10 and at the end."""
    curve = [row(i + 1, early) for i in range(epochs - 1)] + [row(epochs, end)]
    known = {"val_accuracy": end, **metrics}
    return entry_of(number, 1, epochs, state="complete", history=curve, metrics=known)


def test_the_report_counts_by_hand():
    # Ids are 500 + number: those from 1000 on are control trials at a share of a tenth.
    control = [
        finished(500, 0.1, 0.5),
        finished(501, 0.2, 0.6),
        finished(502, 0.3, 0.8, would_stop_at=0.3),
        finished(503, 0.4, 0.7, would_stop_at=0.1),
    ]
    others = [finished(1, 0.2, 0.9), finished(2, 0.3, 0.9, epochs=20)]
    stopped = [
        entry_of(3 + i, 1, state="stopped", history=[row(e + 1, 0.1) for e in range(epochs)])
        for i, epochs in enumerate((1, 3, 3))
    ]
    rest = [entry_of(7, 1, state="failed", history=[row(1, 0.1)] * 5), entry_of(8, 1)]
    spec = EarlyStoppingSpec(rungs=[0.1, 0.3], control=0.1)
    found = report(spec, OBJECTIVES, control + others + stopped + rest, {control[3].id, "else"})
    assert (found.stopped, found.control) == (3, 4)
    assert (found.spared, found.spared_on_front) == (2, 1)
    assert (found.epochs_trained, found.epochs_in_full) == (40 + 30 + 7, 40 + 30 + 30)
    assert found.saved == pytest.approx(0.23)
    # Of six pairs one is the wrong way round: 5 - 1 of 6.
    assert found.tau == {0.1: pytest.approx(4 / 6), 0.3: pytest.approx(4 / 6)}
    assert found.front_points_lost == pytest.approx(1.5)
    assert found.sentence() == (
        "3 trials stopped early, 23 % of the epochs saved; rank correlation with the end 0.67 at "
        "10 %, 0.67 at 30 % of training (4 control trials, 2 of them would have been stopped, "
        "1 of these ended on the front)"
    )


def test_a_report_of_nothing_promises_nothing():
    spec = EarlyStoppingSpec()
    found = report(spec, OBJECTIVES, [], set())
    assert (found.stopped, found.saved, found.tau, found.front_points_lost) == (0, 0, {}, None)
    equal = [finished(500 + i, 0.5, 0.5) for i in range(4)]
    assert report(spec, OBJECTIVES, equal, set()).tau == {}
