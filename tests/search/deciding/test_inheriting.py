"""Inheriting: who inherits from whom, which looks are trained from scratch, what counts, and what
the model makes of looks."""

import numpy as np
import pytest

from bitfront.search.config.cautions import cautions
from bitfront.search.config.errors import ConfigError
from bitfront.search.deciding.inheriting import Inheriting, distance, inheriting_report
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import LedgerReader, read_entries
from bitfront.search.results.reader import view_of
from bitfront.search.results.results import Results
from bitfront.search.session.rehearsal import rehearse
from bitfront.search.session.session import Session
from bitfront.search.tracking.runs import look_tags
from bitfront.terminal.status import decision_lines
from testbed.problems import synthetic
from testbed.simulator import simulate

EPOCHS, BIAS = 10, 0.1
INHERIT = "search.inherit={least: 3, control: 0"


def end_of(entry):
    """Dear networks are better; the rest has nothing to do with the cost."""
    return 0.5 + 0.3 * entry.costs["flops_pct"] / 100 + (int(entry.id, 16) % 97) / 970


def train(session, entry, **more):
    """A trial as a worker reports it; returns what was trained of it."""
    looks = entry.looking and not more
    epochs = entry.look.epochs if looks else EPOCHS
    end = end_of(entry) - BIAS * looks
    history = [{"epoch": i, "val_accuracy": end * i / epochs} for i in range(1, epochs + 1)]
    for row in history:
        result = {**row, "done": row is history[-1], "measured": ["epoch", "val_accuracy"]}
        result |= more if row is history[0] else {}
        assert not session.gives_up(entry.id, result)
        if row is not history[-1]:
            session.report(entry.id, result)
    session.finish(entry.id, {**result, "history": history})
    return "look" if looks else "whole"


@pytest.fixture
def open_session(make_space, tmp_path):
    """A turn at a search that inherits; the next call is the next turn at the same one."""

    def open_(more="", trials=16, *others):
        config, space = make_space(
            f"{INHERIT}{more}}}",
            "search.sampler=free-cost",
            f"search.trials={trials}",
            f"task.epochs={EPOCHS}",
            *others,
        )
        folder = SearchFolder(tmp_path)
        folder.config_file.write_text(config.dump())
        return Session(config, space, folder, tracker=None)

    return open_


def run(session, most=1000):
    """(id, what was trained) of every turn at a trial, in order, until the search is over."""
    found = []
    while len(found) < most and (entry := session.ask()) is not None:
        found.append((entry.id, train(session, entry)))
    return found


def test_a_look_is_no_point_until_it_was_trained_from_scratch(open_session, tmp_path):
    session = open_session()
    turns = run(session)
    looked = [key for key, what in turns if what == "look"]
    whole = [key for key, what in turns if what == "whole"]
    assert len(set(looked) | set(whole)) == 16
    assert looked
    assert [what for _, what in turns[:3]] == ["whole"] * 3
    resting = set(looked) - set(whole)
    assert resting
    stored = {e.id: e for e in read_entries(SearchFolder(tmp_path).ledger_url, "tiny")}
    assert {e.id for e in stored.values() if e.state == "paused"} == resting
    assert not resting & set(session.front.keys)
    for key in looked:
        look = stored[key].look
        assert (look.epochs, len(look.history)) == (2, 2)
        assert look.rests == (key in resting)
        assert stored[look.parent].state == "complete"
        assert stored[key].metrics.get("val_accuracy") in (None, end_of(stored[key]))
    for key in set(looked) & set(whole):
        assert [r["epoch"] for r in stored[key].history] == list(range(1, EPOCHS + 1))
    assert session.complete
    results = Results.of(SearchFolder(tmp_path))
    assert results.state == "complete"
    assert not resting & {e.id for e in results.front}
    told = results.status_json()["inherit"]
    assert (told["looks"], told["resting"]) == (len(looked), len(resting))
    assert told["offset"] == pytest.approx(BIAS)
    assert any("rest and do not count" in line for line in decision_lines(results))
    view = view_of(results)
    assert all(t.look for t in view.trials if t.id in resting)


def test_the_first_looks_and_those_of_the_control_share_are_trained_whatever_they_promise(
    open_session,
):
    session = open_session(trials=5)
    assert [what for _, what in run(session)] == ["whole"] * 3 + ["look", "whole"] * 2
    session.ledger.hopes = lambda: None
    rule = Inheriting(session.config, session.ledger)
    assert rule.next() is None


def test_a_look_is_trained_where_it_promises_more_per_epoch_than_another_look(open_session):
    session = open_session(trials=9)
    run(session, 9)
    assert session.ledger.count("complete") == 6
    looked = [session.ask() for _ in range(2)]
    for entry in looked:
        train(session, entry)

    class Hopes:
        new, paused = 1.0, {looked[0].id: 4.9, looked[1].id: 2.0}

    session.ledger.hopes = lambda: Hopes
    rule = session.inheriting
    assert rule.next() is None
    Hopes.paused = {looked[0].id: 5.0, looked[1].id: 5.1}
    assert rule.next() is looked[1]
    session.ledger.exhausted = True  # no further look
    Hopes.paused = {looked[0].id: 0.84, looked[1].id: 0.8}
    assert rule.next() is looked[0]


def test_a_resumed_search_looks_and_trains_as_the_undisturbed_one(open_session, tmp_path):
    expected = run(open_session(trials=10))
    assert "look" in dict(expected).values() or len(expected) > 10
    (tmp_path / "ledger.db").rename(tmp_path / "straight.db")
    found = []
    while len(found) < len(expected):
        found += run(open_session(trials=10), 4)
    assert found == expected


