"""The rows of a paper beside a search: which trials answer a row, and what is said about both."""

import json
import statistics

import pytest

from bitfront.cli import main
from bitfront.search.config.cautions import cautions
from bitfront.search.config.errors import ConfigError
from bitfront.search.config.load import load
from bitfront.search.config.sections.paper import PaperSpec
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import NO_ROWS, Ledger
from bitfront.search.recipes.finals import FinalTraining, note_finals
from bitfront.search.results.paper import PaperComparison
from bitfront.search.results.results import Results
from bitfront.search.session.rows import settle_rows
from bitfront.spaces.ready_made import search_file
from bitfront.terminal.papers import paper_text, row_command
from bitfront.trainables.errors import UserError

PAPER = """\
paper:
  title: A paper, 2023
  table: Table 3
  dataset: digits
  model: mlp
  runs: 5
  where: {optimizer.lr: 0.01, bnn++.mu_end: 30}
  rows:
    - {label: full precision, value: 0.9, spread: 0.1, where: {method: bnn, plan: F}}
    - {label: BNN, value: 0.6, values: {val_loss: 1.5}, where: {method: bnn, plan: B}}
    - {label: BNN++, value: 0.5, where: {method: bnn++, plan: B}}
    - {label: XNOR, value: 0.5, reason: its scales are not here}
"""


@pytest.fixture
def make_results(make_space, tiny_yaml, tmp_path):
    """A search with rows; the accuracy is 0.9, less 0.2 for binary layers, 0.2 for bnn++ and 0.01
    for each seed. `fails` says which trials fail, `left` which a driver that goes leaves behind."""

    def make(
        *changes, paper=PAPER, noted=True, fails=lambda _entry: False, left=lambda _entry: False
    ):
        config, space = make_space("search.trials=14", *changes, text=tiny_yaml + paper)
        folder = SearchFolder(tmp_path / config.name)
        folder.path.mkdir(parents=True)
        folder.config_file.write_text(config.dump())
        rows = settle_rows(config, space) if noted else NO_ROWS
        ledger = Ledger(folder.ledger_url, config, space, rows=rows)
        while (entry := ledger.ask()) is not None:
            accuracy = 0.9 - 0.2 * ("B" in entry.spec.plan) - 0.01 * entry.spec.seed
            accuracy -= 0.2 * (entry.spec.method == "bnn++")
            if left(entry):
                continue
            if fails(entry):
                ledger.tell(entry.id, "failed", failure="nan", message="the loss is nan")
            else:
                ledger.tell(entry.id, "complete", {"val_accuracy": accuracy, "val_loss": 1.0})
        return Results.of(folder)

    return make


def rows_of(results):
    return {row["paper"]["label"]: row for row in PaperComparison(results).rows()}


def test_a_row_is_the_mean_over_the_seeds_of_its_own_setting(make_results):
    results = make_results()
    row = rows_of(results)["BNN++"]
    assert row["ours"]["seeds"] == [0, 1, 2]
    assert row["ours"]["value"] == pytest.approx(statistics.fmean([0.5, 0.49, 0.48]))
    assert row["ours"]["spread"] == pytest.approx(0.01)
    assert row["difference"] == pytest.approx(-0.01)
    assert row["missing"] == ""
    others = [e for e in results.entries if e.spec.method == "bnn++" and e.spec.plan != "BBBB"]
    assert others
    assert not {e.id for e in others} & set(row["ours"]["trials"])


def test_a_row_with_a_reason_says_it_and_nothing_else(make_results):
    row = rows_of(make_results())["XNOR"]
    assert (row["ours"], row["missing"]) == (None, "")
    assert row["reason"] == "its scales are not here"


def test_what_is_missing_is_said(make_results):
    rows = rows_of(make_results("search.trials=4", "name=few"))
    assert rows["full precision"]["missing"] == "seed 2 missing"
    assert rows["BNN"]["missing"] == "seeds 1, 2 missing"
    none = rows_of(make_results("search.trials=1", "name=one"))
    assert none["BNN"]["missing"] == "0 of 3 seeds"
    assert none["BNN"]["ours"] is None


