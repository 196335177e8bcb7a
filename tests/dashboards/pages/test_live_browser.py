"""The live page in a real browser, beside a search: it follows the search, shows the trial of
a point, filters, and asks nothing of any other host."""

import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from bitfront.search.config.load import load_text
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.live.teller import Teller, telling
from bitfront.search.session.progress import Silent
from bitfront.search.session.session import Session
from bitfront.trainables.files import write_atomically
from testbed import warm

pytestmark = pytest.mark.slow

TINY = """\
name: tiny
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 16}
  epochs: 2
  batch_size: 32
  subset: 200
space:
  method: [bnn, bnn+]
  plan: {per: layer, levels: [F, B]}
  model.width: [8, 16]
search: {sampler: random, trials: 8, seed: 0}
tracking: {enabled: false}
"""
POINT = "#figure-0 .scatterlayer .point"
LAYOUT = "document.querySelector('#figure-0 .js-plotly-plot')._fullLayout"
X_RANGE = f"{LAYOUT}.xaxis.range"
# Other work may slow this machine down.
PATIENCE = 90_000


class Watched:
    """A home with a search of made-up results, and the live page of it in a process of its own."""

    def __init__(self, root):
        self.root = root
        self.config, space = load_text(TINY, "tiny.yaml")
        self.folder = SearchFolder(root / "tiny")
        self.folder.path.mkdir(parents=True)
        write_atomically(self.folder.config_file, self.config.dump())
        self.session = Session(
            self.config, space, self.folder, tracker=None, progress=telling(Silent)
        )
        self.ended = 0
        self.process = None
        self.url = ""

    def end_trial(self, failed=False):
        entry = self.session.ask()
        self.ended += 1
        if failed:
            self.session.fail(entry.id, "nan", "the loss is nan")
        else:
            value = 0.5 + 0.4 * entry.costs["flops_pct"] / 100
            rows = [{"epoch": e, "val_accuracy": value * e / 2} for e in (1, 2)]
            self.session.finish(entry.id, {**rows[-1], "history": rows})
        return entry

    def report(self, entry, epoch):
        """An epoch of a running trial, written at once."""
        result = {"epoch": epoch, "val_accuracy": 0.1 + 0.2 * epoch, "hostname": "here"}
        teller = self.session.progress
        assert isinstance(teller, Teller)
        teller._next = 0.0
        self.session.report(entry.id, {**result, "measured": ["epoch", "val_accuracy"]})

    def start(self):
        self.process, self.url = served(self.root)
        return self

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()


def served(home):
    """A process with the live page of a home, and its address."""
    command = [warm.python(), "-m", "bitfront.cli", "dashboard", "--port", "0", "--no-browser"]
    process = subprocess.Popen([*command, "--home", str(home)], stdout=subprocess.PIPE, text=True)
    return process, re.search(r"http://\S+", process.stdout.readline()).group()


@pytest.fixture(scope="module")
def live(browser, tmp_path_factory):
    """Only where there is a browser to look at it."""
    watched = Watched(tmp_path_factory.mktemp("live"))
    watched.end_trial()
    watched.end_trial()
    watched.end_trial(failed=True)
    yield watched.start()
    watched.stop()


def opened(live, open_page, **window):
    watched = open_page(live.url, **window)
    watched.page.set_default_timeout(PATIENCE)
    return watched


def x_range(page):
    return page.evaluate(X_RANGE)


def wait_for_points(page, count):
    page.wait_for_function(f"document.querySelectorAll('{POINT}').length === {count}")


def click_a_point(page, mark=None):
    mark = mark or page.locator(POINT).first
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def own(url, requests):
    return [r for r in requests if not r.startswith((url, "data:", "blob:", "about:"))]


def test_a_trial_that_ends_appears_without_reloading(live, open_page):
    watched = opened(live, open_page)
    wait_for_points(watched.page, 2)
    watched.page.evaluate("window.stillTheSamePage = true")
    live.end_trial()
    wait_for_points(watched.page, 3)
    assert watched.page.evaluate("window.stillTheSamePage")
    assert watched.page.locator("#tiles").inner_text().count("4 of 8") == 1
    assert watched.errors == []
    assert own(live.url, watched.requests) == []


