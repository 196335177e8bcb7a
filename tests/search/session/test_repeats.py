"""Repeat seeds, the means and probabilities they give, and fronts carried to another search."""

import itertools

import pytest

from bitfront.search.front import Objective
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.results import Results
from bitfront.search.samplers.surrogate.ask import FreeCostSampler
from bitfront.search.session.repeats import MOST_SEEDS, cautious, merged, next_repeat, probabilities
from bitfront.search.session.session import Session
from bitfront.search.session.warm_start import carried_points, carried_trials, nearest_level
from bitfront.spaces.space import middle, recorded
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.tasks import kind_of

OBJECTIVES = [Objective("val_accuracy", True), Objective("flops", False)]


def entry(number, accuracy, cost, point=None, seed=0):
    spec = TrialSpec(task={"dataset": "digits", "model": "mlp"}, plan="F", seed=seed)
    return Entry(
        id=f"{number:08x}",
        number=number,
        state="complete",
        stored=spec,
        costs={"flops": cost},
        point=point or f"p{number}",
        values=[accuracy, cost],
        metrics={"val_accuracy": accuracy},
    )


def test_seeds_of_a_point_are_one_entry_with_their_mean():
    merged_entries = merged(
        [entry(0, 0.90, 1.0, "a"), entry(1, 0.94, 1.0, "a"), entry(2, 0.5, 0.1, "b")], OBJECTIVES
    )
    first, second = merged_entries
    assert (first.id, first.seeds, second.seeds) == ("00000000", 2, 1)
    assert first.values == pytest.approx([0.92, 1.0])
    assert first.metrics["val_accuracy"] == pytest.approx(0.92)
    # One pair, variance 0.0008, with a prior of three measurements at 0.005.
    assert first.spread == pytest.approx(((3 * 0.005**2 + 0.0008) / 4) ** 0.5)
    assert cautious(first, kind_of("digits").quality) < 0.92


def test_the_probability_of_a_point_follows_how_close_its_rival_is():
    def chance(gap):
        points = merged([entry(0, 0.9, 1.0), entry(1, 0.9 - gap, 2.0)], OBJECTIVES)
        return probabilities(points, OBJECTIVES)

    sure, beaten = chance(0.1)
    assert (sure, beaten) == (1.0, 0.0)  # a dearer point that is far worse
    _, equal = chance(0.0)
    assert equal == pytest.approx(0.5, abs=0.08)
    _, better = chance(-0.1)
    assert better == 1.0


def test_more_seeds_make_a_point_surer():
    few = merged([entry(0, 0.900, 1.0), entry(1, 0.903, 2.0)], OBJECTIVES)
    many = merged(
        [entry(i, a, c, p) for i, (a, c, p) in enumerate([(0.9, 1.0, "a"), (0.903, 2.0, "b")] * 5)],
        OBJECTIVES,
    )
    assert probabilities(many, OBJECTIVES)[1] > probabilities(few, OBJECTIVES)[1] + 0.1


def test_a_repeat_goes_where_the_front_is_in_doubt():
    entries = [entry(0, 0.5, 1.0), entry(1, 0.9, 2.0), entry(2, 0.901, 3.0), entry(3, 0.3, 4.0)]
    chosen = next_repeat(entries, OBJECTIVES, {})
    assert chosen.id in ("00000001", "00000002")
    other = next_repeat(entries, OBJECTIVES, {chosen.point: 3})
    assert other.id != chosen.id
    full = {e.point: MOST_SEEDS for e in entries}
    assert next_repeat(entries, OBJECTIVES, full) is None


@pytest.mark.parametrize("resumed", [False, True])
def test_the_last_share_of_a_search_repeats_points_with_new_seeds(make_space, tmp_path, resumed):
    words = ["search.trials=20", "search.confirm=0.3", "search.sampler=free-cost"]
    config, space = make_space(*words)
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = Ledger(url, config, space)
    asked = 0
    while (e := ledger.ask()) is not None:
        accuracy = 0.5 + 0.05 * e.spec.plan.count("F") + 0.002 * e.spec.seed
        row = {"epoch": 3, "val_accuracy": accuracy, "val_loss": 1.0}
        ledger.tell(e.id, "complete", row, [row])
        asked += 1
        if resumed and asked == 16:
            ledger = Ledger(url, config, space)
    entries = list(ledger.entries.values())
    repeats = [e for e in entries if e.spec.seed != config.search.seed]
    assert (len(entries), len(repeats)) == (20, 6)
    assert [e.number for e in repeats] == list(range(14, 20))
    assert {e.point for e in repeats} <= {e.point for e in entries[:14]}
    assert len({(e.point, e.spec.seed) for e in entries}) == 20
    folder = SearchFolder(tmp_path)
    results = Results.from_entries(folder, config, entries, ledger.reference)
    assert max(e.seeds for e in results.front) > 1
    assert all(0 <= e.confidence <= 1 and e.spread > 0 for e in results.front)