def test_a_trial_that_its_driver_left_behind_has_not_run(make_results):
    rows = rows_of(make_results(left=lambda e: e.spec.method == "bnn++"))
    assert rows["BNN++"]["missing"] == "0 of 3 seeds"


def test_a_failed_row_says_why(make_results):
    rows = rows_of(make_results(fails=lambda e: e.spec.method == "bnn++"))
    assert "seed 0 failed: nan: the loss is nan" in rows["BNN++"]["missing"]
    assert rows["BNN++"]["ours"] is None
    assert rows["BNN"]["missing"] == ""


def test_data_and_epochs_that_differ_are_not_comparable_but_have_an_order(make_results):
    rows = rows_of(make_results("paper.epochs=160", "paper.dataset=mnist"))
    row = rows["BNN"]
    told = ["digits, not mnist", "200 examples of 1,438", "3 of 160 epochs"]
    assert row["not_comparable"] == told
    assert (row["numbers"][0]["mark"], row["numbers"][0]["order"]) == ("not comparable", "same")
    few = rows_of(make_results("paper.epochs=160", "search.trials=1", "name=few"))
    assert few["BNN"]["ours"] is None
    assert few["BNN"]["not_comparable"] == told[1:]  # who picks the row knows before it is run
    assert few["XNOR"]["not_comparable"] == []


def test_the_same_data_and_epochs_are_marked_by_standard_errors(make_results):
    rows = rows_of(make_results("task.subset=null", "name=whole"))
    assert rows["full precision"]["not_comparable"] == []
    # 0.89 +- 0.01 of 3 seeds beside 0.9 +- 0.1 of 5 runs.
    assert rows["full precision"]["numbers"][0]["mark"] == "agrees"
    assert rows["full precision"]["numbers"][0]["standard_error"] == pytest.approx(0.0451, abs=1e-4)
    # 0.69 beside 0.6, between the rows it is printed between.
    assert rows["BNN"]["numbers"][0]["mark"] == "same order"
    told = rows_of(make_results("task.subset=null", "paper.differs=another network"))
    assert told["BNN"]["numbers"][0]["mark"] == "not comparable"
    told = rows_of(make_results("task.subset=null", "paper.differs=", "name=same"))
    assert told["BNN"]["numbers"][0]["mark"] == "same order"


def test_further_numbers_of_a_row_are_compared_too(make_results):
    numbers = rows_of(make_results("task.subset=null"))["BNN"]["numbers"]
    assert [n["metric"] for n in numbers] == ["val_accuracy", "val_loss"]
    assert (numbers[1]["paper"], numbers[1]["value"]) == (1.5, 1.0)
    assert numbers[1]["order"] is None


def test_numbers_on_the_test_set_are_of_final_trainings_of_the_row(make_results, tmp_path):
    results = make_results("task.subset=null", "task.keep=best")
    row = rows_of(results)["BNN"]
    assert [n["metric"] for n in row["numbers"]] == ["val_accuracy", "val_loss"]
    trial = row["ours"]["trials"][1]
    other = rows_of(results)["BNN++"]["ours"]["trials"][0]

    def final(seed, accuracy, trial=trial, epochs=3, keep="best", rest="float32"):
        metrics = {"test_accuracy": accuracy, "test_loss": 1.0}
        what = ("r", trial, "bnn", "BBBB", seed, epochs, "c", 1.0, 2.0)
        return FinalTraining(*what, metrics=metrics, rest=rest, keep=keep)

    counted = [final(0, 0.61), final(1, 0.63)]
    # The last epoch, other epochs, a rounded network and another row's network.
    others = [final(2, 0.1, keep="last"), final(3, 0.1, epochs=9), final(4, 0.1, rest="float16")]
    note_finals(results.folder, [*counted, *others, final(5, 0.1, trial=other)])
    number = rows_of(results)["BNN"]["numbers"][-1]
    assert (number["metric"], number["paper"], number["seeds"]) == ("test_accuracy", 0.6, 2)
    assert number["value"] == pytest.approx(0.62)
    assert number["spread"] == pytest.approx(0.02 / 2**0.5)
    # A row that prints the test accuracy beside that of the validation part.
    config = results.config.paper
    config.part, config.rows[1].values = "validation part", {"test_accuracy": 0.65}
    told = rows_of(results)["BNN"]["numbers"]
    assert [(n["metric"], n["paper"]) for n in told] == [
        ("val_accuracy", 0.6),
        ("test_accuracy", 0.65),
    ]
    text = paper_text(PaperComparison(results))
    assert "validation part" in text.split("\n")[0] + text.split("\n")[1]