def test_a_click_on_a_point_shows_its_plan_its_curve_and_its_command(live, open_page):
    watched = opened(live, open_page)
    page = watched.page
    page.wait_for_selector(POINT)
    click_a_point(page)
    page.wait_for_selector("#trial .level")
    chosen = re.match(r"\w+", page.locator("#trial h3").inner_text()).group()
    entry = live.session.ledger.entries[chosen]
    letters = page.locator("#trial .level").all_inner_texts()
    assert "".join(letters) == entry.spec.plan
    assert f"bitfront export tiny --trial {chosen}" in page.locator("#command").inner_text()
    page.wait_for_selector("#facts dd")
    facts = [fact.bounding_box()["width"] for fact in page.locator("#facts dd").all()]
    assert min(facts) > 60, "the names of facts leave no room for the facts"
    page.wait_for_selector("#curve .scatterlayer .point")
    assert page.locator("#curve .scatterlayer .point").count() == len(entry.history)
    page.wait_for_function(
        "document.querySelector('#curve svg')?.clientWidth"
        " <= document.querySelector('aside')?.clientWidth"
    )
    assert watched.errors == []


def test_filters_leave_what_they_name(live, open_page):
    page = opened(live, open_page).page
    page.wait_for_selector(POINT)
    complete = [e for e in live.session.ledger.entries.values() if e.state == "complete"]
    wait_for_points(page, len(complete))
    method = complete[-1].spec.method
    page.locator("#methods label", has_text=re.compile(rf"^{re.escape(method)}$")).click()
    wait_for_points(page, sum(e.spec.method == method for e in complete))
    page.locator("#methods label", has_text=re.compile(rf"^{re.escape(method)}$")).click()
    wait_for_points(page, len(complete))
    page.locator("#states label", has_text="failed").click()
    wait_for_points(page, 0)
    page.locator("#tab label", has_text="Trials").click()
    page.wait_for_selector("#trials tr.trial")
    assert page.locator("#trials tr.trial").count() == 1
    assert "failed: nan" in page.locator("#trials tr.trial").inner_text()
    page.locator("#trials tr.trial").click()
    page.wait_for_selector("#trial .level")
    assert page.locator("#command").count() == 0


