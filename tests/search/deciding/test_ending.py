"""When a search ends before its number of trials, and how it goes on."""

import pytest

from bitfront.search.config.errors import ConfigError
from bitfront.search.config.schema import SearchSpec
from bitfront.search.deciding.ending import ENDING, SPENT, Ending, Reached, asked_in_words
from bitfront.search.deciding.outlook import Outlook
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.results import Results
from bitfront.search.session.rehearsal import counted
from bitfront.search.session.session import Session
from bitfront.trainables.errors import UserError
from bitfront.verbs.searching.extend import more_hours, more_trials


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Notes(dict):
    """What is needed of a ledger."""

    begun, outlook = 30, None
    noted, note = dict.get, dict.__setitem__


def ahead(high):
    return Outlook(30, 10, high / 2, 0.0, high)


def spec(**given):
    return SearchSpec.model_validate(given)


def test_no_trial_begins_once_the_hours_of_all_turns_are_over():
    clock, notes = Clock(), Notes()
    first = Ending(spec(hours=2), notes, clock)
    assert not first.over()
    clock.now += 3600
    assert first.seconds_left == pytest.approx(3600)
    first.keep()
    clock.now += 99999  # nobody drives it
    again = Ending(spec(hours=2), notes, clock)
    assert not again.over()
    clock.now += 3500
    assert not again.over()
    clock.now += 101
    assert again.over()
    assert notes[ENDING] == {"what": "hours", "at": 2.0, "trials": 30}
    assert Ending(spec(hours=2), notes, clock).reached == again.reached
    more = Ending(spec(hours=3), notes, clock)
    assert more.reached is None
    assert not more.over()


def test_it_ends_when_the_greatest_gain_to_expect_is_too_small():
    notes = Notes()
    ending = Ending(spec(until={"gain": 0.001}), notes)
    assert not ending.over()  # nothing is known yet
    notes.outlook = ahead(0.0011)
    assert not ending.over()
    notes.outlook = ahead(0.0009)
    assert ending.over()
    notes.outlook = ahead(0.5)
    assert ending.over()  # it stays decided
    assert Ending(spec(until={"gain": 0.0005}), notes).reached is None
    assert Ending(spec(trials=80), notes).reached is None
    assert SPENT not in notes


def test_without_hours_and_gain_nothing_is_noted():
    notes = Notes()
    notes.outlook = ahead(0.0)
    ending = Ending(spec(), notes)
    assert not ending.over()
    ending.keep()
    assert notes == {}
    assert ending.seconds_left is None


def test_a_number_of_trials_may_be_left_out():
    assert spec().budget == 50
    assert spec(hours=2).budget is None
    assert spec(until={"gain": "0.1%"}).until.gain == pytest.approx(0.001)
    both = spec(hours=2, trials=40)
    assert both.budget == 40
    assert asked_in_words(both) == "2 hours"
    assert SearchSpec.model_validate(spec(hours=2).model_dump()).budget is None


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (["search.until={gain: 0.1%}", "search.sampler=tpe"], "take hours"),
        (["search.until={gain: 3%%}"], "write 0.1% or 0.001"),
        (["search.until={gain: 10}"], "search.until.gain"),
        (["search.hours=0"], "search.hours"),
        (
            [
                "search={until: {gain: 1%}}",
                "objectives={val_accuracy: max, flops: min, bytes: min}",
            ],
            "one metric and one cost",
        ),
    ],
)
def test_an_end_that_cannot_be_told_is_an_error(make_config, settings, wanted):
    with pytest.raises(ConfigError) as error:
        make_config(*settings)
    assert wanted in str(error.value)


@pytest.fixture
def ended(make_space, tmp_path):
    """The results of a search that ended after 3 trials, its hours being over."""
    config, space = make_space("search.hours=1", "search.trials=20")
    folder = SearchFolder(tmp_path / config.name)
    folder.path.mkdir()
    folder.config_file.write_text(config.dump())
    session = Session(config, space, folder, tracker=None)
    clock = Clock()
    session.ending._clock = clock
    running = [session.ask() for _ in range(3)]
    clock.now += 3601
    assert session.ask() is None
    assert not session.complete  # what runs is finished
    for entry in running:
        session.finish(entry.id, {"epoch": 3, "val_accuracy": 0.5})
    assert session.complete
    session.close()
    return Results.of(folder)


def test_a_search_that_has_ended_is_complete_and_says_why(ended):
    assert ended.state_without_driver == "complete"
    told = ended.status_json()["ended_by"]
    assert told["what"] == "hours"
    assert told["words"] == "Over after 1 hour, with 3 trials."


def test_more_trials_lift_what_ended_it_and_more_hours_add_to_it(ended):
    search = ended.config.search.model_copy()
    assert more_trials(search, "+5", ended) == [
        "8 trials in all from now on, no longer until 1 hour"
    ]
    assert (search.trials, search.hours) == (8, None)
    search = ended.config.search.model_copy()
    assert more_hours(search, "+1.5", ended) == []
    assert (search.trials, search.hours) == (20, 2.5)
    with pytest.raises(UserError, match="has 1 already"):
        more_hours(ended.config.search, "0.5", ended)


def test_a_rehearsal_counts_trials(make_config):
    config = make_config("search={hours: 3, sampler: random}")
    assert counted(config).search.trials == 50
    assert counted(config).search.hours is None


def test_repeats_are_a_share_of_the_trials_so_far_where_their_number_is_open(make_space):
    config, space = make_space("search={hours: 3, sampler: random, confirm: 0.5}")
    ledger = Ledger("memory:", config, space)
    for _ in range(12):
        entry = ledger.ask()
        row = {"epoch": 3, "val_accuracy": 0.5}
        ledger.tell(entry.id, "complete", row, [row])
    assert 5 <= ledger.explored <= 7


@pytest.mark.parametrize("wrong", [{"what": "hours"}, {"what": "x", "at": 1, "trials": 2}, [1]])
def test_a_damaged_note_is_an_error(wrong):
    with pytest.raises(ValueError, match="its ending"):
        Reached.from_json(wrong)
