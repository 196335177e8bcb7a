"""The pictures of docs/. They are drawn by the commands that a reader has, and taken in a headless
browser, from the one search that website/quickstart keeps: what `bitfront run` leaves.

python -m website.pictures             # all of them, into docs/
python -m website.pictures --check     # elsewhere; those that no longer look like docs/ are named
python -m website.pictures --search    # the quickstart is run again first, and kept"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from website.sources import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DOCS = ROOT / "docs"
KEPT = ROOT / "website" / "quickstart"
SEARCH = "quickstart"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
# The trial that is chosen in pictures: the cheapest within 40 % of the FLOPs, as in the tutorial.
BUDGET = "40%"
# Milliseconds; other work may slow a machine down.
PATIENCE = 400_000
COLOURS = 200
# Cells of a picture when two are compared, how far one may be off (of 255), and the share that may:
# pictures of two runs of the quickstart differ in 1.5 % of their cells or more.
CELLS = (160, 160)
OFF, SHARE = 40, 0.01


def bitfront(*words: str, home: Path) -> str:
    """What a command of bitfront prints."""
    done = subprocess.run(
        [sys.executable, "-m", "bitfront", *words, "--home", str(home)],
        cwd=home, env=_environment(home), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def _environment(home: Path) -> dict[str, str]:
    """That of somebody who has set nothing of bitfront's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BITFRONT_", "MLFLOW_"))}
    path = f"{ROOT}{os.pathsep}{kept.get('PYTHONPATH', '')}"
    return {**kept, "PYTHONPATH": path, "XDG_CONFIG_HOME": str(home / "config"), "BROWSER": "true"}


@contextmanager
def home_of_the_search() -> Iterator[Path]:
    """A home with a copy of the search that is kept."""
    with tempfile.TemporaryDirectory(prefix="pictures") as folder:
        shutil.copytree(KEPT, Path(folder) / SEARCH)
        yield Path(folder)


def keep(home: Path) -> None:
    """Run the quickstart in a home, and keep its YAML and its ledger."""
    bitfront("run", home=home)
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir()
    for path in sorted((home / SEARCH).iterdir()):
        if path.name in FILES:
            shutil.copy(path, KEPT / path.name)


# What a search needs to be read, and to be continued.
FILES = ("search.yaml", "ledger.db", "identity")


@contextmanager
def served(home: Path, *words: str) -> Iterator[str]:
    """The address of a page that a command serves, until the block ends."""
    command = [sys.executable, "-m", "bitfront", *words, "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        [*command, "--home", str(home)],
        cwd=home, env=_environment(home), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stdout)))
        yield found.group()
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def opened(
    browser: Browser, address: str, width: int, height: int, dark: bool = False
) -> Iterator[Page]:
    """A page in a fresh window."""
    scheme: Any = "dark" if dark else "light"
    size: Any = {"width": width, "height": height}
    context = browser.new_context(viewport=size, color_scheme=scheme, timezone_id="UTC")
    context.add_init_script(NO_ASSISTANT)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    yield page
    context.close()


# MLflow opens a chat beside the first page that anybody looks at, and shows where files lie.
NO_ASSISTANT = """try {
    localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
    localStorage.setItem("mlflow.assistant.panelOpen_v1", "false");
} catch (error) { /* a file has no storage */ }"""
NO_PATH = """() => {
    const says = e => /^Path: file:/.test(e.textContent);
    for (const e of document.querySelectorAll("div, span")) {
        if (says(e) && ![...e.children].some(says)) e.style.visibility = "hidden";
    }
}"""
# Where the marker of a trial is on the screen.
POINT = """([selector, trial]) => {
    const plot = document.querySelector(selector);
    const box = plot.getBoundingClientRect();
    for (const trace of plot.data) {
        const i = (trace.customdata || []).findIndex(d => String(d).startsWith(trial));
        if (i < 0 || !trace.x) continue;
        const { xaxis, yaxis } = plot._fullLayout;
        return [box.left + xaxis._offset + xaxis.d2p(trace.x[i]),
                box.top + yaxis._offset + yaxis.d2p(trace.y[i])];
    }
}"""


def drawn(home: Path, folder: Path) -> None:
    """The figures that need no browser."""
    from bitfront.dashboards.figures.networks.quantizer import quantizer_image
    from bitfront.trainables.task import Task, TrialSpec
    from bitfront.trainables.training.pictures import quantizer

    for kind, file in (("front", "front.png"), ("layers", "pictures/layers.png")):
        bitfront("figure", SEARCH, "--kind", kind, "-o", str(folder / file), home=home)
    task = Task.model_validate({"dataset": "digits", "model": {"name": "mlp"}})
    spec = TrialSpec(task=task, method="bnn++", plan="W")
    shapes = quantizer(spec)
    assert shapes is not None
    quantizer_image(shapes, "bnn++ with its default schedule", folder / "pictures/quantizer.png")
    for path in folder.rglob("*.png"):
        _with_few_colours(path)