def test_what_is_printed_of_the_test_set_and_not_measured_says_how(make_results):
    printed = PAPER.replace("{val_loss: 1.5}", "{test_accuracy: 0.7, train_accuracy: 0.8}")
    results = make_results(paper=printed)
    text = " ".join(paper_text(PaperComparison(results)).split())
    assert "bitfront export tiny --trial" in text
    assert "bitfront train recipe.yaml" in text
    with pytest.raises(ConfigError, match="trials have no test set"):
        make_results("paper.metric=test_accuracy", "name=other")


def test_each_draw_of_a_random_plan_counts(make_results):
    space = "space={method: bnn, plan: {selector: random, budget: 60, seeds: [0, 1, 2]}}"
    row = "paper.rows=[{label: random, value: 0.5, where: {plan.seed: each}}]"
    results = make_results(space, row, "paper.where={}", "search.trials=3")
    told = rows_of(results)["random"]["ours"]
    assert told["seeds"] == [0, 1, 2]
    assert {e.drawn["plan.seed"] for e in results.entries} == {0, 1, 2}


def test_a_ledger_without_notes_is_matched_by_what_its_trials_drew(make_results):
    space = "space={method: [bnn, bnn++], plan: {per: model, levels: [F, B]}, batch_size: [8, 16]}"
    seeds = "paper.seeds=0"
    results = make_results(space, "paper.where={}", "paper.rows=[{label: a, reason: b}]", seeds)
    old = results.config.paper.model_dump() | {
        "rows": [
            {"label": "whole", "where": {"method": "bnn", "plan.all": "B", "batch_size": 8}},
            {"label": "open", "where": {"method": "bnn"}},
            {"label": "half", "where": {"method": "bnn", "plan": "B"}},
            {"label": "never", "where": {"method": "pq", "plan": "B", "batch_size": 8}},
        ]
    }
    results.config.paper = PaperSpec.model_validate(old)
    told = rows_of(results)
    assert told["whole"]["ours"]["seeds"] == [0]
    assert told["open"]["missing"] == "leaves batch_size, plan open"
    assert told["half"]["missing"] == "leaves batch_size open"
    assert told["never"]["missing"] == "no trial has its setting"


