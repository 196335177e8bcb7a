"""Faults at random moments, with real processes: what does a search lose?

    python -m benchmarks.chaos                        # one search more for every fault
    python -m benchmarks.chaos "driver killed" ...    # for these
    python -m benchmarks.chaos --until 50             # until each has struck so often
    python -m benchmarks.chaos --table                # only the table of what has been measured

A search of tiny trials runs while a fault of `benchmarks.strikes` strikes it several times;
afterwards `testbed.invariants` says what does not hold. Each search is a row of the CSV, which
only grows: repetitions add up over sittings, and two sittings at once may share it. Strikes are
counted as they happen. Whoever mends what was broken deletes the rows of that fault and measures it
again: the table is about the code beside it."""

from __future__ import annotations

import argparse
import csv
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.strikes import FAULTS, SEARCH, TRIALS, Stage
from benchmarks.table import RESULTS, Row, append_csv, format_table
from testbed import faulty
from testbed.invariants import broken, undisturbed
from testbed.rig import ROOT, CannotStrikeError, Cluster, User, end

PATIENCE = 1800.0
HASTY = 0.2
INTERRUPTED = 130
RESULT = RESULTS / "chaos.csv"
PRODUCT = ("search", "spaces", "trainables")


class DriverError(Exception):
    """The driver ended in a way nobody asked for."""


def run(stage: Stage) -> None:
    """The search to its end while it is struck."""
    faulty.tell(stage.cluster.folder, stage.pace, **stage.faults)
    deadline = time.monotonic() + PATIENCE
    stage.strikes, share = len(stage.faults), TRIALS // stage.turns
    words = ["run", "chaos.yaml", *stage.options, "--set", f"search.trials={share}"]
    for turn in range(1, stage.turns + 1):
        _take_turn(stage, words, turn * share, deadline)
        stage.between()
        words = ["extend", "chaos", "--trials", f"+{share}"]
    if stage.afterwards:
        stage.user.call(*stage.afterwards)


def _take_turn(stage: Stage, words: list[str], trials: int, deadline: float) -> None:
    """A driver until the search has so many trials; one that a strike ended is started again."""
    while True:
        before = stage.strikes
        process = stage.user.start(*words)
        said: list[str] = []
        reader = threading.Thread(target=said.extend, args=[process.stdout], daemon=True)
        reader.start()  # or a driver that says much would wait for ever
        _strike_while_running(stage, trials, deadline)
        _ended(process)
        reader.join(30)
        if process.returncode == 0:
            return
        # Before its first trial a driver may say that it cannot begin.
        cannot = process.returncode == 2 and not stage.user.entries()
        asked_for = (stage.restarts or cannot) and stage.strikes > before
        told = "".join(said)[-2000:]
        if stage.gently and not _ended_gently(process.returncode, told):
            asked_for = False
        if not asked_for or time.monotonic() > deadline:
            raise DriverError(f"the driver ended with {process.returncode}: {told}")
        if stage.user.search.exists:  # it may have been struck before it was there
            words = ["resume", "chaos"]


def _ended_gently(code: int, told: str) -> bool:
    """As with ctrl-C. A second signal may come when it has said so and is leaving."""
    left = code in (-signal.SIGINT, -signal.SIGTERM) and "nterrupted" in told
    return (code == INTERRUPTED or left) and "Traceback" not in told


