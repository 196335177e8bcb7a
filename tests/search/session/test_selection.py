"""Selectors in a search: what the YAML says, what is asked first, what is kept and shown."""

import io
import json
from types import SimpleNamespace

import pytest

from bitfront.cli import main
from bitfront.dashboards.search_files import PICTURES
from bitfront.search.config.errors import ConfigError
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.session.selection import (
    needed,
    selection_rows,
    settle,
    start_points,
    write_selection,
)
from bitfront.spaces.space import SelectedPlan
from bitfront.terminal.status_line import StatusLine
from bitfront.trainables.cost import cost_table, task_cost_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.selectors import select
from bitfront.verbs.plan_option import parse_plan

SELECTED = """\
name: selected
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 16}
  epochs: 3
  subset: 200
space:
  method: bnn
  bnn.scale: channel
  plan:
    selector: [mixbin-grad, random]
    budget: [90, 80]
    rule: nearest
    seeds: [0, 1]
    params: {examples: 100}
    trained_on: {epochs: 1, subset: 100}
search: {sampler: random, trials: 20}
"""
STARTED = """\
name: started
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 16}
  epochs: 1
  subset: 100
space:
  method: [bnn, bnn++]
  plan: {per: layer, levels: [F, B]}
  optimizer.lr: {float: [0.001, 0.03], log: true}
search:
  sampler: random
  trials: 12
  start_from: {selector: [first, mixbin-loss], budgets: [90, 80], rule: nearest}
"""


@pytest.fixture
def settled(make_space):
    def make(text, *assignments):
        config, space = make_space(*assignments, text=text)
        return config, space, space.settled(select, config.search.seed)

    return make


def drained(config, space, tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db", config, space, start_points(space))
    entries = []
    while (entry := ledger.ask()) is not None:
        ledger.tell(entry.id, "complete", {"val_accuracy": 0.5})
        entries.append(entry)
    return entries


def test_trials_have_the_plans_of_their_selectors_and_say_which(settled, tmp_path):
    config, space, done = settled(SELECTED)
    entries = drained(config, done, tmp_path)
    table = task_cost_table(config.task)
    (spec,) = needed(config, space)
    found = select(spec)
    assert {e.drawn["plan.selector"] for e in entries} == {"mixbin-grad", "random"}
    for entry in entries:
        if entry.drawn["plan.selector"] == "mixbin-grad":
            budget = entry.drawn["plan.budget"]
            assert entry.spec.plan == found.plan(table, budget, "nearest", "B", 0)


def test_a_selector_works_where_it_is_told_to(make_space):
    config, space = make_space(text=SELECTED)
    (spec,) = needed(config, space)
    assert spec.selector == "mixbin-grad"
    assert (spec.task.epochs, spec.task.subset) == (1, 100)
    assert spec.method_params == {"scale": "channel"}
    assert spec.params == {"examples": 100}
    config, space = make_space(text=SELECTED.replace("{epochs: 1", "{dataset: moons, epochs: 1"))
    assert needed(config, space)[0].task.dataset == "moons"
    assert config.task.dataset == "digits"


def test_a_preview_needs_no_selector_at_work(make_space, monkeypatch):
    monkeypatch.setattr(
        "bitfront.trainables.selectors.selection.select", lambda *a: pytest.fail("worked")
    )
    _, space = make_space(text=SELECTED)
    assert isinstance(space.plan, SelectedPlan)
    assert space.size() == 8
    spec = space.walk(lambda name, domain: domain.values[0])
    assert len(spec.plan) == 4


def test_a_search_begins_with_the_selectors_plans(settled, tmp_path):
    config, _, done = settled(STARTED)
    starts = list(done.start_plans)
    assert 2 <= len(starts) <= 4
    entries = drained(config, done, tmp_path)
    assert [e.spec.plan for e in entries[: len(starts)]] == starts
    assert len(entries) == 12


def test_a_plan_that_breaks_a_limit_is_not_started_from(settled, tmp_path):
    config, _, done = settled(STARTED, "limits.flops_pct=85")
    table = task_cost_table(config.task)
    within = [p for p in done.start_plans if table.totals(p)["flops_pct"] <= 85]
    entries = drained(config, done, tmp_path)
    assert len(within) < len(done.start_plans)
    assert set(within) <= {e.spec.plan for e in entries[: len(done.start_plans)]}
    assert all(e.costs["flops_pct"] <= 85 for e in entries)


def test_work_is_done_once_and_shown(make_space, tmp_path, monkeypatch):
    config, space = make_space(text=SELECTED)
    folder = SearchFolder(tmp_path / "selected")
    folder.path.mkdir()
    calls = []

    def here(function, calls_, config_, address, called):
        calls.append(len(calls_))
        called()
        return [function(*call) for call in calls_]

    told = []
    monkeypatch.setattr("bitfront.search.cluster.tuner.run_tasks", here)
    monkeypatch.setattr(
        "bitfront.search.cluster.board.Board.write", lambda self, who, text: told.append(text)
    )
    monkeypatch.setattr("bitfront.search.cluster.board.Board.read", lambda self: told[-1:])
    said, out = [], io.StringIO()
    with StatusLine(out=out) as line:
        done = settle(config, space, folder, None, said.append, line, PICTURES)
        assert "starting Ray for the selectors ..." in out.getvalue()
        assert line._text().startswith("1 selector at work, ")
        assert line._text().endswith(told[-1])
    assert settle(config, space, folder, None, said.append) == done
    assert calls == [1]
    assert "mixbin-grad: pretraining, epoch 1 of 1" in told
    assert any("scored 4 layers" in text for text in told)
    assert "mixbin-grad: trains on digits (1 epochs per network)" in said[0]
    assert "1 epochs of training" in said[1]
    made = sorted(path.suffix for path in folder.path.glob("selection-mixbin-grad-*"))
    assert made == [".csv", ".html", ".json", ".png"]


def test_the_scores_are_kept_a_row_a_layer(tmp_path, make_space):
    config, space = make_space(text=SELECTED)
    found = select(needed(config, space)[0])
    rows = selection_rows(found)
    assert [row["layer"] for row in rows] == found.layers
    assert [rows[i]["place"] for i in found.order] == [1, 2, 3, 4]
    assert all(row["flops_pct"] > 0 for row in rows)
    write_selection(found, tmp_path, PICTURES)
    (file,) = tmp_path.glob("*.csv")
    assert file.read_text().splitlines()[0] == "layer,place,score,flops_pct"
    assert len(file.read_text().splitlines()) == 5
    (page,) = tmp_path.glob("*.html")
    assert found.layers[0] in page.read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("random]", "randm]", "unknown selector 'randm', did you mean 'random'"),
        ("examples: 100", "exmples: 100", "did you mean 'examples'"),
        ("examples: 100", "examples: 2", "2 is outside 16..1000000"),
        ("epochs: 1, ", "epochs: 0, ", "should be at least 1, got 0"),
        ("trained_on: {epochs", "trained_on: {epoch", "unknown key, did you mean 'epochs'"),
        ("trained_on: {", "trained_on: {dataset: digts, ", "did you mean 'digits'"),
        ("seeds: [0, 1]", "seeds: [a]", "whole numbers"),
        ("budget: [90, 80]", "budget: [900]", "not a percentage"),
        ("trained_on: {", "trained_on: {model.depth: 7, ", "some of [4, 6] layers"),
        ("rule: nearest", "rule: neerest", "did you mean 'nearest'"),
    ],
)
def test_a_mistake_in_a_selected_plan_is_found_at_its_line(make_config, old, new, message):
    text = SELECTED.replace(old, new)
    assert text != SELECTED
    with pytest.raises(ConfigError) as caught:
        make_config(text=text)
    assert message in str(caught.value)
    assert "selected" not in str(caught.value).split(":")[0]
    assert str(caught.value).startswith("tiny.yaml:")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("per: layer", "per: block", "one letter a layer"),
        ("budgets: [90, 80]", "budgets: [0]", "not a percentage"),
        ("[first, mixbin-loss]", "firs", "did you mean 'first'"),
        ("rule: nearest", "level: W", "the levels of the plan are F, B"),
    ],
)
def test_a_mistake_in_start_from_is_found(make_config, old, new, message):
    with pytest.raises(ConfigError) as caught:
        make_config(text=STARTED.replace(old, new))
    assert message in str(caught.value)


