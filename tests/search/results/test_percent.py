"""Percentages are of one network per search, the dearest one in full precision, wherever they are
shown or asked for; what version 0.1 stored of each network's own is read as what it was."""

import json
import random
import sqlite3

import pytest

from bitfront import cli
from bitfront.dashboards.figures.front.overlay import Overlay
from bitfront.search.config.bounds import cost_bounds
from bitfront.search.config.space import build_space
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.comparison import Comparison
from bitfront.search.results.figure_data import front_points
from bitfront.search.results.reader import SearchReader, view_of
from bitfront.search.results.results import Results, config_to_continue
from bitfront.search.tracking.runs import run_name
from bitfront.spaces.costs import costs_of
from bitfront.terminal.comparisons import comparison_text
from bitfront.terminal.next_commands import after_search
from bitfront.terminal.summary import front_summary, front_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.task import with_overrides

pytestmark = pytest.mark.slow

WIDTHS = "space.model.width=[4, 16, 64]"


@pytest.fixture
def make_search(make_space, tmp_path):
    """A search over widths whose accuracy grows with what a network costs; its folder."""

    def make(*assignments, name="tiny", trials=30):
        config, space = make_space(f"name={name}", f"search.trials={trials}", WIDTHS, *assignments)
        folder = SearchFolder(tmp_path / name)
        write_atomically(folder.config_file, config.dump())
        ledger = Ledger(folder.ledger_url, config, space)
        finish(ledger, trials)
        return folder

    return make


def finish(ledger, trials):
    for _ in range(trials):
        entry = ledger.ask()
        if entry is None:
            return
        accuracy = 0.5 + 0.4 * (entry.costs["flops"] / ledger.space.full_flops) ** 0.2
        metrics = {"val_accuracy": accuracy, "val_loss": 1.0}
        ledger.tell(entry.id, "complete", metrics, [metrics])


def as_version_0_1(folder):
    """The ledger as version 0.1 would have written it: shares of each network's own."""
    config = Results.of(folder).config
    place = list(config.objectives).index("flops_pct") if "flops_pct" in config.objectives else None
    with sqlite3.connect(folder.path / "ledger.db") as ledger:
        found = ledger.execute(
            "SELECT trial_user_attribute_id, trial_id, value_json FROM trial_user_attributes "
            "WHERE key = 'costs'"
        ).fetchall()
        for key, trial, text in found:
            costs = json.loads(text)
            costs["flops_pct"] = costs.pop("flops_own_pct")
            ledger.execute(
                "UPDATE trial_user_attributes SET value_json = ? WHERE trial_user_attribute_id = ?",
                (json.dumps(costs), key),
            )
            if place is not None:
                ledger.execute(
                    "UPDATE trial_values SET value = ? WHERE trial_id = ? AND objective = ?",
                    (costs["flops_pct"], trial, place),
                )
    ledger.close()


def full_flops(folder):
    """Of the dearest network, counted anew."""
    return build_space(Results.of(folder).config).full_flops


# New searches


def test_a_percentage_is_of_the_dearest_full_precision_network_of_the_space(make_space):
    _, space = make_space(WIDTHS)
    dearest = with_overrides(space.task, {"model.width": 64})
    spec = space.random_point(random.Random(0))
    full = costs_of(spec.model_copy(update={"task": dearest, "plan": "F" * len(spec.plan)}))
    assert space.full_flops == full["flops"]
    costs = space.costs(spec)
    assert costs["flops_pct"] == 100 * costs["flops"] / full["flops"]
    assert costs["flops_own_pct"] == costs_of(spec)["flops_pct"]
    assert cost_bounds(space)["flops_pct"][1] == 100


def test_of_an_only_network_both_shares_are_the_same(make_space):
    _, space = make_space()
    for seed in range(5):
        costs = space.costs(space.random_point(random.Random(seed)))
        assert costs["flops_pct"] == costs["flops_own_pct"]


def test_a_limit_in_percent_is_of_the_dearest_network(make_search):
    folder = make_search("limits.flops_pct=20")
    entries = Results.of(folder).entries
    assert all(e.costs["flops"] <= 0.2 * full_flops(folder) for e in entries)
    assert any(e.costs["flops_own_pct"] > 20 for e in entries)


