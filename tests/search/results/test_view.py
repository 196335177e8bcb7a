"""Claims about what is read out of a ledger for people to look at, and about the verbs that write
reports and figures of it."""

import json

import pytest

from bitfront.cli import main
from bitfront.dashboards.figures import FIGURES
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.recipes.finals import FinalTraining, note_finals
from bitfront.search.results.importance import LEAST_TRIALS, importances
from bitfront.search.results.reader import SearchReader, view_of
from bitfront.search.results.results import Results
from bitfront.search.session.session import Session
from bitfront.search.tracking.extras import extras_of
from bitfront.trainables.files import write_atomically

pytestmark = pytest.mark.slow

MAGIC = {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}


def advance(session, trials):
    """So many more trials, as if trained: accuracy falls with every binary layer."""
    for _ in range(trials):
        entry = session.ask()
        reached = 0.9 - 0.08 * entry.spec.plan.count("B") - 0.01 * (entry.spec.method == "bnn")
        rows = [{"epoch": e, "val_accuracy": reached - 0.1 * (3 - e)} for e in (1, 2, 3)]
        session.finish(entry.id, {**rows[-1], "history": rows})


@pytest.fixture
def begin(make_space, tmp_path):
    """A session of the tiny search in a home of its own; (session, folder)."""

    def begin_(name="tiny", *assignments):
        config, space = make_space(f"name={name}", "search.trials=30", *assignments)
        folder = SearchFolder(tmp_path / name)
        write_atomically(folder.config_file, config.dump())
        return Session(config, space, folder, None), folder

    return begin_


def test_a_second_look_reads_what_is_new_and_nothing_else(begin):
    session, folder = begin()
    advance(session, 5)
    reader = SearchReader(folder)
    first = reader.read()
    assert len(first.trials) == 5
    assert reader.read() is first
    advance(session, 2)
    second = reader.read()
    assert len(second.trials) == 7
    assert second.trials[0] is first.trials[0]


def test_the_view_shows_what_the_results_say(begin):
    session, folder = begin()
    advance(session, 12)
    results = Results.of(folder)
    for view in (SearchReader(folder).read(), view_of(results)):
        assert view.front == [entry.id for entry in results.front]
        assert len(view.hypervolume) == 12
        shares = [step.share for step in view.hypervolume]
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(results.hypervolume_share)
        for trial, entry in zip(view.trials, results.entries, strict=True):
            assert trial.values["flops"] == entry.costs["flops"]
            assert trial.curve[-1] == (3, entry.metrics["val_accuracy"])
            assert len(view.layers_of(trial)) == len(trial.plan)


def test_importance_needs_trials_and_finds_what_mattered(begin):
    session, folder = begin()
    advance(session, LEAST_TRIALS - 1)
    assert importances(SearchReader(folder).read()) == {}
    advance(session, 20)
    shares = importances(SearchReader(folder).read())
    assert sum(shares.values()) == pytest.approx(1)
    layers = sum(share for name, share in shares.items() if name.startswith("plan: "))
    assert layers > 0.7
    assert shares["optimizer.lr"] < 0.2


def test_the_report_is_written_for_one_search_and_for_two(begin, tmp_path, capsys):
    for name in ("one", "two"):
        advance(begin(name)[0], 4)
    home = ["--home", str(tmp_path)]
    assert main(["report", "one", *home]) == 0
    assert "<html" in (tmp_path / "one" / "report.html").read_text()[:200]
    assert main(["report", "one", "two", "--json", *home]) == 0
    shown = capsys.readouterr().out
    written = json.loads(shown[shown.index("{") :])["report"]
    assert written == str(tmp_path / "one" / "report-one-two.html")
    advance(begin("three", "objectives={val_accuracy: max, bytes: min}")[0], 4)
    assert main(["report", "one", "three", *home]) == 2
    assert "have different objectives" in capsys.readouterr().err


# Masks are those of a packed checkpoint, which this search has not.
@pytest.mark.parametrize("kind", [name for name in FIGURES if name != "masks"])
@pytest.mark.parametrize("extension", ["pdf", "svg", "png"])
def test_a_figure_is_written_as_its_name_says(begin, tmp_path, kind, extension):
    advance(begin()[0], LEAST_TRIALS)
    out = tmp_path / f"figure.{extension}"
    assert main(["figure", "tiny", "--kind", kind, "-o", str(out), "--home", str(tmp_path)]) == 0
    assert out.read_bytes().startswith(MAGIC[extension])


@pytest.mark.parametrize(
    ("trials", "arguments", "told"),
    [
        (1, ["--kind", "fronts"], "did you mean 'front'"),
        (1, ["--kind", "front", "-o", "figure.gif"], "pdf, svg, png"),
        (1, ["--kind", "front", "-o", "nowhere/figure.pdf"], "there is no folder nowhere"),
        (0, ["--kind", "layers"], "has no front yet"),
        (1, ["--kind", "importance"], f"needs {LEAST_TRIALS} complete trials"),
        (1, ["--kind", "masks"], "has no masks"),
    ],
)
def test_a_figure_that_cannot_be_made_says_why(begin, tmp_path, capsys, trials, arguments, told):
    advance(begin()[0], trials)
    assert main(["figure", "tiny", *arguments, "--home", str(tmp_path)]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_selectors_and_final_trainings_belong_to_their_search(begin):
    session, folder = begin()
    advance(session, 2)
    entries = Results.of(folder).entries
    spec = {"selector": "front", "level": "B", "task": entries[0].spec.task.model_dump(mode="json")}
    write_atomically(folder.path / "selection-abc.json", json.dumps({"spec": spec}))
    final = FinalTraining(
        recipe="tiny-1",
        trial=entries[0].id,
        method="bnn",
        plan=entries[0].spec.plan,
        seed=0,
        epochs=3,
        checkpoint="seed0.safetensors",
        seconds=1.0,
        ended=2.0,
        metrics={"test_accuracy": 0.5},
    )
    note_finals(folder, [final, final])
    selector, trained = extras_of(folder, entries)
    assert (selector.kind, selector.name) == ("selector", "selector front")
    assert selector.params["dataset"] == "digits"
    assert (trained.kind, trained.metrics) == ("final", {"test_accuracy": 0.5})
    assert trained.tags["trial"] == entries[0].id