def test_both_sides_state_their_data_epochs_and_spread(make_results, tmp_path, capsys):
    make_results()
    assert main(["compare", "tiny", "--paper", "--home", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    text = " ".join(out.split())
    assert "A paper, 2023, Table 3: digits, mlp, test set" in text
    assert "digits, 160 training examples, mlp, 3 epochs, val_accuracy" in text
    assert "90.00 ± 10.00" in text
    assert "89.00 ± 1.00" in text
    assert "not comparable: 200 examples of 1,438" in text
    assert "XNOR: its scales are not here" in text
    assert main(["compare", "tiny", "--paper", "--json", "--home", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["answered"], report["paper"]["seeds"]) == (3, 3)
    assert report["rows"][0]["paper"]["label"] == "full precision"


def test_a_search_without_rows_and_a_comparison_with_nothing_are_errors(
    make_results, tmp_path, capsys
):
    results = make_results(paper="")
    with pytest.raises(UserError, match="carries no rows"):
        PaperComparison(results)
    home = ("--home", str(tmp_path))
    assert main(["compare", "tiny", *home]) == 2
    assert main(["compare", "tiny", "tiny", "--paper", *home]) == 2
    assert "compare with what?" in capsys.readouterr().err
    assert main(["compare", "--paper", "--all", *home]) == 2
    assert "no search here carries rows" in capsys.readouterr().err
    assert main(["compare", "tiny", "--all", *home]) == 2


def test_a_page_has_every_search_with_the_command_of_each_row(make_results, tmp_path, capsys):
    make_results()
    assert main(["compare", "--paper", "--all", "--home", str(tmp_path)]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# The papers' tables")
    line = next(text for text in page.splitlines() if text.startswith("| full precision"))
    assert "| 90.00 ± 10.00 | 89.00 ± 1.00 | 3 | 3 | digits, 160 |" in line
    assert line.endswith("`bitfront run tiny.yaml --rows 'full precision'` |")
    assert "its scales are not here" in page


def test_rows_that_are_run_alone_are_shown_at_the_end(
    make_results, tiny_yaml, tmp_path, capsys, monkeypatch
):
    """Who copies the command of a row gets that row, not the front alone."""
    results = make_results()
    file = tmp_path / "tiny.yaml"
    file.write_text(tiny_yaml + PAPER)
    monkeypatch.setattr("bitfront.verbs.searching.run.started", lambda *_: (0, results.folder))
    command = ["run", str(file), "--home", str(tmp_path)]
    assert main([*command, "--rows", "BNN"]) == 0
    out = capsys.readouterr().out
    assert "69.00 ± 1.00" in out
    assert "full precision" not in out
    assert main(command) == 0
    assert "±" not in capsys.readouterr().out


def test_the_command_of_a_ready_made_search_has_what_was_changed():
    changes = ["task.epochs=4", "space.ste-adam.lr=[1e-3, 1e-4]", "search.trials=9"]
    config, _ = load(search_file("bayesbinn-moons"), changes, "mine")
    command = row_command(config)
    assert command == (
        "bitfront run bayesbinn-moons --name mine --set 'space.ste-adam.lr=[0.001, 0.0001]' "
        "--set task.epochs=4"
    )


def test_a_space_that_is_changed_on_the_command_line_may_lose_rows(make_space, tiny_yaml):
    """Somebody who tries one method of a ready-made search has made no mistake."""
    config, space = make_space("space.method=bnn++", text=tiny_yaml + PAPER)
    assert [row.note.problem for row in settle_rows(config, space).settled][1] == (
        "method: bnn is not in the space, which has bnn++ for all"
    )
    (told,) = cautions(config, space)
    assert "2 rows of the paper are not run" in told
    assert "full precision: method: bnn is not in the space" in told


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value: 0.6,", "value: 65,", "val_accuracy is a fraction, got 65"),
        ("where: {method: bnn++", "where: {methd: bnn++", "did you mean 'method'"),
        ("label: BNN,", "lable: BNN,", "unknown key, did you mean 'label'"),
        ("label: BNN++,", "label: BNN,", "'BNN' is there twice"),
        ("runs: 5", "metric: acc", "'acc' is no metric"),
        ("val_loss: 1.5", "val_los: 1.5", "is no metric, did you mean 'val_loss'"),
        ("table: Table 3", "tabel: Table 3", "did you mean 'table'"),
        ("{method: bnn++, plan: B}", "{method: bnn++}", "'BNN++' leaves plan open"),
        ("{method: bnn++, plan: B}", "{method: pq, plan: B}", "pq is not in the space"),
        ("bnn++.mu_end: 30}", "bnn++.mu_end: 3}", "3 is not in the space: 10..100"),
        ("optimizer.lr: 0.01,", "batch_size: 8, optimizer.lr: 0.01,", "no row draws it"),
    ],
)
def test_a_mistake_in_a_row_is_found_at_its_line(make_config, tiny_yaml, old, new, message):
    assert old in PAPER
    text = tiny_yaml + PAPER.replace(old, new)
    with pytest.raises(ConfigError) as caught:
        make_config(text=text)
    assert message in str(caught.value)
    line = next(
        i
        for i, (was, now) in enumerate(
            zip((tiny_yaml + PAPER).splitlines(), text.splitlines(), strict=True), 1
        )
        if was != now
    )
    assert f"tiny.yaml:{line} paper." in str(caught.value)


COLUMNS = """\
paper:
  title: A paper, 2023
  table: Table 3
  dataset: digits
  model: mlp
  where: {optimizer.lr: 0.01, bnn++.mu_end: 30}
  columns:
    full: {plan: F}
    binary: {plan: B}
  rows:
    - {label: "BNN, full", column: full, where: {method: bnn}}
    - {label: "BNN, binary", column: binary, where: {method: bnn}}
    - {label: "BNN++", column: full, where: {method: bnn++, plan: B}}
    - {label: XNOR, column: binary, reason: its scales are not here}
"""


def test_rows_of_a_column_share_its_setting_unless_they_say_otherwise(make_space, tiny_yaml):
    config, space = make_space(text=tiny_yaml + COLUMNS)
    specs = [row.specs[0] for row in settle_rows(config, space).settled if row.specs]
    assert [(s.method, s.plan) for s in specs] == [
        ("bnn", "FFFF"),
        ("bnn", "BBBB"),
        ("bnn++", "BBBB"),
    ]
    again, _ = make_space(text=config.dump())
    assert again.paper == config.paper


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("column: full, where: {method: bnn}", "column: ful, where: {method: bnn}", "'full'"),
        ("binary: {plan: B}", "binary: {plan: K}", "K is not in the space"),
        ("full: {plan: F}", "full: {plan: F, methd: bnn}", "did you mean 'method'"),
    ],
)
def test_a_mistake_in_a_column_is_found_at_its_line(make_config, tiny_yaml, old, new, message):
    text = tiny_yaml + COLUMNS.replace(old, new)
    line = text[: text.index(new)].count("\n") + 1
    with pytest.raises(ConfigError) as caught:
        make_config(text=text)
    assert message in str(caught.value)
    assert f"tiny.yaml:{line} paper." in str(caught.value)