# --- the command line -------------------------------------------------------------------------


def test_without_a_dataset_layers_are_ranked_on_digits_and_it_is_said(tmp_path, capsys):
    words = ["cost", "cresnet", "--set", "depth=8", "--set", "width=2", "--epochs", "1"]
    assert main([*words, "--home", str(tmp_path), "--plan", "mixbin-grad@40%"]) == 0
    text = capsys.readouterr().out
    assert "without --dataset, one for digits" in text
    assert "cresnet at 3x32x32, 100 classes" in text  # what is counted is what was asked for


def test_a_ranking_of_another_network_is_refused():
    table = cost_table("cresnet20", {}, (3, 32, 32), 10)
    ranked = SimpleNamespace(order=[0, 1, 2])
    with pytest.raises(UserError, match="3 layers to plan, this one 18"):
        parse_plan("mixbin-grad@40%", table, lambda name: ranked)


def test_the_cost_of_a_selected_plan(tmp_path, capsys):
    words = ["cost", "cresnet", "--set", "depth=8", "--set", "width=2", "--dataset", "digits"]
    words += ["--epochs", "1", "--home", str(tmp_path), "--plan", "mixbin-grad@40%"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "mixbin-grad: trains on digits (1 epochs per network)" in text
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["totals"]["flops_pct"] >= 40
    assert set(report["plan"]) == {"F", "B"}
    assert list((tmp_path / "selections").glob("mixbin-grad-*.json"))


def test_the_selectors_are_listed(capsys):
    assert main(["selectors", "mixbin*", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [s["name"] for s in found] == [
        "mixbin-grad",
        "mixbin-grad-paper",
        "mixbin-loss",
        "mixbin-loss-paper",
    ]
    assert found[0]["trained"]
    assert found[0]["params"]["direction"]["accepts"] == "{bin2fp, fp2bin}"
