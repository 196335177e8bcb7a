"""What distinguishes two points is visible wherever they are shown: their settings, one id, and
which number is of a trial and which the mean over seeds."""

import csv
import io
import re
import sqlite3
import statistics

import pytest
import yaml
from mlflow import MlflowClient

from bitfront import cli
from bitfront.dashboards.figures.front.interactive import front_figure
from bitfront.dashboards.figures.networks.layers import layers_figure
from bitfront.dashboards.pages.live.table import trial_table
from bitfront.dashboards.pages.panel import trial_data
from bitfront.dashboards.pages.report import report_html
from bitfront.dashboards.search_files import write_figures
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.recipes.replay import find_trial
from bitfront.search.results.figure_data import front_points
from bitfront.search.results.reader import view_of
from bitfront.search.results.results import Results
from bitfront.search.results.settings import settings_of
from bitfront.search.session.session import Session
from bitfront.search.tracking.notes import note_of
from bitfront.search.tracking.runs import run_name
from bitfront.search.tracking.tracker import Tracker
from bitfront.terminal import tables as terminal
from bitfront.terminal.summary import front_summary, front_table
from bitfront.trainables.files import write_atomically

pytestmark = pytest.mark.slow

WIDTHS = ["space.model.width=[4, 16, 64]", "search.trials=40", "search.confirm=0.4"]
NUMBERED = re.compile(r"\bt\d{4}\b")


@pytest.fixture
def make_session(make_space, tmp_path):
    """A session of a search over widths in a home of its own."""

    def make(*assignments, tracker=None):
        config, space = make_space(*WIDTHS, *assignments)
        folder = SearchFolder(tmp_path / "tiny")
        write_atomically(folder.config_file, config.dump())
        made = tracker and tracker(config, folder.identity, tmp_path)
        return Session(config, space, folder, made)

    return make


def trained(session, trials):
    """So many trials, as if trained: accuracy grows with the cost, and every seed moves it."""
    for _ in range(trials):
        entry = session.ask()
        size = entry.costs["flops"] / session.ledger.space.full_flops
        accuracy = 0.5 + 0.4 * size**0.2 + 0.013 * (entry.spec.seed % 3)
        row = {"epoch": 1, "val_accuracy": accuracy, "val_loss": 1.0}
        session.finish(entry.id, {**row, "history": [row]})


@pytest.fixture
def results(make_session):
    session = make_session()
    trained(session, 40)
    found = Results.of(session.folder)
    assert len({settings_of(e)["width"] for e in found.front}) > 1
    assert {e.seeds for e in found.front} > {1}
    return found


# Settings