def test_a_column_without_rows_is_a_mistake(make_config, tiny_yaml):
    with pytest.raises(ConfigError, match=r"columns\.half: no row is of it"):
        make_config(text=tiny_yaml + COLUMNS.replace("  rows:", "    half: {plan: B}\n  rows:"))


def test_what_the_sampler_tries_later_does_not_count_a_draw_twice(make_results):
    """A row of three draws has three trials: the n-th seed with the n-th draw. Drawn later, with
    the seed of the search, the second draw counted again."""
    space = "space={method: bnn, plan: {selector: random, budget: [100, 60], seeds: [0, 1, 2]}}"
    row = "paper.rows=[{label: random, value: 0.5, where: {plan.budget: 60, plan.seed: each}}]"
    results = make_results(space, row, "paper.where={}", "search.trials=20")
    drawn = [(e.drawn.get("plan.seed"), e.spec.seed) for e in results.entries]
    assert len(set(drawn) & {(1, 0), (2, 0)}) == 2  # the sampler has tried them
    told = rows_of(results)["random"]["ours"]
    assert told["seeds"] == [0, 1, 2]
    numbers = {e.id: e.drawn["plan.seed"] for e in results.entries if "plan.seed" in e.drawn}
    assert [numbers[trial] for trial in told["trials"]] == [0, 1, 2]


def test_a_seed_that_failed_is_left_out_of_mean_and_count(make_results):
    results = make_results(fails=lambda e: e.spec.method == "bnn++" and e.spec.seed == 1)
    row = rows_of(results)["BNN++"]
    assert row["ours"]["seeds"] == [0, 2]
    assert row["ours"]["value"] == pytest.approx((0.5 + 0.48) / 2)
    assert row["numbers"][0]["seeds"] == 2
    assert row["missing"] == "seed 1 failed: nan: the loss is nan"
