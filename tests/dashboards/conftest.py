"""A real browser for the pages, driven by Playwright: the Chromium of the machine where there is
one, else the one Playwright keeps. Tests that want it skip with the reason where there is none."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser():
    """One headless browser for a session, with a profile of its own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = os.environ.get("BITFRONT_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    with playwright.sync_playwright() as driver:
        try:
            opened = driver.chromium.launch(executable_path=found, args=FLAGS, headless=True)
        except playwright.Error as error:
            pytest.skip(f"no browser starts here: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


# The findings that a reader with a screen reader or a keyboard cannot get around.
SERIOUS = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .filter((found) => ["serious", "critical"].includes(found.impact))
    .map((found) => `${found.id}: ${found.nodes.slice(0, 3).map((node) => node.html).join(" ")}`)"""


@pytest.fixture(scope="session")
def serious_findings():
    """What axe-core finds wrong with a page, serious things only: `serious_findings(page)`."""
    found = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is missing")
    script = (Path(found.__file__).parent / "axe.min.js").read_text()

    def look(page):
        if page.evaluate("typeof axe") == "undefined":
            page.evaluate(script)
        return page.evaluate(SERIOUS)

    return look


class Watched:
    """A page, with what went wrong in it and what it asked of the network."""

    def __init__(self, page):
        self.page = page
        self.errors = []
        self.requests = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    @property
    def remote(self):
        """Requests that left the page: its own file, data and blobs are none."""
        own = ("file:", "data:", "blob:", "about:")
        return [url for url in self.requests if not url.startswith(own)]


@contextmanager
def _windows(browser):
    contexts = []

    def open_(url, width=1100, height=800, dark=False):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.set_default_timeout(60_000)
        watched.page.goto(str(url))
        return watched

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture
def open_page(browser):
    """Opens an address in a fresh window: `open_page(url, width=400, dark=True)`."""
    with _windows(browser) as open_:
        yield open_


@pytest.fixture(scope="module")
def open_for_module(browser):
    """As `open_page`, for windows that the tests of a file share."""
    with _windows(browser) as open_:
        yield open_


def _example_view(name="example", shift=0.0, **changes):
    """A search made by hand: eight trials of a four-layer network in two stages."""
    from bitfront.search.results.points import FrontPoint
    from bitfront.search.results.view import Axis, HypervolumeStep, Layer, SearchView, TrialView

    plans = {"BBBB": 10.0, "FBBB": 30.0, "FFBB": 55.0, "FFFB": 80.0, "BFBB": 32.0, "BBFF": 60.0}
    layers = [
        Layer(f"stages.{i // 2}.{i % 2}.conv", f"{i}", f"stage{i // 2 + 1}") for i in range(4)
    ]
    trials, points = [], []
    for number, (plan, flops) in enumerate(plans.items()):
        accuracy = 0.5 + flops / 250 - (0.1 if number > 3 else 0.0) + shift
        method = "bnn" if number % 2 else "bnn++"
        key = f"{name[0]}{number:02d}"
        values = {"flops_pct": flops, "flops": 1e4 * flops, "val_accuracy": accuracy}
        trials.append(
            TrialView(
                key, number, "complete", method, plan, "net", 0,
                {"method": method, "optimizer.lr": 0.01 * (number + 1)}, values, 3,
                curve=[(e, accuracy * e / 3) for e in (1, 2, 3)], rungs={0.3: accuracy / 3},
                would_stop_at=0.3 if number == 4 else None,
                started=float(number), ended=number + 1.0,
            )
        )  # fmt: skip
        extra = {"seeds": "2", "sure %": "80"}
        point = (key, method, plan, accuracy, 1e4 * flops, flops, number <= 3, extra)
        points.append(FrontPoint(*point, spread=0.005))
    common = {"network": "net", "seed": 0, "params": {"method": "bnn"}, "epochs": 3}
    costs = {"flops_pct": 20.0, "flops": 2e5}
    trials.append(
        TrialView(f"{name[0]}06", 6, "failed", "bnn", "BBBF", **common, values=costs,
                  failure="nan", message="the loss is nan", started=6.0, ended=7.0)
    )  # fmt: skip
    trials.append(
        TrialView(f"{name[0]}07", 7, "stopped", "bnn", "BFBF", **common,
                  values={**costs, "val_accuracy": 0.2}, curve=[(1, 0.2)], rungs={0.3: 0.2},
                  stopped_at=0.3, started=7.0, ended=8.0)
    )  # fmt: skip
    quality = Axis("val_accuracy", "validation accuracy, %", True, True, "accuracy")
    cost = Axis("flops_pct", "FLOPs, MixBin convention, % of FP", False, short="flops_pct")
    given = {
        "name": name, "description": "made by hand", "dataset": "digits", "model": "mlp",
        "state": "complete", "trials": trials, "points": points,
        "labels": {"accuracy_label": quality.label, "cost_label": cost.label,
                   "budgets": [("limit: flops_pct 60", 60.0)]},
        "front": [t.id for t in trials[:4]], "objectives": [quality, cost],
        "objective_values": {p.trial: [p.accuracy, p.cost_pct] for p in points},
        "quality": quality, "cost": cost, "reference": [0.1, 110.0], "ideal": [1.0, 0.0],
        "hypervolume": [HypervolumeStep(i + 1, 2.0 * i, 0.1 * i) for i in range(6)],
        "budgets": [], "networks": {"net": layers}, "budget_of_trials": 8, "epochs": 3,
        "seconds": 8.0, "rungs": (0.3,), "stopping": "1 trials stopped early",
        "yaml": "name: example\n", "environment": {"python": "3"},
        "commands": [("bitfront run search.yaml", "again")],
    }  # fmt: skip
    return SearchView(**{**given, **changes})


@pytest.fixture(scope="session")
def make_view():
    return _example_view
