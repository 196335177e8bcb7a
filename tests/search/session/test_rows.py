"""Rows of a paper are run first, with their seeds, nothing twice, and alone where wanted."""

import pytest

from bitfront.cli import main
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.session.preview import preview_search
from bitfront.search.session.rehearsal import Curves, made_up_selection, rehearse
from bitfront.search.session.rows import (
    chosen_rows,
    notes_from_json,
    selectors_of_rows,
    settle_rows,
)
from bitfront.search.session.selection import settle
from bitfront.search.session.session import Session
from bitfront.search.session.simulation import play
from bitfront.trainables.errors import UserError

PAPER = """\
paper:
  title: A paper, 2023
  table: Table 3
  dataset: digits
  model: mlp
  seeds: 2
  where: {optimizer.lr: 0.01, bnn++.mu_end: 30}
  rows:
    - {label: full precision, value: 0.9, where: {method: bnn, plan: F}}
    - {label: BNN 40 %, value: 0.8, where: {method: bnn, plan: B}}
    - {label: BNN++ 40 %, value: 0.7, where: {method: bnn++, plan: B}}
    - {label: XNOR, value: 0.6, reason: its scales are not here}
"""


@pytest.fixture
def paper(make_space, tiny_yaml):
    return lambda *changes: make_space(*changes, text=tiny_yaml + PAPER)


def told(ledger):
    return [(e.spec.method, e.spec.plan, e.spec.seed) for e in ledger.entries.values()]


ROWS = [
    ("fp", "FFFF", 0),
    ("bnn", "BBBB", 0),
    ("bnn++", "BBBB", 0),
    ("fp", "FFFF", 1),
    ("bnn", "BBBB", 1),
    ("bnn++", "BBBB", 1),
]


def asked(ledger, most=100):
    """Ask and end trials until there are none, or so many."""
    while len(ledger.entries) < most and (entry := ledger.ask()) is not None:
        ledger.tell(entry.id, "complete", {"val_accuracy": 0.5})
    return told(ledger)


def test_rows_run_first_with_their_seeds_and_then_the_search_goes_on(paper):
    config, space = paper("search.trials=9")
    ledger = Ledger("memory:", config, space, rows=settle_rows(config, space))
    found = asked(ledger)
    assert found[:6] == ROWS
    assert len(found) == 9
    assert {seed for _, _, seed in found[6:]} == {0}


def test_the_budget_of_trials_holds_for_rows_too(paper):
    config, space = paper("search.trials=4")
    assert asked(Ledger("memory:", config, space, rows=settle_rows(config, space))) == ROWS[:4]


@pytest.mark.parametrize("ended", range(7))
def test_a_search_that_was_killed_runs_the_missing_rows_and_none_twice(paper, tmp_path, ended):
    config, space = paper("search.trials=8")
    url = f"sqlite:///{tmp_path}/ledger.db"
    rows = settle_rows(config, space)
    whole = asked(Ledger("memory:", config, space, rows=rows))
    first = Ledger(url, config, space, rows=rows)
    asked(first, ended)
    first.ask()  # runs when the driver is killed
    again = Ledger(url, config, space, rows=rows)
    assert len(again.interrupted()) == 1
    assert asked(again) == whole


def test_rows_that_are_chosen_run_alone_whatever_the_budget(paper):
    config, space = paper("search.trials=1")
    ledger = Ledger("memory:", config, space, rows=settle_rows(config, space, ["BNN 40 %"]))
    assert asked(ledger) == [ROWS[1], ROWS[4]]


def test_rows_without_seeds_are_not_run_unless_chosen(paper):
    config, space = paper("paper.seeds=0")
    assert settle_rows(config, space).trainings == []
    assert len(settle_rows(config, space, ["BNN 40 %"]).trainings) == 1


def test_points_to_start_from_follow_the_rows(paper):
    config, space = paper("search.trials=8")
    first = [{**settle_rows(config, space).settled[1].drawn[0], "optimizer.lr": 0.002}]
    ledger = Ledger("memory:", config, space, first, rows=settle_rows(config, space))
    asked(ledger)
    assert [e.spec.task.optimizer.lr for e in ledger.entries.values()][6] == 0.002


def test_two_rows_of_one_network_share_their_trials(make_space, tiny_yaml):
    """Both selectors make all layers binary for the least budget."""
    space = "space={method: bnn, plan: {selector: [first, last], budget: [1, 60]}}"
    rows = "paper.rows=[{label: a, where: {plan.selector: first, plan.budget: 1}}, "
    rows += "{label: b, where: {plan.selector: last, plan.budget: 1}}]"
    config, space = make_space(space, rows, "paper.where={}", text=tiny_yaml + PAPER)
    told = rehearse(config, space)
    assert (told.row_trials, told.unanswered) == (2, [])


