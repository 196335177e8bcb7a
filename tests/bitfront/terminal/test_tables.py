"""What the terminal shows: nothing is wider than it, plans are grouped by stage, and colours are
for people only."""

import json
import random
import re
import shutil

import pytest

from bitfront import cli
from bitfront.search.config.load import load_text
from bitfront.search.config.source import parse
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.results import Results
from bitfront.terminal import tables as terminal
from bitfront.terminal.next_commands import after_search
from bitfront.terminal.plans import by_stage, counts, letters, runs, totals
from bitfront.terminal.status import status_table
from bitfront.terminal.summary import front_summary, front_table
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically

QUICK = """\
name: a-search-with-a-rather-long-name-of-its-own
task:
  dataset: digits
  model: {name: cresnet, depth: 8, width: 2}
  epochs: 3
space:
  method: [bnn, bnn+]
  plan: {per: layer, levels: [F, B]}
  model.width: [2, 4]
search: {sampler: random, trials: 30}
"""
DEEP = """\
name: deep
task:
  dataset: digits
  model: {name: cresnet, depth: 44, width: 2}
  epochs: 3
space:
  method: [bnn, bnn+, bnn++]
  plan: {per: layer, levels: [F, B]}
search: {sampler: random, trials: 30}
"""
ROBUST = """\
name: robust
task:
  dataset: digits
  model: {name: rn-narrow, width: 4, stages: 2, lbn: true, affine: false}
  epochs: 3
  binarize: all
  attack: {eps: 0.1, train: pgd, steps: 5, examples: 400}
space:
  method: edge-popup
  plan: W
  model.lbn: [false, true]
  edge-popup.rate: [0.5, 0.8, 0.9, 0.95, 0.99]
  edge-popup.p: [0.0, 0.1, 0.2, 0.5]
  edge-popup.init: [kaiming, binary]
objectives: {val_robust_pgd20: max, val_accuracy: max, flops: min}
search: {sampler: random, trials: 30}
"""
REGRESSION = """\
name: regression
task:
  dataset: snelson
  model: {name: tanh-mlp, depth: 2, width: 8, norm_output: true}
  epochs: 3
  binarize: all
space:
  method: [bayesbinn, ste-adam]
  plan: {per: layer, levels: [F, W]}
  model.width: [4, 8, 16]
objectives: {val_rmse: min, flops: min}
search: {sampler: random, trials: 30}
"""
KINDS = {"quick": QUICK, "deep": DEEP, "robust": ROBUST, "regression": REGRESSION}
WIDTHS = (72, 80, 120)