def of_the_report(home: Path, folder: Path, browser: Browser) -> None:
    """The report on a large screen, and on a dark phone."""
    bitfront("report", SEARCH, home=home)
    address = (home / SEARCH / "report.html").as_uri()
    with opened(browser, address, 900, 1500) as page:
        page.wait_for_selector("#front .main-svg")
        page.locator("details", has_text="as a table").first.evaluate("d => { d.open = true; }")
        _take(page, folder / "pictures/report.png")
    with opened(browser, address, 400, 1100, dark=True) as page:
        page.wait_for_selector("#front .main-svg")
        _take(page, folder / "pictures/report-phone.png")


def of_the_live_page(home: Path, folder: Path, browser: Browser) -> None:
    """The live page with a point chosen, and on a dark phone."""
    plot = "#figure-0 .js-plotly-plot"
    with served(home, "dashboard", SEARCH) as address:
        with opened(browser, address, 1200, 1020) as page:
            page.wait_for_selector(f"{plot} .scatterlayer .point")
            page.mouse.click(*page.evaluate(POINT, [plot, chosen(home)]))
            page.wait_for_selector("#trial .level")
            page.wait_for_selector("#curve .scatterlayer .point")
            page.mouse.move(5, 5)
            _take(page, folder / "live.png")
        with opened(browser, address, 400, 1800, dark=True) as page:
            page.wait_for_selector(f"{plot} .scatterlayer .point")
            _take(page, folder / "live-dark.png")


def of_mlflow(home: Path, folder: Path, browser: Browser) -> None:
    """The run of the search in MLflow, which is told of it by `resume`: its report, its words."""
    bitfront("resume", SEARCH, "--quiet", home=home)
    with served(home, "ui", SEARCH) as address, opened(browser, address, 1250, 900) as page:
        place = page.wait_for_selector("iframe")
        assert place is not None
        frame = place.content_frame()
        assert frame is not None
        frame.wait_for_selector("#front .main-svg")
        page.evaluate(NO_PATH)
        _take(page, folder / "pictures/mlflow-report.png")
        page.get_by_role("tab", name="Overview").click()
        page.get_by_text("Show more", exact=True).click()
        image = page.wait_for_selector("img[src*='get-artifact']")
        page.wait_for_function("i => i.complete && i.naturalWidth > 400", arg=image)
        _take(page, folder / "pictures/mlflow-run.png")


def chosen(home: Path) -> str:
    """The trial that the tutorial exports."""
    said = bitfront("export", SEARCH, "--budget", BUDGET, "-o", "chosen.yaml", home=home)
    found = re.search(r"\b[0-9a-f]{8}\b", said)
    assert found is not None, said
    return found.group()


def _take(page: Page, path: Path) -> None:
    """What a window shows once its figures stand still, with few colours."""
    page.wait_for_timeout(1500)
    page.screenshot(path=str(path))
    _with_few_colours(path)


def _with_few_colours(path: Path) -> None:
    """A small file, in which the few points of a method keep their colour."""
    from PIL import Image

    with Image.open(path) as image:
        way, none = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
        few = image.convert("RGB").quantize(COLOURS, method=way, dither=none)
    few.save(path, optimize=True)


PARTS: tuple[Callable[[Path, Path, Browser], None], ...] = (
    of_the_report,
    of_the_live_page,
    of_mlflow,
)


@contextmanager
def browser_of_the_machine() -> Iterator[Browser]:
    """A headless Chromium: the machine's, or the one that Playwright keeps."""
    from playwright.sync_api import sync_playwright

    found = os.environ.get("BITFRONT_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


def made(folder: Path) -> None:
    """All pictures, in a folder as docs/."""
    (folder / "pictures").mkdir(exist_ok=True)
    with home_of_the_search() as home, browser_of_the_machine() as browser:
        drawn(home, folder)
        for part in PARTS:
            part(home, folder, browser)


def unlike(one: Path, other: Path) -> float:
    """The share of two pictures that differs: 0 the same, 1 where their sizes are others."""
    import numpy
    from PIL import Image

    box = Image.Resampling.BOX
    with Image.open(one) as a, Image.open(other) as b:
        if abs(a.width - b.width) + abs(a.height - b.height) > 0.05 * (a.width + a.height):
            return 1.0
        cells = [numpy.asarray(i.convert("RGB").resize(CELLS, box), dtype=int) for i in (a, b)]
    return float((abs(cells[0] - cells[1]).max(axis=2) > OFF).mean())


def main() -> int:
    """Draw, compare, and keep; 1 where `--check` found a stale one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; 1 if one is stale")
    parser.add_argument("--search", action="store_true", help="run the quickstart again first")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="docs") as place:
        folder = Path(place)
        if args.search:
            keep(folder)
        made(folder)
        stale = 0
        for path in sorted(folder.rglob("*.png")):
            name = path.relative_to(folder)
            share = unlike(path, DOCS / name) if (DOCS / name).exists() else 1.0
            stale += share > SHARE
            print(f"{name}: {100 * share:.1f} % differs{', stale' if share > SHARE else ''}")
            if not args.check:
                shutil.copy(path, DOCS / name)
    return int(args.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