def test_early_stopping_spares_rows(paper, tmp_path):
    stopping = "search.early_stopping={rungs: [0.5], least: 2, keep: 0.1, control: 0}"
    config, space = paper("search.trials=20", "paper.seeds=1", stopping)
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    rows = settle_rows(config, space)
    session = Session(config, space, folder, None, rows=rows)
    play(session, Curves(config, space).rows, workers=1)
    states = [e.state for e in session.ledger.entries.values()]
    assert set(states[:3]) == {"complete"}
    assert "stopped" in states[3:]


def test_the_ledger_notes_the_points_of_rows(paper):
    config, space = paper()
    rows = settle_rows(config, space)
    ledger = Ledger("memory:", config, space, rows=rows)
    notes = notes_from_json(ledger.noted("rows"))
    assert notes == {row.note.key: row.note for row in rows.settled}
    assert ledger.ask().point in rows.settled[0].note.points
    assert rows.settled[3].note.problem == "its scales are not here"


def test_a_row_beyond_the_limits_is_not_run_and_says_so(paper):
    config, space = paper("limits.flops_pct=60")
    told = {row.label: row for row in rehearse(config, space).unanswered}
    assert told["full precision"].why == "the limits forbid it: flops_pct"
    assert told["XNOR"].stated
    assert set(told) == {"full precision", "XNOR"}


def test_rows_are_chosen_by_label_or_pattern_whatever_case_and_spaces(paper):
    config, _ = paper()
    assert chosen_rows(config, ["bnn++ 40%"]) == ["BNN++ 40 %"]
    assert chosen_rows(config, ["BNN*", "bnn 40 %"]) == ["BNN 40 %", "BNN++ 40 %"]
    with pytest.raises(UserError, match="no row 'BNM 40', did you mean 'BNN 40 %'"):
        chosen_rows(config, ["BNM 40"])
    with pytest.raises(UserError, match="'XNOR' cannot be run here: its scales are not here"):
        chosen_rows(config, ["XNOR"])


def test_a_search_without_rows_has_none_to_choose(make_space):
    with pytest.raises(UserError, match="carries no rows"):
        chosen_rows(make_space()[0], ["*"])


SELECTED = [
    "space.plan={selector: [mixbin-grad, first], budget: [100, 60, 1], rule: nearest}",
    "paper.where={method: bnn, optimizer.lr: 0.01}",
    "paper.rows=[{label: full precision, where: {plan: F}}, "
    "{label: first 60 %, where: {plan.selector: first, plan.budget: 60}}, "
    "{label: Grad 60 %, where: {plan.selector: mixbin-grad, plan.budget: 60}}]",
]


def test_rows_that_run_alone_wait_for_their_own_selectors_only(paper, tmp_path):
    config, space = paper(*SELECTED)
    assert selectors_of_rows(config, space, ["full precision", "first 60 %"]) == {"first"}
    assert selectors_of_rows(config, space, ["Grad 60 %"]) == {"mixbin-grad"}
    assert selectors_of_rows(config, space, None) is None
    # Nothing is trained: the folder is only where results of selectors would be.
    folder = SearchFolder(tmp_path / "selected")
    folder.path.mkdir()
    here = settle(config, space, folder, None, pytest.fail, wanted={"first"})
    rows = settle_rows(config, here, ["first 60 %"])
    assert [row.label for row in rows.settled] == ["full precision", "first 60 %"]
    assert len(rows.trainings) == 2  # seeds
    told = preview_search(config, space, timed=False, chosen=["Grad 60 %"])
    assert (told.rows, told.row_trials, told.rows_alone) == (1, 2, True)
    played = rehearse(config, space, rows=["Grad 60 %"])
    assert (played.rows, played.row_trials, played.trials, played.asked) == (1, 2, 2, 2)
    assert played.unanswered == []


def test_what_rows_take_is_known_before_there_are_data(tiny_yaml, tmp_path, capsys):
    """Who thinks of getting ImageNet wants to know what a row of it takes."""
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_yaml + PAPER)
    data = ["--set", "task.dataset=cifar10", "--data-dir", str(tmp_path / "no data")]
    assert main(["preview", str(file), "--rows", "BNN 40 %", *data]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "times are not known: dataset 'cifar10' not found: looked for " in told
    assert "; get it with: python -c " in told
    assert "rows of the paper: 1, which take 2 trials, 6 epochs; they run alone" in told


def test_rows_that_run_alone_leave_what_the_ledger_knows_of_others(paper):
    config, space = paper(*SELECTED)
    whole = space.settled(made_up_selection, 0)
    before = settle_rows(config, whole).notes([])
    alone = settle_rows(config, space, ["first 60 %"]).notes(before)
    assert sorted(map(str, alone)) == sorted(map(str, before))
    assert settle_rows(config, whole).notes(alone) == before