def made_up(text, root, trials=20):
    """A search whose trials have made-up results."""
    config, space = load_text(text, "made-up.yaml")
    folder = SearchFolder(root / config.name)
    write_atomically(folder.config_file, config.dump())
    ledger = Ledger(folder.ledger_url, config, space)
    for number in range(trials):
        entry = ledger.ask()
        if entry is None:
            break
        rng = random.Random(number)
        if number % 7 == 6:
            told = "the loss is nan at epoch 3, which is a long story " * 3
            ledger.tell(entry.id, "failed", failure="nan", message=told)
            continue
        cost = entry.costs["flops_pct"] / 100
        metrics = {m.name: min(1.0, cost + rng.random() / 9) for m in config.kind.metrics}
        ledger.tell(entry.id, "complete", metrics, [metrics])
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A search of each kind, and another one of each to compare it with."""
    root = tmp_path_factory.mktemp("searches")
    for text in KINDS.values():
        folder = made_up(text, root)
        made_up(text.replace(f"name: {folder.name}", f"name: {folder.name}-again"), root, 9)
    return root


@pytest.fixture
def searched(root, monkeypatch):
    monkeypatch.setenv("BITFRONT_HOME", str(root))
    return {
        kind: SearchFolder(root / parse(text, "x").data["name"]) for kind, text in KINDS.items()
    }


@pytest.fixture(params=WIDTHS)
def columns(request, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def widest(text):
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_of_a_front_fits(searched, columns, kind, capsys):
    folder = searched[kind]
    assert cli.main(["front", folder.name, "--plot"]) == 0
    shown = capsys.readouterr().out
    results = Results.of(folder)
    assert all(entry.id in shown for entry in results.front)
    assert widest(shown) <= columns, shown


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_for_every_objective(searched, monkeypatch, kind):
    monkeypatch.setenv("COLUMNS", "80")
    results = Results.of(searched[kind])
    head = front_table(results).splitlines()[0]
    metrics = {m.name: terminal.short(m) for m in results.config.kind.metrics}
    for name in results.config.objectives:
        assert metrics.get(name, "flops") in head


def test_a_deep_plan_keeps_its_stages_and_the_whole_of_it_is_in_wide_and_json(
    searched, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", "80")
    folder = searched["deep"]
    results = Results.of(folder)
    stages = results.networks.stages(results.config.task)
    assert len(set(stages)) == 3
    plans = {e.id: letters(by_stage(e.spec.plan, stages)) for e in results.front}
    wide = front_table(results, wide=True)
    assert all(f"  {plan}  " in wide for plan in plans.values())
    narrow = front_table(results)
    assert "…" not in narrow
    for line in narrow.splitlines()[2:]:
        plan = line[line.index("  ", 10) :].strip().split("  ")[0]
        assert len(plan.split()) == 3
    cli.main(["front", folder.name, "--json"])
    points = json.loads(capsys.readouterr().out)["points"]
    assert [p["plan"] for p in points] == [e.spec.plan for e in results.front]


def test_points_of_one_plan_are_told_apart_by_their_settings(searched, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    summary = front_summary(Results.of(searched["robust"]))
    assert "plan of all of them: W" in summary
    heads = next(line for line in summary.splitlines() if line.startswith("trial")).split()
    assert {"rate", "p", "lbn"} <= set(heads)
    assert "plan" not in heads


def test_forms_of_a_plan():
    groups = by_stage("FBBBWWBB", ["stage1"] * 4 + ["stage2"] * 4)
    assert letters(groups) == "FBBB WWBB"
    assert runs(groups) == "FB3 W2B2"
    assert counts(groups) == "1F3B 2W2B"
    assert totals(groups) == "1F2W5B"
    assert by_stage("FBB", None) == ["FBB"]


def test_status_of_many_searches_fits_and_one_broken_ledger_hides_no_other(
    searched, columns, capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("BITFRONT_HOME", str(tmp_path))
    quick, broken = searched["quick"], SearchFolder(tmp_path / "regression")
    shutil.copytree(quick.path, tmp_path / quick.name)
    shutil.copytree(searched["regression"].path, broken.path)
    for file in broken.path.glob("ledger.db*"):
        file.write_bytes(b"no database at all, but long enough to be looked at " * 99)
    assert cli.main(["status"]) == 1
    shown = capsys.readouterr().out
    assert widest(shown) <= columns, shown
    assert "the ledger of 'regression' cannot be read" in shown.replace("\n", " ")
    assert "2 nan" in shown
    assert quick.name[:20] in shown
    assert cli.main(["status", "--json"]) == 1
    told = {s["search"]: s for s in json.loads(capsys.readouterr().out)}
    assert "cannot be read" in told["regression"]["error"]
    assert told[quick.name]["trials"]["failed"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_comparison_fits(searched, columns, kind, capsys):
    first = searched[kind].name
    assert cli.main(["compare", first, f"{first}-again"]) == 0
    shown = capsys.readouterr().out
    assert widest(shown) <= columns, shown
    assert f"B  {first}-again" in shown.replace("\n   ", " ")


def test_next_commands_fit(searched, columns):
    assert widest(after_search(Results.of(searched["quick"]))) <= columns


def test_colours_are_for_terminals_only(searched, monkeypatch, capsys):
    folder = searched["quick"]
    for verb in (["front", folder.name, "--plot"], ["status"]):
        cli.main(verb)
        assert "\033" not in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.coloured()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.coloured()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not terminal.coloured()


def test_colours_change_no_letter(searched):
    results = Results.of(searched["quick"])
    plain, painted = front_table(results), front_table(results, colours=True)
    assert "\033" in painted
    assert re.sub(r"\033\[\d+m", "", painted) == plain
    found = [("x", results), ("y", UserError("broken"))]
    assert re.sub(r"\033\[\d+m", "", status_table(found, True)) == status_table(found)


def test_exporting_twice_is_painless_and_replaces_no_other_recipe(
    searched, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    name = searched["quick"].name
    first, *_, last = (entry.id for entry in Results.of(searched["quick"]).front)
    for _ in range(2):
        assert cli.main(["export", name, "--trial", first]) == 0
        assert "bitfront train recipe.yaml" in capsys.readouterr().out
    before = (tmp_path / "recipe.yaml").read_text()
    assert cli.main(["export", name, "--trial", last]) == 0
    told = capsys.readouterr().out
    assert "recipe.yaml has other content and stays as it is" in told
    assert "bitfront train recipe-2.yaml" in told
    assert cli.main(["export", name, "--trial", last, "-o", "recipe.yaml"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "recipe.yaml").read_text() == before
    assert {f.name for f in tmp_path.glob("*.yaml")} == {"recipe.yaml", "recipe-2.yaml"}
    assert cli.main(["export", name, "--trial", last, "-o", "recipe.yaml", "--force"]) == 0
    assert (tmp_path / "recipe.yaml").read_text() != before
    for _ in range(2):
        assert cli.main(["export", name, "--all"]) == 0
    count = len(Results.of(searched["quick"]).front)
    assert len(list((tmp_path / "recipes").iterdir())) == count
