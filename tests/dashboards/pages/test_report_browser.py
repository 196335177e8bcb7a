"""The report and the MLflow UI in a real browser: they show what they should, ask nothing of the
network and say no error."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import unquote

import pytest

from bitfront.dashboards.pages.comparison import comparison_html
from bitfront.dashboards.pages.report import report_html
from testbed.stores import copy_store

pytestmark = pytest.mark.slow

PLOT = ".figure .main-svg"


@pytest.fixture(scope="module")
def report(make_view, tmp_path_factory):
    """The address of a report."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_html(make_view(), {"method": 0.6, "optimizer.lr": 0.4}))
    return path.as_uri()


@pytest.fixture(scope="module")
def opened(open_for_module, report):
    """The report in a window that tests of clicks and colours share."""
    return open_for_module(report)


def draw_all(page):
    """Every figure, by scrolling to it."""
    for place in page.query_selector_all(".figure"):
        place.scroll_into_view_if_needed()
        page.wait_for_function("p => p.querySelector('.main-svg') !== null", arg=place)


def point_of(page, trial):
    """Where the marker of a trial is on the screen."""
    page.wait_for_selector(f"#front {PLOT.split()[1]}")
    return page.evaluate(
        """trial => {
            const plot = document.getElementById("front");
            const box = plot.getBoundingClientRect();
            for (const trace of plot.data) {
                const i = (trace.customdata || []).indexOf(trial);
                if (i < 0) continue;
                const { xaxis, yaxis } = plot._fullLayout;
                return { x: box.left + xaxis._offset + xaxis.d2p(trace.x[i]),
                         y: box.top + yaxis._offset + yaxis.d2p(trace.y[i]) };
            }
        }""",
        trial,
    )


def test_the_report_draws_every_figure_when_it_comes_into_view(open_page, report):
    """Without an error, and without a request."""
    opened = open_page(report)
    opened.page.wait_for_selector("#front .main-svg")
    assert opened.page.query_selector("#curves .main-svg") is None
    draw_all(opened.page)
    drawn = opened.page.query_selector_all(PLOT)
    assert len(drawn) >= 10
    assert opened.errors == []
    assert opened.remote == []


def test_hovering_shows_the_plan_and_clicking_shows_the_trial(opened):
    page = opened.page
    place = point_of(page, "e02")
    page.mouse.move(place["x"] - 3, place["y"])
    page.mouse.move(place["x"], place["y"], steps=4)
    hover = page.wait_for_selector("#front .hoverlayer .hovertext").text_content()
    for word in ("e02", "FFBB", "bnn++", "seeds: 2", "spread: 0.50"):
        assert word in hover
    assert page.is_hidden("#trial")
    page.mouse.click(place["x"], place["y"])
    panel = page.wait_for_selector("#trial:visible").text_content()
    assert "bitfront export example --trial e02" in panel
    assert "stage1" in panel
    boxes = page.query_selector_all("#trial .level")
    assert "".join(box.text_content() for box in boxes) == "FFBB"
    assert opened.errors == []


def test_a_row_of_the_table_shows_its_trial_too(opened):
    opened.page.click("tr[data-trial='e01']")
    panel = opened.page.locator("#trial:visible", has_text="--trial e01")
    panel.wait_for()


def test_a_phone_needs_no_scrolling_sideways_and_buttons_do_not_cover_words(open_page, report):
    opened = open_page(report, width=400)
    page = opened.page
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    covered = page.evaluate(
        """() => [...document.querySelectorAll(".figure")].filter((figure) => {
            const bar = figure.querySelector(".modebar-container .modebar");
            const plot = figure.querySelector(".bglayer, .plot");
            const heading = figure.closest("section").querySelector("h2");
            const a = bar && bar.getBoundingClientRect();
            const overlaps = (b) => a && a.width && !(a.right <= b.left || b.right <= a.left ||
                a.bottom <= b.top || b.bottom <= a.top);
            return overlaps(heading.getBoundingClientRect());
        }).map((figure) => figure.id)"""
    )
    assert covered == []
    assert opened.errors == []


def test_a_dark_screen_gets_light_words_on_dark_paper(opened, open_page, report):
    light = colours(opened.page)
    dark = colours(open_page(report, dark=True).page)
    assert luminance(light["paper"]) > 0.9
    assert luminance(dark["paper"]) < 0.1
    for shown in (light, dark):
        for words in ("ink", "label"):
            assert contrast(shown[words], shown["paper"]) > 7


def colours(page):
    page.wait_for_selector("#front .main-svg")
    return page.evaluate(
        """() => ({
            paper: getComputedStyle(document.body).backgroundColor,
            ink: getComputedStyle(document.body).color,
            label: getComputedStyle(document.querySelector("#front .xtitle")).fill,
        })"""
    )


def luminance(colour):
    parts = [int(p) / 255 for p in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(open_page, report, serious_findings, dark):
    page = open_page(report, dark=dark).page
    draw_all(page)
    page.click("tr[data-trial='e01']")
    assert serious_findings(page) == []


def test_two_searches_are_drawn_over_one_another(open_page, make_view, tmp_path):
    path = tmp_path / "both.html"
    path.write_text(comparison_html([make_view("alpha", shift=0.05), make_view("beta")]))
    opened = open_page(path.as_uri())
    draw_all(opened.page)
    assert "points of hypervolume" in opened.page.text_content("#s-overlay")
    assert opened.errors == []
    assert opened.remote == []


# --- the MLflow UI --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """(address, experiment, run) of a small search in a real MLflow server."""
    home = tmp_path_factory.mktemp("mlflow")
    copy_store(None, home / "mlflow.db")
    run = _tracked_search(home)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}"]
    # Without MLflow's job runners, a dozen processes that are not used here.
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    base = f"http://127.0.0.1:{port}"
    try:
        _wait_until_up(base, server)
        yield base, *run
    finally:
        server.terminate()
        server.wait(60)