def _ended(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        process.wait(30)


def _strike_while_running(stage: Stage, trials: int, deadline: float) -> None:
    """After the last trial there is nothing to break. A strike comes some time after an epoch has
    begun, or workers that start slowly would never get anywhere; but for one in five, so that a
    driver or a worker that is just starting is struck too."""
    process, seen = stage.user.process, len(faulty.audit(stage.cluster.folder))
    assert process is not None
    following: float | None = None
    hasty = stage.rng.random() < HASTY
    while process.poll() is None:
        time.sleep(0.3)
        now = time.monotonic()
        if now > deadline:
            end(process, signal.SIGABRT)
        if following is None:
            if hasty or len(faulty.audit(stage.cluster.folder)) > seen:
                following = now + stage.rng.expovariate(1 / stage.pause)
        elif now >= following and stage.user.ended() < trials:
            stage.strikes += stage.fire()
            seen, following = len(faulty.audit(stage.cluster.folder)), None
            hasty = stage.rng.random() < HASTY


def search_under(name: str, cluster: Cluster, folder: Path, seed: int, reference: Any) -> Row:
    """One search that the fault strikes, as a row."""
    user = User(folder / "user", SEARCH, cluster.env, cluster.address)
    ids = [entry.id for entry in reference]
    stage = Stage(folder, cluster, user, ids, random.Random(f"{name}/{seed}"))
    stage.store = f"sqlite:///{user.folder / 'runs' / 'mlflow.db'}"
    began, problems = time.monotonic(), []
    try:
        with FAULTS[name](stage):
            run(stage)
            problems = broken(user, reference, stage.cluster, stage.store, stage.may_fail)
    except (DriverError, AssertionError, subprocess.TimeoutExpired) as error:
        problems = [str(error)]
        traceback.print_exc()
    finally:
        user.leave()
    for problem in problems:
        print(f"  BROKEN {problem}")
    return {
        "fault": name,
        "seed": seed,
        "strikes": stage.strikes,
        "trials": TRIALS,
        "broken": len(problems),
        "what": " | ".join(" ".join(p.split())[:200] for p in problems[:3]),
        "seconds": round(time.monotonic() - began, 1),
        "code": _code(),
    }


@cache
def _code() -> str:
    """The last commit of the product that is measured, with a + where it has been changed since."""
    git = ["git", "-C", str(ROOT)]
    commit, changed = (
        subprocess.run(
            [*git, *words, "--", *PRODUCT], capture_output=True, text=True, check=False
        ).stdout
        for words in (["log", "-1", "--format=%h"], ["status", "--porcelain"])
    )
    return commit.strip() + ("+" if changed else "")


def measured() -> list[Row]:
    if not RESULT.exists():
        return []
    with RESULT.open(newline="", encoding="utf-8") as rows:
        return [
            {
                k: int(v) if k in ("seed", "strikes", "trials", "broken") else v
                for k, v in row.items()
            }
            for row in csv.DictReader(rows)
        ]


def table(rows: Sequence[Row]) -> list[Row]:
    """A row a fault: how often it struck, and how many searches had something broken."""
    found: list[Row] = []
    for name, function in FAULTS.items():
        mine = [row for row in rows if row["fault"] == name]
        found.append(
            {
                "fault": name,
                "what happens": " ".join((function.__doc__ or "").split()),
                "searches": len(mine),
                "strikes": struck(rows, name),
                "code": ", ".join(dict.fromkeys(str(row["code"]) for row in mine)),
                "broken searches": sum(int(row["broken"] or 0) > 0 for row in mine)
                if mine
                else None,
            }
        )
    return found


def struck(rows: Sequence[Row], name: str) -> int:
    return sum(int(row["strikes"] or 0) for row in rows if row["fault"] == name)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("faults", nargs="*", help=f"of: {', '.join(FAULTS)} (default: all)")
    parser.add_argument(
        "--until", type=int, metavar="N", help="go on until each has struck N times in all"
    )
    parser.add_argument("--table", action="store_true", help="run nothing, print what there is")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the searches")
    args = parser.parse_args(argv)
    names = args.faults or list(FAULTS)
    unknown = sorted(set(names) - set(FAULTS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    if not args.table:
        for number in (signal.SIGINT, signal.SIGTERM):  # both take the cluster down with them
            signal.signal(number, signal.default_int_handler)
        measure(names, args.until, args.keep)
    print(format_table(table(measured())))


def measure(names: Sequence[str], until: int | None, keep: bool) -> None:
    """Append a row to the CSV for every search, at once: what is measured is not lost."""
    reference = undisturbed(SEARCH)
    work = Path(tempfile.mkdtemp(prefix="chaos"))
    cluster = Cluster(work / "cluster")
    left = list(names)
    try:
        cluster.start_head()
        while left:
            for name in list(left):
                seed = sum(row["fault"] == name for row in measured())
                folder = work / f"{name.replace(' ', '-')}-{seed}"
                try:
                    row = search_under(name, cluster, folder, seed, reference)
                except CannotStrikeError as reason:
                    print(f"{name}: left out, {reason}")
                    left.remove(name)
                    continue
                print({k: v for k, v in row.items() if k != "what"}, flush=True)
                append_csv(row, RESULT)
                if until is None or struck(measured(), name) >= until:
                    left.remove(name)
                if not keep:
                    shutil.rmtree(folder, ignore_errors=True)
    finally:
        cluster.stop()
        if not keep:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