@pytest.mark.parametrize("width", [72, 80, 120])
def test_what_varies_among_the_points_of_a_front_is_in_its_table(results, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    head, _, *lines = front_table(results).splitlines()
    place = head.index("width")
    for entry, line in zip(results.front, lines, strict=True):
        assert line.startswith(entry.id)
        assert line[place - 2 : place + 5].strip() == settings_of(entry)["width"]
    assert max(map(len, lines)) <= width


def test_the_wide_table_has_every_setting_and_the_narrow_one_says_what_it_lacks(
    results, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "64")
    drawn = {head for entry in results.front for head in settings_of(entry)}
    wide = front_table(results, wide=True).splitlines()[0].split()
    assert drawn <= set(wide)
    narrow = front_table(results).splitlines()[0].split()
    left_out = drawn - set(narrow)
    assert left_out
    told = " ".join(front_summary(results).split())
    listed = re.search(r"no room for (.*): --wide shows them", told)
    assert set(listed.group(1).split(", ")) == left_out


def test_what_is_the_same_for_all_points_is_said_once(make_session):
    session = make_session("space.model.width=[16, 17]", "space.bnn++.mu_end=20")
    entry = session.ask()
    session.finish(entry.id, {"epoch": 1, "val_accuracy": 0.9, "val_loss": 1.0})
    summary = front_summary(Results.of(session.folder))
    assert f"all of them: width={entry.spec.task.model.params['width']} lr=" in summary


def test_settings_of_two_owners_with_one_name_keep_their_whole_names(make_session):
    entry = make_session().ask()
    entry.drawn = {"method": "bnn", "optimizer.lr": 0.1, "pretrain.lr": 0.2, "model.width": 4}
    assert settings_of(entry) == {"width": "4", "optimizer.lr": "0.1", "pretrain.lr": "0.2"}
    entry.drawn = {f"{entry.spec.method}.scale": "none", "model.scale": 2}
    assert settings_of(entry) == {"scale": "2", f"{entry.spec.method}.scale": "none"}


def test_pictures_runs_and_csv_say_the_width_of_a_point(results, capsys):
    view = view_of(results)
    hovers = {
        trial: text
        for trace in front_figure(view.points, "", **view.labels).data
        if trace.mode == "markers" and trace.customdata is not None  # full precision is no trial
        for trial, text in zip(trace.customdata, trace.hovertext, strict=True)
    }
    layers = layers_figure(view, "").data[0]
    assert cli.main(["front", "tiny", "--csv", "--home", str(results.folder.path.parent)]) == 0
    printed = capsys.readouterr().out
    write_figures(results)
    assert (results.folder.path / "front.csv").read_text() == printed
    rows = {row["trial"]: row for row in csv.DictReader(io.StringIO(printed))}
    note = note_of(results.config, results.entries, results.front, None)
    for i, entry in enumerate(results.front):
        width = settings_of(entry)["width"]
        assert f"width: {width}<br>" in hovers[entry.id]
        assert f"width={width}" in layers.hovertext[i][0].replace("<br>", " ")
        assert f" width={width} " in run_name(entry, results.config.quality)
        assert rows[entry.id]["model.width"] == width
        assert float(rows[entry.id]["optimizer.lr"]) == entry.drawn["optimizer.lr"]
        assert f"| {entry.id} | {entry.spec.method} | {width} |" in note


def test_no_column_of_the_csv_is_empty(make_session):
    from bitfront.dashboards.figures.front.table import front_csv

    for objective in ("flops", "bytes"):
        session = make_session(f"objectives={{val_accuracy: max, {objective}: min}}", "name=tiny")
        trained(session, 4)
        results = Results.of(session.folder)
        rows = list(csv.DictReader(io.StringIO(front_csv(front_points(results)))))
        assert all(any(row[name] for row in rows) for name in rows[0])
        for file in session.folder.path.glob("ledger.db*"):
            file.unlink()


# Ids


def test_a_trial_has_one_id_wherever_it_is_shown(results, tmp_path, capsys):
    view = view_of(results)
    entry = results.front[0]
    home = ["--home", str(results.folder.path.parent)]
    out = tmp_path / "recipe.yaml"
    assert cli.main(["export", "tiny", "--trial", entry.id, "-o", str(out), *home]) == 0
    shown = {
        "export": capsys.readouterr().out,
        "recipe": out.read_text(),
        "table": front_table(results),
        "report": report_html(view, {}),
        "live": next(row[0] for row in trial_table(view)["rows"] if row[0] == entry.id),
        "run": run_name(entry, results.config.quality),
        "note": note_of(results.config, results.entries, results.front, None),
        "hover": str(front_figure(view.points, "", **view.labels).data),
    }
    for place, text in shown.items():
        assert entry.id in text, place
        assert not NUMBERED.search(text), place
    assert yaml.safe_load(out.read_text())["provenance"]["trial"] == entry.id


def test_an_id_from_anywhere_or_a_number_finds_the_trial(results):
    root = results.folder.path.parent
    entry = results.front[0]
    run = run_name(entry, results.config.quality)
    shown = (entry.id, entry.id[:6], f"t{entry.number}", run, f"tiny-{entry.id}")
    for text in shown:
        assert results.find(text).id == entry.id
        assert find_trial(root, text)[1].id == entry.id
        assert find_trial(root, f"tiny/{text}")[1].id == entry.id


# Trials and means over seeds


def test_a_spread_is_that_of_the_points_own_seeds(results, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = {line.split()[0]: line for line in front_table(results).splitlines()}
    points = {point.trial: point for point in front_points(results)}
    view = view_of(results)
    for entry in results.front:
        own = [e.metrics["val_accuracy"] for e in results.entries if e.point == entry.point]
        line = lines[entry.id]
        told = dict(trial_data(view, view.by_id[entry.id])["rows"])
        if len(own) == 1:
            assert "±" not in line
            assert points[entry.id].spread is None
            continue
        mean, spread = 100 * statistics.fmean(own), 100 * statistics.stdev(own)
        assert f"{mean:.2f} ± {spread:.2f} ({len(own)})" in line
        assert points[entry.id].spread == pytest.approx(spread / 100)
        assert told[f"mean of {len(own)} seeds"] == f"{mean:.2f} % ± {spread:.2f}"
        assert told[view.quality.label] == f"{100 * own[0]:.2f} % (this trial)"
    noise = 100 * results.seed_noise
    assert front_summary(results).count(f"seed noise ± {noise:.2f} over all points") == 1


def test_without_repeats_no_noise_is_claimed(make_session):
    session = make_session("search.confirm=0")
    trained(session, 3)
    results = Results.of(session.folder)
    assert results.seed_noise is None
    assert "±" not in front_summary(results)
    told = terminal.expectation(results.front[0], results.config.quality, results.seed_noise)
    assert told.endswith("(one seed, not confirmed)")


def test_mlflow_has_the_mean_of_a_front_point_beside_the_number_of_its_trial(make_session):
    session = make_session("search.trials=16", tracker=Tracker)
    session.tracker.start([])
    trained(session, 16)
    assert session.tracker.close("complete", {}, "") is None
    results = Results.of(session.folder)
    client = MlflowClient(session.tracker.uri)
    query = "tags.pareto = 'true'"
    runs = client.search_runs([session.tracker.mirror.experiment_id], query)
    found = {run.data.tags["bitfront.trial"]: run.data for run in runs}
    assert found.keys() == {e.id for e in results.front}
    trials = {e.id: e for e in results.entries}
    assert max(e.seeds for e in results.front) > 1
    for entry in results.front:
        data = found[entry.id]
        assert data.metrics["front_val_accuracy"] == pytest.approx(entry.metrics["val_accuracy"])
        assert data.metrics["front_seeds"] == entry.seeds
        assert data.metrics["val_accuracy"] == trials[entry.id].metrics["val_accuracy"]


def test_the_description_of_a_running_search_shows_means_too(make_session):
    session = make_session(tracker=Tracker)
    trained(session, 40)
    session.tracker._flush()
    results = Results.of(session.folder)
    mirror = session.tracker.mirror
    mirror.describe(session.ledger.entries.values(), {e.id for e in results.front}, None)
    note = mirror.client.get_run(mirror.parent_id).data.tags["mlflow.note.content"]
    for entry in results.front:
        mean = f"{100 * entry.metrics['val_accuracy']:.2f}"
        assert re.search(rf"\| {entry.id} \|.* {mean} \| {entry.seeds} \|", note)


def test_runs_of_version_0_1_get_the_name_and_the_percentages_of_today(make_session, tmp_path):
    session = make_session(tracker=Tracker)
    session.tracker.start([])
    trained(session, 4)
    assert session.tracker.close("interrupted", {}, "") is None
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        for table in ("metrics", "latest_metrics"):
            store.execute(f"DELETE FROM {table} WHERE key = 'flops_own_pct'")
            store.execute(f"UPDATE {table} SET value = 83 WHERE key = 'flops_pct'")
    store.close()
    again = make_session(tracker=Tracker)
    again.tracker.start(again.ledger.entries.values())
    assert again.tracker.close("complete", {}, "") is None
    client = MlflowClient(again.tracker.uri)
    query = "tags.`bitfront.kind` = 'trial'"
    runs = client.search_runs([again.tracker.mirror.experiment_id], query)
    assert len(runs) == 4
    for run in runs:
        entry = again.ledger.entries[run.data.tags["bitfront.trial"]]
        assert run.data.metrics["flops_pct"] == pytest.approx(entry.costs["flops_pct"])
        assert run.info.run_name == run_name(entry, again.config.quality)