def _tracked_search(home: Path):
    """A search of six made-up trials through session, tracker and launcher; (experiment, run)."""
    from bitfront.search.config.load import load_text
    from bitfront.search.ledger.folder import SearchFolder
    from bitfront.search.session.launch import summarize
    from bitfront.search.session.session import Session
    from bitfront.search.tracking.tracker import Tracker
    from bitfront.terminal.status_line import StatusLine
    from bitfront.trainables.files import write_atomically
    from bitfront.verbs.launch import shown_on

    text = (
        "name: shown\ntask: {dataset: digits, model: {name: mlp, depth: 5, width: 16}, epochs: 2}\n"
        "space: {method: [bnn, bnn++], plan: {per: layer, levels: [F, B]}}\n"
        "search: {sampler: random, trials: 6}\n"
    )
    config, space = load_text(text, "shown.yaml")
    folder = SearchFolder(home / "shown")
    write_atomically(folder.config_file, config.dump())
    tracker = Tracker(config, folder.identity, home)
    session = Session(config, space, folder, tracker)
    tracker.start([])
    for i in range(6):
        entry = session.ask()
        rows = [{"epoch": e, "val_accuracy": 0.5 + 0.05 * i + 0.1 * e} for e in (1, 2)]
        session.report(entry.id, rows[0])
        session.finish(entry.id, {**rows[1], "history": rows})
    deadline = time.monotonic() + 200
    while tracker.behind and time.monotonic() < deadline:
        time.sleep(0.1)  # importing MLflow takes as long as the machine is busy
    assert tracker.close("complete", *summarize(folder, shown_on(StatusLine(), quiet=True))) is None
    return tracker.mirror.experiment_id, tracker.mirror.parent_id


def _wait_until_up(base, server):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    pytest.skip("the MLflow server does not start here")


@pytest.fixture(scope="module")
def mlflow_ui(tracked, open_for_module):
    """One window for all of its pages: its scripts are large."""
    page = open_for_module(tracked[0], width=1500, height=1000).page
    page.set_default_timeout(60_000)
    return page


@pytest.mark.timeout(900)
def test_mlflow_shows_the_front_in_the_description_of_the_search(mlflow_ui, tracked):
    base, experiment, run = tracked
    page = mlflow_ui
    page.goto(f"{base}/#/experiments/{experiment}/runs/{run}")
    page.wait_for_selector("text=on the front")
    page.wait_for_selector("text=bitfront export shown --budget 40%")
    image = page.wait_for_selector("img[src*='get-artifact']")
    page.wait_for_function("image => image.complete && image.naturalWidth > 400", arg=image)


@pytest.mark.timeout(900)
def test_mlflow_shows_the_report_as_a_page(mlflow_ui, tracked):
    base, experiment, run = tracked
    page = mlflow_ui
    page.goto(f"{base}/#/experiments/{experiment}/runs/{run}/artifacts/report.html")
    frame = page.wait_for_selector("iframe").content_frame()
    frame.wait_for_selector("#front .main-svg")
    assert frame.text_content("h1") == "shown"


@pytest.mark.timeout(900)
def test_mlflow_lists_the_search_and_under_it_its_trials(mlflow_ui, tracked):
    base, experiment, run = tracked
    page = mlflow_ui
    page.goto(f"{base}/#/experiments/{experiment}/runs")
    page.wait_for_selector("text=shown")
    page.goto(f"{base}/#/experiments/{experiment}/runs/{run}")
    page.wait_for_selector("text=/[0-9a-f]{8} bnn/")


@pytest.mark.timeout(900)
def test_a_link_in_mlflow_opens_the_front_with_its_columns(mlflow_ui, tracked):
    base, experiment, run = tracked
    page = mlflow_ui
    page.goto(f"{base}/#/experiments/{experiment}/runs/{run}")
    link = page.wait_for_selector("a:has-text('Runs of the front')").get_attribute("href")
    page.goto(f"{base}/{link[link.index('#') :]}")
    page.wait_for_selector(".ag-header-cell:has-text('flops_pct')")
    page.wait_for_selector(".ag-header-cell:has-text('method')")
    assert "tags.pareto" in unquote(page.url)


@pytest.mark.timeout(900)
def test_mlflow_compares_flops_with_accuracy(mlflow_ui, tracked):
    import json
    from urllib.parse import quote

    from mlflow import MlflowClient

    base, experiment, _ = tracked
    client = MlflowClient(base)
    runs = client.search_runs([experiment], "tags.pareto = 'true'")
    assert runs
    assert all({"flops_pct", "val_accuracy"} <= set(run.data.metrics) for run in runs)
    everyone = client.search_runs([experiment], "tags.`bitfront.kind` = 'trial'")
    ids = quote(json.dumps([run.info.run_id for run in everyone]))
    there = quote(json.dumps([experiment]))
    page = mlflow_ui
    page.goto(f"{base}/#/compare-runs?runs={ids}&experiments={there}")
    page.wait_for_selector("text=Scatter Plot")
    page.click("text=Scatter Plot")
    page.wait_for_selector(".js-plotly-plot .xtitle")
    drawn = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.js-plotly-plot')].map("
        "plot => plot.data.reduce((n, trace) => n + (trace.x ? trace.x.length : 0), 0)))"
    )
    assert drawn == len(everyone)
