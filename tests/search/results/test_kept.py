"""Results that a repository keeps: a page is the same from them as from the ledger, and
docs/results/papers.md is what its command writes."""

import json
from pathlib import Path

import pytest

from bitfront.cli import main
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.results.agreement import Measured, Printed, paired
from bitfront.search.results.paper import PaperComparison
from bitfront.search.results.published import kept
from bitfront.search.results.results import Results
from bitfront.search.session.rows import settle_rows
from bitfront.spaces.ready_made import searches
from bitfront.terminal.papers import papers_page
from bitfront.trainables.errors import UserError

ROOT = Path(__file__).parents[3]
PAPER = """\
paper:
  title: A paper, 2023
  table: Table 3
  dataset: digits
  model: mlp
  where: {optimizer.lr: 0.01, bnn++.mu_end: 30}
  rows:
    - {label: full precision, value: 0.9, spread: 0.1, where: {method: bnn, plan: F}}
    - {label: BNN, value: 0.5, where: {method: bnn, plan: B}}
    - {label: BNN++, value: 0.6, where: {method: bnn++, plan: B}}
"""


@pytest.fixture
def results(make_space, tiny_yaml, tmp_path):
    """A search whose trial of BNN++ with seed 1 failed."""
    config, space = make_space("search.trials=10", text=tiny_yaml + PAPER)
    folder = SearchFolder(tmp_path / "home" / config.name)
    folder.path.mkdir(parents=True)
    folder.config_file.write_text(config.dump())
    ledger = Ledger(folder.ledger_url, config, space, rows=settle_rows(config, space))
    while (entry := ledger.ask()) is not None:
        accuracy = 0.9 - 0.2 * ("B" in entry.spec.plan) - 0.01 * entry.spec.seed
        accuracy -= 0.2 * (entry.spec.method == "bnn++")
        times = [{"epoch": n, "seconds": 2.0, "cpu_seconds": 1.5} for n in (1, 2)]
        if entry.spec.method == "bnn++" and entry.spec.seed == 1:
            ledger.tell(entry.id, "failed", failure="nan", message="the loss is nan")
        else:
            ledger.tell(entry.id, "complete", {"val_accuracy": accuracy, "val_loss": 1}, times)
    return Results.of(folder)


def test_a_page_is_the_same_from_what_is_kept(results, tmp_path):
    path = kept.write(results, tmp_path / "kept")
    again = kept.read(path)
    assert papers_page([PaperComparison(again)]) == papers_page([PaperComparison(results)])
    assert PaperComparison(again).rows() == PaperComparison(results).rows()
    assert [e.spec for e in again.entries] == [e.spec for e in results.entries]
    assert kept.write(again, tmp_path / "again").read_text() == path.read_text()
    assert path.stat().st_size < 2000 * len(results.entries)


def test_the_page_states_time_order_and_a_failed_seed(results):
    page = papers_page([PaperComparison(results)])
    assert "Time: 27 s of one core for 10 trials" in page
    assert "2 of 3 pairs of rows come as printed, 2 of them by more than chance" in page
    assert "; the other way round: BNN above BNN++ by 20.00" in page
    assert "seed 1 failed: nan: the loss is nan" in page
    assert (
        "| digits, 160 | 9 s | not comparable, other order | `bitfront run tiny.yaml --rows BNN`"
        in page
    )


def test_the_page_begins_with_what_agrees_and_what_does_not(results):
    """The marks of a search, how many pairs of its rows come as printed, and those that do not."""
    first, _, rest = papers_page([PaperComparison(results)]).partition("## How to read a row")
    line = "| [tiny](#tiny) | Table 3 | 2 of 3 | 2 | 1 | 3 not comparable |"
    assert f"{line} 3 of 3 | 2 to 3 | 3 | digits, 160 | 27 s |" in first
    assert "**No number of ours below is comparable with a printed one**" in first
    assert "* [tiny](#tiny): BNN above BNN++ by 20.00" in first
    assert "What has not been run" not in rest


def test_a_page_with_a_number_that_can_be_compared_does_not_say_there_is_none(results):
    task = results.config.task.model_copy(update={"subset": None})
    results.config = results.config.model_copy(update={"task": task})
    page = papers_page([PaperComparison(results)])
    assert "No number of ours" not in page
    assert "| 2 of 3 | 2 | 1 | 1 agrees, 2 differs |" in page


