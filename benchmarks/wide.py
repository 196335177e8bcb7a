"""What a search on 1,000 slots asks of its driver, with trials that are simulated.

    python -m benchmarks.wide                                # 1,000 slots, trials of 10 minutes
    python -m benchmarks.wide --trials 2000 --ledger postgresql --tracking server
    python -m benchmarks.wide --minutes 1                    # where it saturates
    python -m benchmarks.wide --random-until 19000           # the sampler for the last 1,000 only
    python -m benchmarks.wide --profile --trials 2000

Everything is real but the training and the clock: the session, the sampler, the ledger on SQLite or
PostgreSQL, the tracker and MLflow, on SQLite or behind a server. The driver is one server in a
queue of results: what a call of it takes in CPU seconds (its own, and the database's, which it
waits for) moves a virtual clock on, and a slot stays empty until the driver has taken its result
and chosen its next trial. The tracker is another one: it delivers once a second of that clock, what
it takes of Python's lock delays the driver. CPU times do not depend on what else the machine does;
what they leave out is added: RAY_TRIAL, RAY_EPOCH (measured by `benchmarks.scale --ray`) and WAIT
(an estimate)."""

from __future__ import annotations

import argparse
import contextlib
import csv
import heapq
import itertools
import os
import random
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.table import Row, bar, csv_path, format_table, write_csv

if TYPE_CHECKING:
    from bitfront.search.ledger.entry import Entry
    from bitfront.search.session.session import Session
    from bitfront.search.tracking.tracker import Tracker

T = TypeVar("T")
SEARCH = """\
name: wide
task:
  dataset: digits
  model: {{name: mlp, depth: {depth}, width: 16}}
  epochs: {epochs}
space:
  method: [bnn, bc]
  plan: {{per: layer, levels: [F, B]}}
  optimizer.lr: {{float: [0.001, 0.1], log: true}}
search: {{seed: 0}}
resources: {{cpus: 1}}
"""
PACKAGES = ("ray", "optuna", "mlflow")
# Seconds of the driver's CPU for Ray Tune, by trial and by epoch: more than the 0.0136 and 0.0018
# that were measured with 40 slots.
RAY_TRIAL, RAY_EPOCH = 0.02, 0.003
# Seconds that a transaction of the ledger waits for the disk or the network; an estimate.
WAIT = 0.005
# The durations of trials are log-normal around their mean, with this deviation.
SPREAD = 0.3
FLUSH = 1.0
NOTE = 20.0
KINDS = ("ask", "epochs", "end", "MLflow")


def results(entry: Entry, epochs: int) -> list[dict[str, Any]]:
    """The rows a trial would report: a loss for each binary layer, for some pairs of them and for a
    learning rate away from the best one, and noise of its own."""
    plan = [level == "B" for level in entry.spec.plan]
    rng = random.Random(7)
    losses = [(rng.lognormvariate(0, 0.9), rng.gauss(0, 0.5)) for _ in plan]
    lost = sum(alone for (alone, _), binary in zip(losses, plan, strict=True) if binary)
    both = [a and b for a, b in itertools.pairwise(plan)]
    pairs = sum(more for (_, more), two in zip(losses, both, strict=False) if two)
    rate = float(entry.drawn.get("optimizer.lr", 0.01))
    own = random.Random(entry.id)
    end = 0.95 - 0.4 * (lost + pairs) / len(plan) / 1.5 - 0.05 * abs(rate - 0.02) / 0.08
    end = min(1.0, max(0.1, end + own.gauss(0, 0.003)))
    found = []
    for n in range(1, epochs + 1):
        accuracy = end * (1 - 0.5**n) / (1 - 0.5**epochs)
        found.append({"epoch": n, "train_loss": 1 / n, "val_accuracy": accuracy, "val_loss": 0.5})
    return found


