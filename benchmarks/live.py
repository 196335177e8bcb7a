"""How fast the live page refreshes: the time and size of its answer when a trial has ended, with
1,000 and with 5,000 trials in the ledger.

    python -m benchmarks.live                   # both sizes; making the ledgers takes minutes
    python -m benchmarks.live --trials 1000     # one size
    python -m benchmarks.live --quick           # the size for CI
    python -m benchmarks.live --keep DIR        # keep the ledgers there, or take them from there
    python -m benchmarks.live --cpu-clock       # on a machine that is busy with other work

The ledgers are written by the code of a real search (ask and tell of `search.study`), only the
results of the trials are made up. A refresh is what the browser asks when a trial has ended, both
requests: is there something new, and what does the open tab show now. Its time is that of the
server, from the request to the whole answer, without the network and without the browser.

With a browser also how long it takes until the page is there: the first text (first contentful
paint) and the front with its points, from the request on, the ledger having been read before. With
`--cpu-clock` these are the processor's time of the page's main thread, up to the front."""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.table import Row, bar, csv_path, format_table, write_csv
from bitfront.dashboards.pages.live.app import live_app
from bitfront.dashboards.pages.server import HomeSource
from bitfront.search.config.load import load_text
from bitfront.search.config.space import build_space
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.states import ENDED, TrialState
from bitfront.search.results.stored import stored_config
from bitfront.trainables.files import write_atomically

YAML = """\
name: live
description: made-up results, to measure the live page
task:
  dataset: digits
  model: {name: cresnet, depth: 20, width: 4}
  epochs: 10
space:
  method: [bnn, bnn+, bnn++]
  plan: {per: layer, levels: [F, W, B]}
  model.width: [2, 4, 8]
  optimizer.lr: {float: [0.001, 0.03], log: true}
objectives: {val_accuracy: max, flops: min}
search: {sampler: random, trials: 100}
"""
PRUNED, FAILED = 0.15, 0.03
PACKAGES = ("dash", "optuna", "plotly")
BARS = {1000: 300.0, 5000: 1000.0}
TABS = (
    "front",
    "trials",
    "layers",
    "curves",
    "settings",
    "slices",
    "contour",
    "hypervolume",
    "timeline",
    "methods",
)
REPEATS = 5


def filled(root: Path, trials: int) -> SearchFolder:
    """A search of so many trials in `root`, unless it is there already; one more is running."""
    folder = SearchFolder(root / f"live-{trials}")
    if folder.exists:
        return folder
    settings = [f"search.trials={2 * trials}"]
    config, space = load_text(YAML, "live.yaml", settings, folder.name)
    folder.path.mkdir(parents=True)
    ledger = Ledger(folder.ledger_url, config, space)
    for number in range(trials):
        end_one(ledger, number)
    ledger.ask()
    write_atomically(folder.config_file, config.dump())
    return folder


def end_one(ledger: Ledger, seed: int) -> Entry:
    """Ask for a trial and end it with a made-up result."""
    entry = ledger.ask()
    assert entry is not None
    rng = random.Random(seed)
    fate = rng.random()
    end = made_up_accuracy(entry, rng)
    curve = [
        {
            "epoch": epoch,
            "train_loss": 2.3 * math.exp(-epoch / 4),
            "val_accuracy": end * (1 - math.exp(-epoch / 2)),
            "flip_rate": 0.2 / epoch,
        }
        for epoch in range(1, 11)
    ]
    if fate < FAILED:
        return ledger.tell(
            entry.id, TrialState.FAILED, history=curve[:3], failure="nan", message="made up"
        )
    if fate < FAILED + PRUNED:
        metrics = {**curve[2], "stopped_at": 0.3}
        return ledger.tell(entry.id, TrialState.STOPPED, metrics, curve[:3])
    return ledger.tell(entry.id, TrialState.COMPLETE, {**curve[-1], "val_accuracy": end}, curve)


def made_up_accuracy(entry: Entry, rng: random.Random) -> float:
    """Dearer networks are better, with diminishing returns and noise."""
    share = entry.costs["flops_pct"] / 100
    width = entry.spec.task.model.params["width"]
    noise = rng.gauss(0, 0.01)
    accuracy: float = 0.7 + 0.2 * share**0.5 + 0.03 * math.log2(width) + noise
    return min(0.999, accuracy)