def test_a_selectors_budget_is_of_the_network_it_plans(make_space):
    plan = "space.plan={selector: front, budget: 50, rule: at_least}"
    _, space = make_space(WIDTHS, plan)
    for seed in range(8):
        costs = space.costs(space.random_point(random.Random(seed)))
        assert costs["flops_own_pct"] >= 50


def test_a_point_that_two_searches_found_is_on_the_joint_front_of_both(make_search, tmp_path):
    results = Results.of(make_search())
    sides = Comparison(results, results).as_json()
    counts = [side["on_joint_front"] for side in (sides["a"], sides["b"])]
    assert counts == [len(results.front)] * 2


@pytest.mark.parametrize("budget", [2, 10, 40, 70, 100])
def test_a_point_exported_for_a_budget_is_within_it_by_its_own_row(
    make_search, budget, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")  # the line with the path of the test is not broken
    folder = make_search()
    out = tmp_path / "recipe.yaml"
    home = ["--home", str(tmp_path)]
    assert cli.main(["export", "tiny", "--budget", f"{budget}%", "-o", str(out), *home]) == 0
    told = capsys.readouterr().out
    chosen = next(e for e in Results.of(folder).front if f"trial {e.id}," in told)
    shown = float(told.split(" % of the dearest")[0].rpartition("(")[2])
    assert shown <= budget
    assert cli.main(["front", "tiny", "--json", *home]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    row = next(p for p in points if p["trial"] == chosen.id)
    assert row["flops_pct"] <= budget
    better = [p for p in points if p["val_accuracy"] > row["val_accuracy"]]
    assert all(p["flops_pct"] > budget for p in better)


def test_percentages_are_the_same_wherever_a_point_is_shown(make_search, tmp_path, capsys):
    folder = make_search()
    results, full = Results.of(folder), full_flops(folder)
    view = view_of(results)
    assert cli.main(["front", "tiny", "--csv", "--home", str(tmp_path)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    rows = [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]
    csv = {row["trial"]: float(row["cost_pct"]) for row in rows}
    points = {point.trial: point for point in front_points(results)}
    table = front_table(results, wide=True)
    for entry in results.front:
        share = 100 * entry.costs["flops"] / full
        assert entry.costs["flops_pct"] == share
        assert points[entry.id].cost_pct == csv[entry.id] == share
        assert view.by_id[entry.id].values[view.cost.name] == share
        line = next(line for line in table.splitlines() if line.startswith(entry.id))
        assert f" {share:.2f} " in line
        assert f" {share:.{0 if share >= 9.5 else 1}f} %" in run_name(entry, results.config.quality)
    shares = [entry.costs["flops_pct"] for entry in results.front]
    assert shares == sorted(shares)
    assert view.cost.label.endswith("% of the dearest FP network")
    assert f"{full:,.0f} flops" in front_summary(results)


@pytest.mark.parametrize(
    ("budget", "hint"),
    [
        ("40", "did you mean 40%?"),
        ("0.4", "did you mean 40%?"),
        ("140%", "did you mean 40%?"),
        ("900%", "for example --budget 40%"),
        ("-5%", "for example --budget 40%"),
        ("nan%", "not a number"),
        ("lots", "not a number"),
        ("byte=3k", "did you mean 'bytes'?"),
    ],
)
def test_a_budget_that_cannot_be_meant_gets_a_hint(make_search, tmp_path, capsys, budget, hint):
    make_search()
    code = cli.main(["export", "tiny", f"--budget={budget}", "--home", str(tmp_path)])
    assert code == 2
    assert hint in capsys.readouterr().err


def test_a_search_for_another_cost_is_exported_by_that_cost(make_search, tmp_path, capsys):
    folder = make_search("objectives={val_accuracy: max, bytes: min}")
    results = Results.of(folder)
    middle = sorted(e.costs["bytes"] for e in results.front)[len(results.front) // 2]
    suggested = after_search(results)
    assert f"--budget bytes={middle:.0f} " in suggested
    for budget in (f"bytes={middle:.0f}", f"bytes={middle / 1000}k"):
        words = ["export", "tiny", "--budget", budget, "-o", str(tmp_path / "recipe.yaml")]
        assert cli.main([*words, "--home", str(tmp_path)]) == 0
        assert f", {middle:,.0f} bytes" in capsys.readouterr().out


def test_searches_with_other_objectives_are_told_apart_in_words(make_search):
    a = Results.of(make_search(name="a"))
    b = Results.of(make_search("objectives={val_accuracy: max, bytes: min}", name="b"))
    with pytest.raises(UserError, match="val_accuracy max, flops min; val_accuracy max, bytes min"):
        Comparison(a, b)


def test_drawn_epochs_are_compared_as_a_range(make_search):
    a, b = (
        Results.of(make_search(name="a")),
        Results.of(make_search("space.epochs=[2, 5]", name="b")),
    )
    told = comparison_text(Comparison(a, b))
    line = next(t for t in told.splitlines() if "epochs" in t)
    assert line.split() == ["epochs", "per", "trial", "3", "2-5", "-"]
    (caution,) = Comparison(a, b).as_json()["cautions"]
    assert caution.startswith("A and B differ in their epochs per trial, 3 and 2 to 5")
    assert f"warning: {caution}" in " ".join(told.split())
    assert not Comparison(a, a).cautions


def test_two_searches_are_compared_at_budgets_of_one_network(make_search):
    wide = Results.of(make_search(name="wide"))
    narrow = Results.of(make_search("space.model.width=[4, 16]", name="narrow"))
    comparison = Comparison(wide, narrow)
    assert comparison.full_flops == wide.full_flops > narrow.full_flops
    limit = 0.4 * wide.full_flops
    best = max(e.metrics["val_accuracy"] for e in narrow.front if e.costs["flops"] <= limit)
    assert comparison.as_json()["b"]["best_under_budget"]["40"] == best
    overlay = Overlay([view_of(wide), view_of(narrow)])
    assert not overlay.in_percent
    assert Overlay([view_of(wide), view_of(wide)]).in_percent


# Ledgers of version 0.1


@pytest.mark.parametrize("cost", ["flops", "bytes"])
def test_a_ledger_of_version_0_1_is_shown_in_percent_of_the_dearest_network(make_search, cost):
    folder = make_search(f"objectives={{val_accuracy: max, {cost}: min}}")
    before = {e.id: e.costs for e in Results.of(folder).entries}
    as_version_0_1(folder)
    reader = SearchReader(folder)
    for _ in range(2):  # a page looks again and again
        results = Results.of(folder)
        assert {e.id: e.costs for e in results.entries} == before
        assert results.full_flops == full_flops(folder)
        assert {t.id: t.values["flops_pct"] for t in reader.read().trials} == {
            key: costs["flops_pct"] for key, costs in before.items()
        }


def test_a_search_of_version_0_1_goes_on_with_the_limits_it_was_begun_with(make_search):
    folder = make_search("limits.flops_pct=60", trials=12)
    stored = Results.of(folder).config
    as_version_0_1(folder)
    assert Results.of(folder).config.limits.keys() == {"flops_own_pct"}
    space = build_space(stored)
    with pytest.raises(UserError, match=r"begun by bitfront 0\.1") as caught:
        Ledger(folder.ledger_url, stored, space)
    assert "bitfront resume tiny" in str(caught.value)
    config = config_to_continue(folder)
    config.search.trials = 24
    ledger = Ledger(folder.ledger_url, config, space)
    finish(ledger, 12)
    new = [e for e in ledger.entries.values() if not e.restated]
    assert len(new) == 12
    assert all(e.costs["flops_own_pct"] <= 60 for e in new)
    assert Results.of(folder).config.limits.keys() == {"flops_own_pct"}


def test_an_objective_of_version_0_1_keeps_its_values_under_its_name_of_today(make_search):
    folder = make_search("objectives={val_accuracy: max, flops_pct: min}")
    as_version_0_1(folder)
    results = Results.of(folder)
    assert list(results.config.objectives) == ["val_accuracy", "flops_own_pct"]
    assert all(e.values[1] == e.costs["flops_own_pct"] for e in results.front)
    assert "flops_own_pct" in front_summary(results)