def test_the_running_front_is_that_of_the_means(make_space, tmp_path):
    config, space = make_space("search.trials=10", "search.confirm=0.5", "search.sampler=free-cost")
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    session = Session(config, space, folder, None)
    while (e := session.ask()) is not None:
        accuracy = 0.5 + 0.05 * e.spec.plan.count("F") - 0.2 * (e.spec.seed > 0)
        session.finish(e.id, {"epoch": 3, "val_accuracy": accuracy, "val_loss": 1.0})
    entries = list(session.ledger.entries.values())
    read = Results.from_entries(folder, config, entries, session.ledger.reference)
    assert session.front.keys == [e.id for e in read.front]
    assert session.complete


def test_a_front_is_carried_by_the_position_of_layers(make_space, tmp_path):
    config, _ = make_space()
    results = Results.from_entries(SearchFolder(tmp_path), config, [], [0.1, 1.0])
    old = entry(0, 0.9, 1.0)
    old.stored = old.spec.model_copy(update={"plan": "FBBF", "method": "bnn++"})
    old.drawn = {"optimizer.lr": 0.002, "bnn++.mu_end": 20.0, "elsewhere": 3}
    results.front = [old]
    other_config, other = make_space("task.model={name: mlp, depth: 9, width: 8}")
    (point,) = carried_points(results, other)
    plan = [v for k, v in point.items() if k.startswith("plan.")]
    assert plan == list("FFBBBBFF")
    assert point["optimizer.lr"] == 0.002
    assert (point["method"], point["bnn++.mu_end"]) == ("bnn++", 20.0)
    ledger = Ledger("memory:", other_config, other, [point])
    assert ledger.ask().spec.plan == "FFBBBBFF"


def point_with(space, plan):
    letters = iter(plan)
    return recorded(
        space, lambda name, domain: next(letters) if name.startswith("plan.") else middle(domain)
    )


def test_carried_points_are_remembered_by_the_ledger(make_space, tmp_path):
    config, space = make_space()
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    plans = [point_with(space, plan) for plan in ("FBBF", "BFFB")]
    first = Ledger(url, config, space, plans)
    assert first.ask().spec.plan == "FBBF"
    again = Ledger(url, config, space)
    assert again.ask().spec.plan == "FBBF"  # interrupted, taken up again
    assert again.ask().spec.plan == "BFFB"


def test_a_level_this_space_lacks_becomes_the_nearest():
    assert nearest_level("W", ("F", "B")) == "F"
    assert nearest_level("B", ("F", "W")) == "W"
    assert nearest_level("S", ("F", "W")) == "F"


def test_repeats_are_never_stopped_early(make_space, tmp_path):
    config, space = make_space(
        "search.trials=30", "search.confirm=0.5", "search.early_stopping={keep: 0.1, control: 0}"
    )
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    session = Session(config, space, folder, None)
    stopped = []
    while (e := session.ask()) is not None:
        accuracy = 0.5 + 0.01 * (e.number % 7)
        first = {"epoch": 1, "val_accuracy": accuracy, "val_loss": 1.0, "done": False}
        if session.gives_up(e.id, first):
            stopped.append(e)
            session.finish(e.id, first)
        else:
            session.finish(e.id, {"epoch": 3, "val_accuracy": accuracy, "val_loss": 1.0})
    assert stopped
    assert {e.spec.seed for e in stopped} == {config.search.seed}
    repeats = [e for e in session.ledger.entries.values() if e.spec.seed != config.search.seed]
    assert {e.state for e in repeats} == {"complete"}


def test_the_best_of_what_costs_no_more_is_found_with_one_cost_and_with_several():
    import numpy as np

    from bitfront.search.session.repeats import _best_covering

    rng = np.random.default_rng(0)
    costs, values = rng.integers(0, 5, (40, 1)).astype(float), rng.normal(size=(3, 40))
    covers = costs[:, 0][None, :] <= costs[:, 0][:, None]
    expected = [[row[covers[i]].min() for i in range(40)] for row in values]
    np.testing.assert_array_equal(_best_covering(values, costs), expected)
    twice = np.concatenate([costs, costs], axis=1)
    np.testing.assert_array_equal(_best_covering(values, twice), expected)


def test_a_search_begun_from_another_knows_its_trials(make_space, tmp_path):
    """They are kept in the ledger, and where both searches are of one task, the model ranks plans
    before it has trials of its own that could."""
    words = ["space={method: bnn, plan: {per: layer}}", "search.sampler=free-cost"]
    config, space = make_space(*words)
    others = []
    for number, letters in enumerate(itertools.product("FB", repeat=4)):
        old = entry(number, 0.9 - 0.2 * (letters[1] == "B") - 0.01 * letters.count("B"), 1.0)
        old.stored = old.spec.model_copy(update={"plan": "".join(letters)})
        old.drawn = {}
        others.append(old)
    results = Results.from_entries(SearchFolder(tmp_path), config, others, [0.1, 1.0])
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    Ledger(url, config, space).learn_from(carried_trials(results, space))
    problem = Ledger(url, config, space).proposals.problem
    assert len(problem.elsewhere) == 16
    sampler = FreeCostSampler(problem, 0)
    points = [point_with(space, plan) for plan in ("FBFF", "BFBB")]
    known = [sampler._atlas.at(point) for point in points]
    sampler._encode(known)
    one, other = sampler._rows(known).believed[:, 0]
    assert other > one + 1