def test_of_many_pairs_the_other_way_round_the_clearest_are_named(results, monkeypatch):
    rows = [(f"row {n}", n / 10, 1 - n / 10) for n in range(1, 7)]
    of = {name: (Printed(value), Measured(ours, 1e-6, 3)) for name, value, ours in rows}
    monkeypatch.setattr(PaperComparison, "pairs", lambda *_: paired(of))
    page = papers_page([PaperComparison(results)])
    assert "0 of 15 pairs of rows come as printed, 0 of them" in page
    assert "* [tiny](#tiny): row 1 above row 6 by 50.00 points, " in page
    assert page.count(", and 7 more") == 2  # of the first screen and of the section


def test_nothing_of_the_machine_is_kept(results, tmp_path, monkeypatch):
    data = tmp_path / "data"
    pretrain = results.config.task.pretrain.model_copy(
        update={"checkpoint": str(data / "weights" / "a.pt"), "sha256": "0" * 64}
    )
    task = results.config.task.model_copy(update={"data_dir": str(data), "pretrain": pretrain})
    results.config = results.config.model_copy(update={"task": task})
    for entry in results.entries:
        entry.stored = entry.spec.model_copy(update={"task": task})
    text = kept.write(results, tmp_path / "kept").read_text()
    assert str(tmp_path) not in text
    assert '"data:weights/a.pt"' in text


@pytest.mark.parametrize("text", ["[]", "{", '{"bitfront_results": 1}', '{"bitfront_results": 9}'])
def test_a_damaged_file_is_one_line(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"a\.json"):
        kept.read(path)


def test_rows_of_a_search_that_was_not_run_are_listed_with_their_command(tmp_path, capsys):
    home = ["--home", str(tmp_path)]
    assert main(["compare", "--paper", "--all", "--ready-made", *home]) == 0
    page = capsys.readouterr().out
    assert "`bitfront run mixbin-cresnet20-cifar100 --rows 'MixBin-Grad 40 %'`" in page
    assert "| BWAA PQ | 61.19 | none: the caption leaves it out" in page
    assert "Nothing yet." in page
    rivals = "(#robust-rn34-rivals) | Tables 9, 10 and 11, CIFAR-10 | 43 | 37 | cifar10, 49,000 |"
    assert rivals in page
    assert main(["compare", "x", "--paper", "--kept", "y"]) == 2


def test_data_of_one_name_are_the_same_however_it_is_spelled():
    continual = kept.not_run(searches()["bayesbinn-continual"])
    assert continual.config.paper.dataset == "permuted MNIST"
    assert [row["not_comparable"] for row in PaperComparison(continual).rows()] == [[], []]


def test_a_printed_number_that_is_corrected_in_the_yaml_counts(results, tmp_path, monkeypatch):
    again = kept.read(kept.write(results, tmp_path / "kept"))
    text = results.folder.config_file.read_text().replace("value: 0.9", "value: 0.8")
    (tmp_path / "tiny.yaml").write_text(text)
    monkeypatch.setattr(kept, "searches", lambda: {"tiny": tmp_path / "tiny.yaml"})
    told = PaperComparison(kept.with_rows_of_today(again)).rows()
    assert [row["numbers"][0]["paper"] for row in told] == [0.8, 0.5, 0.6]
    assert told[0]["ours"]["seeds"] == [0, 1, 2]


def test_the_page_of_the_repository_is_what_its_command_writes(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs/results/papers.md").read_text()
    command = "bitfront compare --paper --all --ready-made --kept docs/results/runs"
    assert f"Written by `{command}`" in page
    assert main(command.split()[1:]) == 0
    assert capsys.readouterr().out == page, f"{command} > docs/results/papers.md"


@pytest.mark.parametrize("path", sorted((ROOT / "docs/results/runs").glob("*.json")), ids=str)
def test_what_is_kept_is_of_the_search_as_it_is(path):
    """Somebody who changes a search after its run has to run it again: the command of its rows
    would give other numbers."""
    data = json.loads(path.read_text())["config"]
    now = kept.not_run(searches()[path.stem]).config
    then = kept.read(path).config
    assert then.name == path.stem
    assert then.space == now.space
    assert [row.where for row in then.paper.rows] == [row.where for row in now.paper.rows]
    for key in ("dataset", "epochs", "subset", "batch_size", "optimizer", "val_fraction", "keep"):
        assert getattr(then.task, key) == getattr(now.task, key), key
    assert data["task"]["data_dir"] is None