class Browser:
    """Asks the server what the page would ask, and times the answers."""

    def __init__(self, root: Path, name: str, cpu_clock: bool) -> None:
        self.name = name
        self.clock = time.process_time if cpu_clock else time.perf_counter
        self.client = live_app(HomeSource(root), name).server.test_client()
        self.callbacks = self.client.get("/_dash-dependencies").get_json()
        self.seen: Any = None

    def ask(self, output: str, values: dict[str, Any]) -> bytes:
        """The answer of the callback with this output; '' where there is nothing new."""
        callback = next(c for c in self.callbacks if output in c["output"])
        outputs = [
            {"id": i, "property": p}
            for i, p in (o.rsplit(".", 1) for o in callback["output"].strip(".").split("..."))
        ]
        given = {
            part: [{**x, "value": values.get(f"{x['id']}.{x['property']}")} for x in callback[part]]
            for part in ("inputs", "state")
        }
        changed = [f"{x['id']}.{x['property']}" for x in callback["inputs"][:1]]
        body = {
            "output": callback["output"],
            "outputs": outputs,
            "changedPropIds": changed,
            **given,
        }
        response = self.client.post("/_dash-update-component", json=body)
        assert response.status_code in (200, 204), response.data
        data: bytes = response.data
        return data

    def refresh(self, tab: str) -> tuple[float, int]:
        """Milliseconds and bytes of a refresh."""
        began = self.clock()
        news = self.ask(
            "seen.data",
            {
                "search.value": self.name,
                "seen.data": self.seen,
                "drawn.data": self.seen,
                "tick.n_intervals": 1,
            },
        )
        told = json.loads(news)["response"] if news else {}
        size = len(news)
        if "seen" in told:
            self.seen = told["seen"]["data"]
            size += len(
                self.ask(
                    "sentence.children",
                    {
                        "seen.data": self.seen,
                        "tab.value": tab,
                        "methods.value": [],
                        "states.value": [],
                    },
                )
            )
        return 1000 * (self.clock() - began), size


class Opened(NamedTuple):
    """Milliseconds until a page shows something; None where they were not measured."""

    text: float | None
    front: float


def first_paint(folder: SearchFolder, cpu_clock: bool) -> Opened | None:
    """How long the page takes to open in a headless browser; None where there is none."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        return None
    from werkzeug.serving import make_server

    source = HomeSource(folder.path.parent)
    source.look(folder.name)
    server = make_server("127.0.0.1", 0, live_app(source, folder.name).server, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as driver:
            found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
            browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
            page = browser.new_page()
            page.set_default_timeout(300_000)
            metrics = page.context.new_cdp_session(page)
            domain = "threadTicks" if cpu_clock else "timeTicks"
            metrics.send("Performance.enable", {"timeDomain": domain})
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            page.wait_for_selector("#figure-0 .scatterlayer .point")
            drawn = page.evaluate("performance.now()")
            text = page.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            )
            told = metrics.send("Performance.getMetrics")["metrics"]
            busy = next(m["value"] for m in told if m["name"] == "TaskDuration")
            browser.close()
            return Opened(None, 1000 * busy) if cpu_clock else Opened(text, drawn)
    except Error:
        return None
    finally:
        server.shutdown()


@dataclass
class Measured:
    ms: float
    bytes: int


def measure(folder: SearchFolder, cpu_clock: bool) -> list[Row]:
    """Trials end one after another; each is followed by a refresh."""
    opened = first_paint(folder, cpu_clock)
    browser = Browser(folder.path.parent, folder.name, cpu_clock)
    config = stored_config(folder)
    config.search.trials *= 2
    ledger = Ledger(folder.ledger_url, config, build_space(config))
    trials = ledger.count(*ENDED)
    first, size = browser.refresh("front")
    rows: list[Row] = [_row(trials, "front, opened", [Measured(first, size)])]
    if opened is not None:
        page: Row = {"trials": trials, "worst ms": None, "kB": None}
        if opened.text is not None:
            rows.append({**page, "refresh of": "first text in a browser", "ms": opened.text})
        rows.append({**page, "refresh of": "front in a browser", "ms": opened.front})
    idle = [Measured(*browser.refresh("front")) for _ in range(REPEATS)]
    rows.append(_row(trials, "nothing new", idle))
    for tab in TABS:
        found = []
        for _ in range(REPEATS):
            end_one(ledger, ledger.count(*ENDED))
            found.append(Measured(*browser.refresh(tab)))
        rows.append(_row(trials, tab, found))
    return rows


def _row(trials: int, what: str, found: list[Measured]) -> Row:
    return {
        "trials": trials,
        "refresh of": what,
        "ms": round(statistics.median(m.ms for m in found), 1),
        "worst ms": round(max(m.ms for m in found), 1),
        "kB": round(statistics.median(m.bytes for m in found) / 1000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--trials", type=int, action="append", help="a size (repeatable)")
    parser.add_argument("--quick", action="store_true", help="100 trials, for CI")
    parser.add_argument("--keep", type=Path, help="folder of the ledgers")
    parser.add_argument("--cpu-clock", action="store_true", help="CPU time of the server's thread")
    parser.add_argument("--out", type=Path, help="folder of the CSV (benchmarks/results)")
    args = parser.parse_args()
    sizes = args.trials or ([100] if args.quick else list(BARS))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="live-") as folder:
        for trials in sizes:
            rows += measure(filled(args.keep or Path(folder), trials), args.cpu_clock)
    print(format_table(rows))
    for row in rows:
        if row["refresh of"] == "first text in a browser" and row["trials"] == 1000:
            print(bar("ms to the first text at 1,000 trials", float(row["ms"] or 0), at_most=1000))
    for trials, limit in BARS.items():
        found = [float(r["ms"] or 0) for r in rows if r["refresh of"] == "front"]
        if trials in sizes:
            value = found[sizes.index(trials)]
            print(bar(f"ms of a refresh at {trials:,} trials", value, at_most=limit))
    what = "live" + "-cpu-clock" * args.cpu_clock + "-quick" * args.quick
    write_csv(rows, csv_path(what, PACKAGES, args.out))


if __name__ == "__main__":
    main()
