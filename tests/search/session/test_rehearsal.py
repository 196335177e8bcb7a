"""Rehearsals: whole searches with made-up accuracies, and every ready-made one among them."""

import json
import subprocess
import sys

import pytest

from bitfront.cli import main
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.results import Results
from bitfront.search.session.rehearsal import Curves, rehearse
from bitfront.search.session.session import Session
from bitfront.search.session.simulation import play
from bitfront.terminal.summary import exhausted_text

STOPPING = "search.early_stopping={rungs: [0.5], least: 4, control: 0}"
PAPER = """\
paper:
  title: A paper, 2023
  table: Table 3
  dataset: cifar100
  model: cresnet20
  rows:
    - {label: front, value: 0.5, where: {plan.selector: front, plan.budget: 30}}
    - {label: full precision, flops_pct: 100, value: 0.65, where: {plan: F}}
    - {label: another method, value: 0.5, reason: not here}
    - {label: rear, value: 0.5, where: {plan.budget: 60, plan.selector: rear}}
"""
SELECTED = "space={method: bnn, plan: {selector: [front, rear], budget: [100, 60, 30]}}"


def test_a_rehearsal_stops_confirms_fails_and_starts_as_a_search_does(make_space):
    config, space = make_space(
        "search={sampler: random, trials: 40, confirm: 0.3, start_from: {selector: mixbin-grad}}",
        STOPPING,
        "limits.flops_pct=80",
    )
    told = rehearse(config, space, failures=0.2)
    assert told.trials == told.asked == 40
    assert told.repeats == 12
    assert min(told.complete, told.stopped, told.failed, told.refused_by_limits) > 0
    assert told.made_up_selectors == ["mixbin-grad"]
    assert told == rehearse(config, space, failures=0.2)
    other = config.model_copy(update={"search": config.search.model_copy(update={"seed": 1})})
    assert told != rehearse(other, space, failures=0.2)


@pytest.mark.parametrize("metric", ["val_loss: min", "val_robust_pgd10: max"])
def test_made_up_metrics_are_those_the_search_measures(make_space, metric):
    attack = "task.attack={eps: 8/255}"
    told = rehearse(*make_space(attack, f"objectives={{{metric}, flops: min}}"))
    assert (told.complete, told.failed) == (6, 0)


def test_unanswered_rows_say_why(make_space, tiny_yaml):
    changes = (SELECTED, "limits.flops_pct=80", "search.trials=5")
    told = rehearse(*make_space(*changes, text=tiny_yaml + PAPER))
    why = {row.label: row.why for row in told.unanswered}
    assert why == {
        "full precision": "the limits forbid it: flops_pct",
        "another method": "not here",
        "rear": "seed 2 missing",
    }
    assert [row.label for row in told.unanswered if row.stated] == ["another method"]
    assert (told.rows, told.row_trials, told.row_epochs) == (4, 5, 15)


def test_a_printed_metric_that_is_not_measured_is_unanswered(make_space, tiny_yaml):
    config, space = make_space(SELECTED, "search.trials=9", text=tiny_yaml + PAPER)
    config.paper.rows[0].values["val_robust_pgd10"] = 0.3
    told = rehearse(config, space)
    assert {row.label: row.why for row in told.unanswered}["front"].startswith("val_robust_pgd10")


def test_a_rehearsal_leaves_home_and_storage_alone(make_space, tmp_path, monkeypatch, capsys):
    place = tmp_path / "storage"
    monkeypatch.setenv("BITFRONT_STORAGE", str(place))
    home = tmp_path / "home"
    words = ("--home", str(home), "--json", "--trials", "8", "--name", "mine")
    assert main(["preview", "bayesbinn-moons", "--rehearse", *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["search"] == "mine"
    rehearsal = told["rehearsal"]
    assert (rehearsal["trials"], rehearsal["asked"], rehearsal["exhausted"]) == (7, 8, True)
    assert (told["rows"], told["row_trials"]) == (2, 6)
    assert rehearsal["unanswered"] == []
    assert not home.exists()
    assert not place.exists()


@pytest.mark.parametrize(("listed", "said"), [(2000, "All 3 different trials"), (2, "No other")])
def test_a_search_that_ends_early_says_what_it_knows_of_the_rest(
    make_space, tmp_path, monkeypatch, listed, said
):
    monkeypatch.setattr("bitfront.search.ledger.proposals.LISTED_POINTS", listed)
    config, space = make_space("space={method: bnn, plan: B, batch_size: [8, 16, 32]}")
    folder = SearchFolder(tmp_path / "tiny")
    folder.path.mkdir()
    folder.config_file.write_text(config.dump())
    session = Session(config, space, folder, tracker=None)
    play(session, Curves(config, space).rows, workers=2)
    session.close()
    results = Results.of(folder)
    assert results.state == "complete"
    assert exhausted_text(results).startswith(said)


def test_a_preview_tells_the_rehearsal_in_words(capsys):
    assert main(["preview", "mixbin-digits", "--rehearse"]) == 0
    text = capsys.readouterr().out
    assert "trials run, then nothing new is left" in text
    words = " ".join(text.split())
    assert "rows of the paper: 22, which take " in words
    assert "rows of the paper that are answered: 22 of 22" in words
    assert "mixbin-grad, mixbin-grad-paper, mixbin-loss" in words
    assert "one trial:" not in text  # nothing was timed
    assert "nothing was started" in text
    assert max(map(len, text.partition("rehearsal")[2].splitlines())) <= 80


def test_a_rehearsal_takes_neither_ray_nor_mlflow():
    code = (
        "import sys; from bitfront.cli import main; code = main(sys.argv[1:]); "
        "assert not {'ray', 'mlflow'} & set(sys.modules); sys.exit(code)"
    )
    words = ["preview", "bayesbinn-moons", "--rehearse"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_a_preview_counts_is_what_the_ledger_finds(make_space):
    config, space = make_space(SELECTED, "search.trials=20")
    ledger = Ledger("memory:", config, space)
    assert rehearse(config, space).distinct == len(ledger.proposals.listed)


@pytest.mark.parametrize(
    ("space", "distinct"),
    [
        ("{method: fp, plan: {per: layer}, batch_size: [16, 32, 64]}", 3),
        ("{method: fp, plan: {selector: [hawq, front], budget: [50, 20]}, batch_size: [8, 9]}", 2),
        ("{method: bnn, plan: {per: layer, levels: [B]}, batch_size: [16, 32, 64]}", 3),
        ("{method: [bnn, fp], plan: {only: layer}}", 5),
        ("{method: bnn, plan: B}", 1),
        ("{method: bnn, plan: W, model.depth: {int: [2, 9], step: 3}}", 3),
        ("{method: bnn, plan: {selector: [front, hawq], budget: {float: [1, 100]}}}", None),
    ],
)
@pytest.mark.parametrize("sampler", ["free-cost", "tpe", "random"])
def test_odd_spaces_are_played_to_their_end_too(make_space, space, distinct, sampler):
    """Without a method that plans, of one level, of one point, of steps that do not end at high."""
    told = rehearse(*make_space(f"space={space}", f"search.sampler={sampler}", "search.trials=40"))
    assert told.exhausted
    assert told.trials == told.complete == told.distinct == (distinct or told.distinct)