def test_the_table_sorts_filters_and_saves_what_it_shows(live, open_page):
    watched = opened(live, open_page)
    page = watched.page
    page.locator("#tab label", has_text="Trials").click()
    page.wait_for_selector("#trials tr.trial")

    def column(name):
        heads = page.locator("#trials thead th").all_inner_texts()
        at = [h.split()[0] for h in heads].index(name)
        return page.locator(f"#trials tbody tr td:nth-child({at + 1})").all_inner_texts()

    page.locator("#trials th button", has_text="flops_pct").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#trials th[aria-sort=descending]")
    down = [float(text) for text in column("flops_pct")]
    assert down == sorted(down, reverse=True)
    page.keyboard.press("Enter")
    page.wait_for_selector("#trials th[aria-sort=ascending]")
    assert [float(text) for text in column("flops_pct")] == down[::-1]
    page.get_by_label("filter trials by words").fill("failed")
    assert column("state") == ["failed: nan"]
    with page.expect_download() as download:
        page.locator("#trials button", has_text="save as CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    failed = next(e for e in live.session.ledger.entries.values() if e.state == "failed")
    assert lines[0].startswith("trial,state,method,")
    assert len(lines) == 2
    assert lines[1].startswith(f"{failed.id},failed: nan,{failed.spec.method},")
    assert lines[1].endswith(failed.spec.plan)
    assert watched.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(live, open_page, serious_findings, dark):
    page = opened(live, open_page, dark=dark).page
    page.wait_for_selector(POINT)
    assert serious_findings(page) == []
    page.locator("#tab label", has_text="Trials").click()
    page.locator("#trials tr.trial .plain").last.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#facts dd")
    assert serious_findings(page) == []
    page.locator("#tab label", has_text="Failures").click()
    page.wait_for_selector("#rows table")
    assert serious_findings(page) == []


def test_every_tab_draws_without_an_error(live, open_page):
    watched = opened(live, open_page)
    page = watched.page
    page.wait_for_selector(POINT)
    for label in page.locator("#tab label").all():
        label.click()
        page.wait_for_timeout(300)
    page.locator("#tab label", has_text="Layers").click()
    page.wait_for_selector("#figure-0 .heatmaplayer image, #figure-0 .heatmaplayer .hm")
    assert watched.errors == []
    assert own(live.url, watched.requests) == []


def test_a_zoom_survives_a_new_trial(live, open_page):
    page = opened(live, open_page).page
    page.wait_for_selector(POINT)
    before = x_range(page)
    box = page.locator("#figure-0 .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
    page.mouse.up()
    page.wait_for_function(f"{X_RANGE}[0] > {before[0]}")
    zoomed = x_range(page)
    live.end_trial()
    page.wait_for_function(
        f"document.querySelector('#tiles')?.innerText.includes('{live.ended} of')"
    )
    page.wait_for_timeout(500)
    assert x_range(page) == zoomed


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_narrow_screen_in_its_colours(live, open_page, dark):
    watched = opened(live, open_page, width=400, dark=dark)
    page = watched.page
    page.wait_for_selector(POINT)
    click_a_point(page)
    page.wait_for_selector("#curve .scatterlayer .point")
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    paper = page.evaluate(f"{LAYOUT}.paper_bgcolor")
    assert paper.upper() == ("#181818" if dark else "#FFFFFF")
    assert watched.errors == []


def test_the_curve_of_a_running_trial_grows(live, open_page):
    with live.folder.locked():
        live.session.progress.start()
        entry = live.session.ask()
        live.report(entry, 1)
        page = opened(live, open_page).page
        card = page.locator("#running li", has_text=entry.id)
        card.locator("text=epoch 1 of 2").wait_for()
        card.locator(".plain").click()
        page.wait_for_selector("#curve .scatterlayer .point")
        live.report(entry, 2)
        card.locator("text=epoch 2 of 2").wait_for()
        page.wait_for_function(
            "document.querySelectorAll('#curve .scatterlayer .point').length === 2"
        )
        live.session.finish(entry.id, {"epoch": 2, "val_accuracy": 0.5, "history": []})
        live.ended += 1
        card.wait_for(state="detached")
        live.session.progress.stop()


def test_a_broken_ledger_is_a_sentence(live, open_page):
    broken = SearchFolder(live.root / "broken")
    write_atomically(broken.config_file, live.config.dump().replace("name: tiny", "name: broken"))
    page = opened(live, open_page).page
    page.wait_for_function(
        "document.querySelector('#sentence')?.innerText.includes('no trial yet')"
    )
    (broken.path / "ledger.db").write_bytes(b"no database, though it is long enough to be one" * 99)
    page.wait_for_function(
        "document.querySelector('#sentence')?.innerText.includes('cannot be read')"
    )
    assert page.locator("#figure-0").is_hidden()


def test_nothing_but_the_page_is_served(live):
    for path in ("assets/pyproject.toml", "assets/../search/cli.py", "assets/tiny/ledger.db"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(live.url + path)


# `bitfront run` with trials that end at once in the place of those that Ray trains: two, and the
# others when the file of the first argument is there.
SEARCH = """
import sys, time
from pathlib import Path
from types import ModuleType
from bitfront.cli import main

def run_trials(session, address):
    ended = 0
    while (entry := session.ask()) is not None:
        row = {"epoch": 2, "val_accuracy": 0.5, "train_loss": 0.5}
        session.finish(entry.id, {**row, "history": [row]})
        ended += 1
        while ended == 2 and not Path(sys.argv[1]).exists():
            time.sleep(0.1)

tuner = ModuleType("bitfront.search.cluster.tuner")
tuner.run_trials = run_trials
sys.modules[tuner.__name__] = tuner
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.timeout(900)
def test_the_page_follows_a_search_from_its_beginning_to_its_end(browser, open_page, tmp_path):
    """The driver is another process, and begins when the page is open."""
    yaml, home, go = tmp_path / "real.yaml", tmp_path / "home", tmp_path / "go"
    yaml.write_text(TINY.replace("name: tiny", "name: real"))
    words = ["run", str(yaml), "--quiet", "--home", str(home)]
    page_process, url = served(home)
    watched = open_page(url)
    page = watched.page
    page.set_default_timeout(PATIENCE)
    page.wait_for_function(
        "document.querySelector('#sentence')?.innerText.includes('No search has been run')"
    )
    search = subprocess.Popen([warm.python(), "-c", SEARCH, str(go), *words])
    try:
        wait_for_points(page, 2)
        assert "running" in page.locator("#tiles").inner_text()
        go.touch()
        wait_for_points(page, 8)
        assert search.wait(PATIENCE / 1000) == 0
        page.wait_for_function("document.querySelector('#tiles')?.innerText.includes('complete')")
        assert watched.errors == []
    finally:
        for process in (search, page_process):
            if process.poll() is None:
                process.kill()
                process.wait()
        page_process.stdout.close()
