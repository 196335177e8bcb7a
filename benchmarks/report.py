"""How fast a search becomes something to look at: its ledger read, its report made, its size.

    python -m benchmarks.report                # 1,000 and 5,000 trials
    python -m benchmarks.report --quick        # 100 trials, the size for CI
    python -m benchmarks.report --keep DIR     # keep the searches, to open them or to measure again

The ledger is written by the product's own session, as a search would; only the training is made up:
curves that rise with the share of layers in full precision, some failures, some early stops, some
points with a second seed."""

from __future__ import annotations

import argparse
import math
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.table import Row, bar, csv_path, format_table, write_csv
from bitfront.search.config.load import load
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.session.session import Session
from bitfront.trainables.files import write_atomically

SEARCH = """\
name: made-up
description: A made-up search, to measure how fast pictures of it are made
task:
  dataset: digits
  model: {name: cresnet, depth: 20, width: 8}
  epochs: 12
space:
  method: [bnn, bnn+, bnn++, bc]
  plan: {per: layer, levels: [F, W, B]}
  optimizer.lr: {float: [0.001, 0.1], log: true}
  loss.label_smoothing: {float: [0.0, 0.3]}
  bnn+.mu: {float: [2, 5], log: true}
search: {sampler: random, confirm: 0.1, early_stopping: true, seed: 0}
"""
FAILURES = (("nan", "the loss is nan at epoch 2"), ("oom", "CUDA out of memory"))
PACKAGES = ("optuna", "plotly")


def made_up_search(folder: Path, trials: int) -> SearchFolder:
    """A finished search of this many trials in `folder`; one that is there already is kept."""
    place = SearchFolder(folder / f"made-up-{trials}")
    if place.exists:
        return place
    source = folder / "made-up.yaml"
    write_atomically(source, SEARCH)
    config, space = load(source, [f"search.trials={trials}"], place.name)
    write_atomically(place.config_file, config.dump())
    session = Session(config, space, place, tracker=None)
    rng = random.Random(0)
    while (entry := session.ask()) is not None:
        _train(session, entry, rng)
    session.close()
    return place


def _train(session: Session, entry: Entry, rng: random.Random) -> None:
    if rng.random() < 0.02:
        session.fail(entry.id, *rng.choice(FAILURES))
        return
    epochs = entry.spec.task.epochs
    kept = sum({"F": 1.0, "W": 0.9, "B": 0.6}[level] for level in entry.spec.plan)
    end = 0.55 + 0.4 * kept / len(entry.spec.plan) + rng.gauss(0, 0.01)
    end -= 0.02 * abs(math.log10(entry.spec.task.optimizer.lr / 0.01))
    rows: list[dict[str, float]] = []
    for epoch in range(1, epochs + 1):
        value = min(1.0, end * (1 - math.exp(-3 * epoch / epochs)) + rng.gauss(0, 0.01))
        rows.append({"epoch": epoch, "train_loss": 2.3 * (1 - value), "val_accuracy": value})
        result: dict[str, Any] = {**rows[-1], "done": epoch == epochs}
        if session.gives_up(entry.id, result):
            break
        session.report(entry.id, result)
    session.finish(entry.id, {**rows[-1], "history": rows})


def measure(folder: Path, trials: int) -> Row:
    """Reading and drawing in this process, imports included when it is the first one."""
    from bitfront.dashboards.pages.report import report_of
    from bitfront.search.results.reader import SearchReader

    place = made_up_search(folder, trials)
    reader = SearchReader(place)
    wall, cpu = time.perf_counter(), time.process_time()
    view = reader.read()
    read, read_cpu = time.perf_counter() - wall, time.process_time() - cpu
    page = report_of(view)
    made, made_cpu = time.perf_counter() - wall, time.process_time() - cpu
    out = place.path / "report.html"
    out.write_text(page, encoding="utf-8")
    return {
        "trials": len(view.trials),
        "front": len(view.front),
        "read s": read,
        "read CPU s": read_cpu,
        "report s": made,
        "report CPU s": made_cpu,
        "megabytes": len(page.encode()) / 1e6,
        "first figure s": first_figure(out),
    }


def first_figure(page: Path) -> float | None:
    """Seconds until the front can be used, in a headless browser; None where there is none."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        return None
    try:
        with sync_playwright() as driver:
            found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
            browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
            opened = browser.new_page()
            opened.set_default_timeout(120_000)
            started = time.perf_counter()
            opened.goto(page.as_uri())
            opened.wait_for_selector("#front .main-svg")
            seconds = time.perf_counter() - started
            browser.close()
            return seconds
    except Error:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="100 trials")
    parser.add_argument("--trials", type=int, nargs="+", help="instead of 1,000 and 5,000")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make or find the searches here")
    args = parser.parse_args()
    sizes = args.trials or ([100] if args.quick else [1000, 5000])
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [measure(folder, trials) for trials in sizes]
    print(format_table(rows))
    for row in rows:
        seconds, size = float(row["report s"] or 0), float(row["megabytes"] or 0)
        print(bar(f"report of {row['trials']} trials, seconds", seconds, at_most=10))
        print(bar(f"report of {row['trials']} trials, megabytes", size, at_most=8))
    quick = "-quick" if args.quick else ""
    write_csv(rows, csv_path(f"report{quick}", PACKAGES))


if __name__ == "__main__":
    main()