@dataclass
class Servers:
    """The processes whose CPU time counts beside the driver's own."""

    pids: list[int] = field(default_factory=list)
    _family: list[Any] = field(default_factory=list)
    _seen: float = 0.0

    def seconds(self) -> float:
        """CPU seconds of these processes and all their children so far."""
        import psutil

        if not self.pids:
            return 0.0
        if time.monotonic() > self._seen + 5:
            roots = [psutil.Process(pid) for pid in self.pids]
            self._family = [p for root in roots for p in (root, *root.children(recursive=True))]
            self._seen = time.monotonic()
        total = 0.0
        for process in self._family:
            with contextlib.suppress(psutil.NoSuchProcess):
                used = process.cpu_times()
                total += used.user + used.system + used.children_user + used.children_system
        return total


class Simulation:
    """A driver, its slots and a clock."""

    def __init__(
        self,
        session: Session,
        slots: int,
        seconds: float,
        epochs: int,
        database: Servers,
        tracking: Servers,
    ) -> None:
        self.session, self.slots, self.seconds, self.epochs = session, slots, seconds, epochs
        self.database, self.tracking = database, tracking
        self.tracker: Tracker | None = session.tracker
        self.clock = 0.0
        """when the driver has done what it was told so far"""
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self.servers: defaultdict[str, float] = defaultdict(float)
        self.idle = 0.0
        self.asked = self.ended = 0
        self.latest = 0.0
        """how far the driver was behind a result, at most"""
        self.longest_flush = 0.0
        self._events: list[tuple[float, int, str, float, list[dict[str, Any]], int]] = []
        self._numbers = itertools.count()
        self._rng = random.Random(0)
        self._flush_at = self._noted = 0.0

    def _spend(self, kind: str, action: Callable[[], T], more: float = 0.0) -> T:
        """Do something as the driver; the clock moves on by what it takes."""
        own, theirs = time.process_time(), self.database.seconds()
        try:
            return action()
        finally:
            own, theirs = time.process_time() - own, self.database.seconds() - theirs
            self.cpu[kind] += own
            self.servers["ledger"] += theirs
            self.clock += own + theirs + more

    def _begin(self, empty_since: float) -> bool:
        """Ask for a trial for a slot; False where there is none."""
        entry = self._spend("ask", self.session.ask, WAIT + RAY_TRIAL)
        if entry is None:
            return False
        self.asked += 1
        self.idle += self.clock - empty_since
        mean = self.seconds * self._rng.lognormvariate(-(SPREAD**2) / 2, SPREAD)
        rows = results(entry, self.epochs)
        pace = mean / len(rows)
        self._push(self.clock + pace, entry.id, pace, rows, 0)
        return True

    def _push(self, at: float, trial: str, pace: float, rows: Any, done: int) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), trial, pace, rows, done))

    def run(self, ended: Callable[[Simulation], bool | None]) -> None:
        """Play the search; `ended` is called after every trial, and says when to leave the rest."""
        for _ in range(self.slots):
            self._begin(0.0)
        over: bool | None = False
        while self._events and not over:
            at, _, trial, pace, rows, done = heapq.heappop(self._events)
            self.clock = max(self.clock, at)
            self.latest = max(self.latest, self.clock - at)
            self._deliver()
            row = {**rows[done], "done": done + 1 == len(rows)}
            epoch = partial(self._epoch, trial, row)
            if not row["done"] and not self._spend("epochs", epoch, RAY_EPOCH):
                self._push(at + pace, trial, pace, rows, done + 1)
                continue
            row["history"] = rows[: done + 1]
            self._spend("end", partial(self.session.finish, trial, row), WAIT)
            self.ended += 1
            self._begin(at)
            over = ended(self)

    def _epoch(self, trial: str, row: dict[str, Any]) -> bool:
        """Take the result of an epoch; whether early stopping ends the trial with it."""
        stops = self.session.gives_up(trial, row)
        if not stops:
            self.session.report(trial, row)
        return stops

    def _deliver(self) -> None:
        """Let the tracker deliver what the driver has told it, when its second is over."""
        tracker = self.tracker
        if tracker is None or self._flush_at > self.clock or not tracker.started:
            return
        if self.clock > self._noted + NOTE:
            self._noted, tracker._described = self.clock, 0.0
        own, theirs = time.process_time(), self.tracking.seconds()
        tracker._flush()
        own, theirs = time.process_time() - own, self.tracking.seconds() - theirs
        self.cpu["MLflow"] += own
        self.servers["MLflow"] += theirs
        self.longest_flush = max(self.longest_flush, own + theirs)
        self._flush_at = self.clock + own + theirs + FLUSH
        self.clock += own

    @property
    def waiting(self) -> int:
        """Results that the driver has not looked at."""
        return sum(event[0] <= self.clock for event in self._events)


