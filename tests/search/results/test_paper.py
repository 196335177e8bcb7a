"""The rows of a paper beside a search: which trial answers a row, and what is said about both."""

import json

import pytest

from bitfront.cli import main
from bitfront.search.config.errors import ConfigError
from bitfront.search.ledger.entry import entry_of
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.paper import PaperComparison, trial_value
from bitfront.search.results.results import Results
from bitfront.spaces.space import middle, recorded
from bitfront.trainables.errors import UserError

PAPER = """\
paper:
  title: A paper, 2023
  table: Table 3
  dataset: cifar100
  model: cresnet20
  epochs: 160
  rows:
    - {label: full precision, flops_pct: 100, value: 0.65}
    - {label: a method that is dominated, value: 0.5, where: {method: bnn++}}
    - {label: nothing like it, value: 0.5, where: {optimizer.lr: 0.5}}
    - {label: far away, flops_pct: 70, value: 0.6}
"""


@pytest.fixture
def make_results(make_space, tiny_yaml, tmp_path):
    """Eight trials whose accuracy falls with the share of binary layers, bnn++ worst of all; the
    first is in full precision."""

    def make(paper=PAPER):
        config, space = make_space("search.trials=8", text=tiny_yaml + paper)
        folder = SearchFolder(tmp_path / "tiny")
        folder.path.mkdir(parents=True)
        folder.config_file.write_text(config.dump())
        full = recorded(space, lambda name, d: "F" if name.startswith("plan.") else middle(d))
        ledger = Ledger(folder.ledger_url, config, space, [full])
        while (entry := ledger.ask()) is not None:
            accuracy = 0.9 - 0.1 * entry.spec.plan.count("B") / len(entry.spec.plan)
            accuracy -= 0.2 * (entry.spec.method == "bnn++")
            ledger.tell(entry.id, "complete", {"val_accuracy": accuracy})
        return Results.of(folder)

    return make


def test_a_row_is_answered_by_the_front_point_nearest_in_cost(make_results):
    results = make_results()
    comparison = PaperComparison(results)
    full = comparison.rows()[0]
    assert full["ours"]["plan"] == "FFFF"
    assert full["difference"] == pytest.approx(0.25)
    far = comparison.rows()[3]
    costs = [e.costs["flops_pct"] for e in results.front]
    nearest = min(costs, key=lambda c: abs(c - 70))
    assert far["ours"]["flops_pct"] == nearest
    assert (far["difference"] is None) == (abs(nearest - 70) > 5)


def test_a_condition_looks_at_all_complete_trials_and_takes_the_best(make_results):
    results = make_results()
    told = PaperComparison(results).rows()[1]
    trials = [e for e in results.entries if e.spec.method == "bnn++"]
    assert trials
    assert told["ours"]["value"] == max(e.metrics["val_accuracy"] for e in trials)
    assert told["ours"]["trial"] not in {e.id for e in results.front}


def test_a_row_nothing_answers_says_so(make_results):
    told = PaperComparison(make_results()).rows()[2]
    assert told["ours"] is None
    assert told["difference"] is None


def test_both_sides_state_their_data_and_epochs(make_results, tmp_path, capsys):
    make_results()
    assert main(["compare", "tiny", "--paper", "--home", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "A paper, 2023, Table 3: cifar100, cresnet20, 160 epochs, test set" in text
    assert "digits, 160 training examples, mlp, 3 epochs, val_accuracy" in text
    assert "+25.00" in text
    assert main(["compare", "tiny", "--paper", "--json", "--home", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["paper"]["epochs"] == 160
    assert report["ours"]["epochs"] == 3
    assert report["rows"][0]["paper"]["label"] == "full precision"


def test_a_search_without_rows_and_a_comparison_with_nothing_are_errors(
    make_results, tmp_path, capsys
):
    results = make_results(paper="")
    with pytest.raises(UserError, match="carries no rows"):
        PaperComparison(results)
    assert main(["compare", "tiny", "--home", str(tmp_path)]) == 2
    assert main(["compare", "tiny", "tiny", "--paper", "--home", str(tmp_path)]) == 2
    assert "compare with what?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value: 0.65", "value: 65", "val_accuracy is a fraction, got 65"),
        ("method: bnn++", "methd: bnn++", "did you mean 'method'"),
        ("label: far", "lable: far", "unknown key, did you mean 'label'"),
        ("epochs: 160", "metric: acc", "'acc' is no metric"),
        ("table: Table 3", "tabel: Table 3", "did you mean 'table'"),
    ],
)
def test_a_mistake_in_a_row_is_found_at_its_line(make_config, tiny_yaml, old, new, message):
    with pytest.raises(ConfigError) as caught:
        make_config(text=tiny_yaml + PAPER.replace(old, new))
    assert message in str(caught.value)
    line = next(
        i
        for i, text in enumerate((tiny_yaml + PAPER.replace(old, new)).splitlines(), 1)
        if new in text
    )
    assert f"tiny.yaml:{line} paper." in str(caught.value)


def test_a_trial_knows_its_value_at_every_kind_of_key(make_space, tiny_yaml, tmp_path):
    config, space = make_space("task.model.width=16")
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db", config, space)
    ledger.ask()
    entry = entry_of(ledger.study.get_trials()[0])
    entry.stored = entry.spec.model_copy(update={"method": "bnn++", "params": {"mu_end": 30.0}})
    entry.drawn = {}
    assert trial_value(entry, "method") == "bnn++"
    assert trial_value(entry, "bnn++.mu_end") == 30.0
    assert trial_value(entry, "bnn.scale") is None
    assert trial_value(entry, "model.activation") == "binrelu"
    assert trial_value(entry, "optimizer.lr") == entry.spec.task.optimizer.lr
    assert trial_value(entry, "batch_size") == 32