def test_a_driver_that_dies_while_a_look_runs_goes_on_with_the_look(open_session, tmp_path):
    session = open_session()
    run(session, 3)
    reader = LedgerReader(SearchFolder(tmp_path).ledger_url, "tiny")
    entry = session.ask()
    assert entry.looking
    given = session.trial_config(entry)
    assert reader.read()
    after = open_session()
    again = after.ask()
    assert again.id == entry.id
    assert again.look == entry.look
    assert after.trial_config(again)["look"] == given["look"]
    assert given["look"]["folder"] != given["folder"]
    train(after, again)
    assert reader.read()
    assert {e.id: e.state for e in reader.entries}[entry.id] == "paused"
    assert after.ask().id == entry.id  # one of the first
    assert "look" not in after.trial_config(after.ledger.entries[entry.id])


def test_a_trial_that_finds_no_weights_is_trained_from_scratch_and_says_so(open_session, tmp_path):
    session = open_session()
    run(session, 3)
    entry = session.ask()
    assert entry.looking
    assert train(session, entry, not_inherited="no weights of trial x: it began anew") == "whole"
    stored = {e.id: e for e in read_entries(SearchFolder(tmp_path).ledger_url, "tiny")}[entry.id]
    assert stored.state == "complete"
    assert stored.message == stored.look.void == "no weights of trial x: it began anew"
    assert session.ask().looking  # the next one is a look again
    assert inheriting_report(session.config, session.ledger.entries.values()).void == 1


def test_weights_come_from_the_nearest_finished_trial_and_of_equals_from_the_best(open_session):
    session = open_session()
    run(session, 3)
    entry = session.ask()
    domains = session.ledger._in_memory(entry.id).distributions
    near = {
        e.id: (distance(entry, e, domains), -e.metrics["val_accuracy"])
        for e in session.ledger.entries.values()
        if e.state == "complete"
    }
    assert entry.look.parent == min(near, key=near.get)
    assert entry.look.distance == pytest.approx(near[entry.look.parent][0], abs=1e-6)
    assert distance(entry, entry, domains) == 0


def test_weights_are_kept_of_the_latest_trials_alone(open_session):
    session = open_session(", weights: 3")

    def keep(entry):
        place = session.folder.path / "weights" / entry.id / "state.pt"
        assert session.trial_config(entry)["bequest"] == str(place)
        place.parent.mkdir(parents=True)
        place.write_bytes(b"x")

    done = []
    while len(done) < 6 and (entry := session.ask()) is not None:
        if not entry.looking:
            keep(entry)
            done.append(entry.id)
        train(session, entry)
    kept = {e.id for e in session.inheriting.bequeathing()}
    assert len(kept) == 3
    assert {f.name for f in (session.folder.path / "weights").iterdir()} == kept


def test_methods_with_a_state_of_their_own_train_from_scratch(make_space):
    methods = "space.method=[bnn, bnn++, bayesbinn]"
    config, space = make_space("search.inherit=true", methods, "search.sampler=free-cost")
    told = [text for text in cautions(config, space) if "search.inherit" in text]
    assert told == [
        "search.inherit: trials of bayesbinn are trained from scratch, since its latents have an "
        "optimizer of their own"
    ]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("search.pause=true", "take one of them"),
        ("search.early_stopping=true", "take one of them"),
        ("search.sampler=tpe", "tpe cannot say what looks promise"),
        ("task.pretrain=2", "from task.pretrain or from each other"),
        ("task.epochs=1", "a look is shorter than a trial"),
    ],
)
def test_what_cannot_inherit_is_said_in_a_line(make_config, more, why):
    with pytest.raises(ConfigError) as error:
        make_config("search.inherit=true", "search.sampler=free-cost", more)
    assert why in str(error.value)


def test_the_model_takes_the_bias_of_looks_off(tmp_path):
    """Looks are 10 points below the end. The model expects the end of them."""
    problem = synthetic(8, False, 0)
    settings = {"trials": 40, "inherit": {"control": 0}, "sampler": "free-cost"}
    search = problem.config.search.model_validate(settings)
    config = problem.config.model_copy(update={"search": search})

    def answer(entry):
        curve = problem.observed(problem.bits(entry.spec.plan), 0)
        return [curve[-1] - BIAS] * entry.look.epochs if entry.looking else curve

    session = simulate(config, problem.space(), answer, workers=1).session
    past = session.ledger.proposals.problem.memory["past"]
    quality, noise = past.qualities(np.ones(1))
    looked = past.looked
    assert looked.sum() > 3
    ends = {e.number: problem.bits(e.spec.plan) for e in session.ledger.entries.values()}
    true = problem.accuracy(np.stack([ends[int(n)] for n in past.numbers]))
    assert np.abs(quality[looked] - true[looked]).max() < BIAS / 3
    assert (noise[looked] > 0).all()
    assert not noise[past.finished].any()


def test_mlflow_shows_a_look_as_tags_and_not_as_metrics(open_session):
    session = open_session()
    run(session, 3)
    entry = session.ask()
    assert look_tags(entry) == {"inherits_from": entry.look.parent, "look_epochs": "2"}
    train(session, entry)
    assert float(look_tags(entry)["look_val_accuracy"]) == pytest.approx(end_of(entry) - BIAS)
    assert look_tags(next(iter(session.ledger.entries.values()))) == {}


def test_a_rehearsal_plays_looks(make_space):
    config, space = make_space("search.inherit=true", "search.sampler=free-cost")
    found = rehearse(config, space)
    assert found.trials == 6
    assert found.complete + found.paused == 6