@dataclass
class Marks:
    """Makes a row whenever so many trials have ended, of what happened since the row before."""

    simulation: Simulation
    sizes: Sequence[int]
    told: Row
    rows: list[Row] = field(default_factory=list)
    _before: dict[str, float] = field(default_factory=dict)

    def _state(self) -> dict[str, float]:
        now = self.simulation
        taken = {f"cpu {k}": now.cpu[k] for k in KINDS}
        taken |= {f"server {k}": v for k, v in now.servers.items()}
        return taken | {"clock": now.clock, "idle": now.idle, "ended": now.ended, "n": now.asked}

    def look(self, now: Simulation) -> bool:
        """Make a row if it is time for one; whether it was the last."""
        if now.ended not in self.sizes:
            return False
        state = self._state()
        part = {k: v - self._before.get(k, 0.0) for k, v in state.items()}
        trials = part["ended"]
        # In the first rows slots are filled that nobody had emptied.
        asked = max(1.0, part["n"])
        row: Row = {
            **self.told,
            "trials": now.ended,
            "busy %": 100 * (1 - part["idle"] / (now.slots * part["clock"])),
        }
        row["busy % so far"] = 100 * (1 - now.idle / (now.slots * now.clock))
        row["ends a s"] = trials / part["clock"]
        row["driver CPU ms/trial"] = 1000 * sum(part[f"cpu {k}"] for k in KINDS) / trials
        row["ask ms"] = 1000 * part["cpu ask"] / asked
        row["epochs ms"] = 1000 * part["cpu epochs"] / trials
        row["end ms"] = 1000 * part["cpu end"] / trials
        row["MLflow ms"] = 1000 * part["cpu MLflow"] / trials
        row["ledger server ms"] = 1000 * part.get("server ledger", 0.0) / trials
        row["MLflow server ms"] = 1000 * part.get("server MLflow", 0.0) / trials
        row["asks a s, at most"] = asked / part["cpu ask"]
        row["late by s, at most"] = now.latest
        row["results waiting"] = now.waiting
        row["longest delivery s"] = now.longest_flush
        row["MLflow lacks"] = now.tracker.behind if now.tracker else None
        row["front"] = len(now.session.front)
        row["driver MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        row["simulated h"] = now.clock / 3600
        self._before, now.latest, now.longest_flush = state, 0.0, 0.0
        self.rows.append(row)
        print(row, file=sys.stderr, flush=True)
        return now.ended == max(self.sizes)


@contextlib.contextmanager
def ledger_server(kind: str) -> Iterator[tuple[str | None, Servers]]:
    """The URL of a fresh database, None for SQLite, and its processes."""
    if kind == "sqlite":
        yield None, Servers()
        return
    from testbed.rig import Postgres

    server = Postgres()
    try:
        assert server.process is not None
        yield server.url, Servers([server.process.pid])
    finally:
        server.remove()


@contextlib.contextmanager
def tracking_store(kind: str, folder: Path) -> Iterator[tuple[list[str], Servers]]:
    """Settings of the search, and the processes of its MLflow server."""
    if kind != "server":
        yield (["tracking.enabled=false"] if kind == "none" else []), Servers()
        return
    from testbed.rig import free_port, listens, tracking_server, wait_for

    port = free_port()
    with tracking_server(folder, port, sys.executable) as process:
        wait_for(lambda: listens(port), 120, "MLflow")
        yield [f"tracking.uri=http://127.0.0.1:{port}"], Servers([process.pid])


def random_first(session: Session, count: int) -> None:
    """Let the first trials be chosen at random, whatever the sampler: long ledgers at low cost."""
    proposals = session.ledger.proposals
    inner, make = proposals._prepare_sampler, proposals.config
    search = make.search.model_copy(update={"sampler": "random"})
    cheap = make.model_copy(update={"search": search})

    def prepare(number: int, attempt: int, seed: int) -> None:
        proposals.config = cheap if number < count else make
        inner(number, attempt, seed)

    proposals._prepare_sampler = prepare  # type: ignore[method-assign]


def simulate(folder: Path, args: argparse.Namespace) -> list[Row]:
    """The search of these options, a row for every mark."""
    from bitfront.search.config.load import load_text
    from bitfront.search.ledger.folder import SearchFolder
    from bitfront.search.session.session import Session
    from bitfront.search.tracking.tracker import Tracker

    with (
        ledger_server(args.ledger) as (url, database),
        tracking_store(args.tracking, folder) as (tracked, tracking),
    ):
        settings = [*tracked, f"search.trials={args.trials}", f"search.sampler={args.sampler}"]
        settings += ["search.early_stopping=true"] if args.early_stopping else []
        text = SEARCH.format(depth=args.layers + 1, epochs=args.epochs)
        config, space = load_text(text, "wide.yaml", settings)
        place = SearchFolder(folder / "runs" / "wide")
        place.path.mkdir(parents=True)
        place.config_file.write_text(config.dump())
        if url is not None:
            place.set_ledger_url(url)
        tracker = None
        if args.tracking != "none":
            tracker = Tracker(config, place.identity, place.path.parent)
        session = Session(config, space, place, tracker)
        if args.random_until:
            random_first(session, args.random_until)
        simulation = Simulation(
            session, args.slots, 60 * args.minutes, args.epochs, database, tracking
        )
        told: Row = {
            "sampler": args.sampler + (", early stopping" if args.early_stopping else ""),
            "random until": args.random_until,
            "slots": args.slots,
            "minutes": args.minutes,
            "epochs": args.epochs,
            "layers": args.layers,
            "ledger": args.ledger,
            "MLflow": args.tracking,
        }
        marks = Marks(simulation, [m for m in args.marks if m <= args.trials], told)
        simulation.run(marks.look)
        session.close()
        return marks.rows


def kept(path: Path, rows: Sequence[Row]) -> list[Row]:
    """What the CSV has of other searches."""
    if not path.exists():
        return []
    names = list(rows[0])[: list(rows[0]).index("trials")]
    with path.open(newline="", encoding="utf-8") as old:
        found: list[Row] = [dict(row) for row in csv.DictReader(old)]
    new = {tuple(str(row[n]) for n in names) for row in rows}
    return [row for row in found if tuple(str(row.get(n)) for n in names) not in new]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20000)
    parser.add_argument("--marks", type=int, nargs="*", default=[1000, 2000, 5000, 10000, 19000])
    parser.add_argument("--slots", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--sampler", default="free-cost")
    parser.add_argument("--random-until", type=int, default=0, metavar="TRIAL")
    parser.add_argument("--early-stopping", action="store_true")
    parser.add_argument("--ledger", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--tracking", choices=["sqlite", "server", "none"], default="sqlite")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # The clock is virtual: that a server answers late on a busy machine does not count.
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "600"
    with tempfile.TemporaryDirectory(prefix="wide") as folder:
        if args.profile:
            from benchmarks.overhead import _profiled

            _profiled(lambda: simulate(Path(folder), args))
            return
        rows = simulate(Path(folder), args)
    print(format_table(rows))
    print(bar("slots that train, %", float(rows[-1]["busy % so far"] or 0), at_least=97))
    path = args.out or csv_path("wide", PACKAGES)
    write_csv([*kept(path, rows), *rows], path)


if __name__ == "__main__":
    main()
