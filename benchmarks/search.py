"""How much of the true front a search finds, sampler by sampler, on problems whose front is known.

    python -m benchmarks.search                 # everything but what is slow to ask: hours
    python -m benchmarks.search --minutes 15    # what of it is not in the CSV yet, for so long
    python -m benchmarks.search --samplers gp --seeds 2 --trials 150   # Optuna's GP is slow to ask
    pip install botorch optuna-integration      # in an environment of their own
    python -m benchmarks.search --samplers qnehvi --seeds 2 --trials 150
    pip install syne-tune && python -m benchmarks.search --samplers moasha
    python -m benchmarks.search --quick         # two problems, two seeds: minutes
    python -m benchmarks.search --plot          # the picture and the bars from the kept CSV
    python -m benchmarks.search --asks          # the time of an ask, at 300 and 3,000 trials

Every search is the product's own ledger, sampler, searcher and scheduler, answered from a table
with simulated time (testbed/simulator.py). A search sees the accuracy of one seed; the share is
that of the expected accuracies of the plans it trained. Layers are relabelled at random."""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import benchmarks.botorch_sampler  # noqa: F401, registers qnehvi
from benchmarks.table import (
    RESULTS,
    Row,
    append_csv,
    bar,
    csv_path,
    format_table,
    read_csv,
    write_csv,
)
from bitfront.search.config.schema import EarlyStoppingSpec, SearchConfig
from bitfront.search.config.space import build_space
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.ledger import Ledger
from bitfront.search.ledger.states import TrialState
from bitfront.search.session.early_stopping import EarlyStopping
from bitfront.search.session.early_stopping import Row as Row_
from bitfront.search.session.session import Session
from bitfront.search.session.simulation import Replayed
from testbed import dense
from testbed.mixed import FAILS_AT, MIXED, MixedProblem
from testbed.problems import Problem as PlanProblem
from testbed.problems import synthetic, table
from testbed.simulator import simulate
from testbed.three import ThreeProblem, three

Problem = PlanProblem | MixedProblem | ThreeProblem
MARKS = (25, 50, 100, 150, 200)
OPTUNA = ("random", "tpe-independent", "tpe", "nsga2", "gp")
OURS = "free-cost"
STOPPING = "free-cost, early stopping"
PEER = "moasha"
QNEHVI = "qnehvi"
PACKAGES = ("optuna",)
# Trials, layers, settings, whether some failed, and the time an ask may take, in CPU ms.
ASKS = (
    (300, 18, 0, False, 100),
    (300, 18, 6, False, 100),
    (300, 18, 6, True, 100),
    (3000, 60, 6, False, 300),
    (300, 198, 6, False, 1000),
)


def problems() -> dict[str, Callable[[int], Problem]]:
    """By name; a seed gives the instance of a family, or the relabelling of a table."""
    found: dict[str, Callable[[int], Problem]] = {
        "digits": lambda seed: table("digits", seed),
        "fashion": lambda seed: table("fashion", seed),
    }
    for layers in (20, 40):
        for rough in (False, True):
            name = f"synthetic-{layers}-{'rough' if rough else 'smooth'}"
            found[name] = lambda seed, n=layers, r=rough: synthetic(n, r, seed)  # type: ignore[misc]
    found |= MIXED | {"three": three}
    return found | {f"dense-{name}": lambda seed, n=name: dense.dense(n) for name in dense.names()}


class Moasha(EarlyStopping):
    """Syne Tune's MOASHA with its default settings, asked at every epoch. It draws its points at
    random; which ones the product's random sampler decides."""

    def __init__(self, epochs: int, seed: int) -> None:
        from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA

        super().__init__(EarlyStoppingSpec(control=0), [])
        self._peer = MOASHA({}, ["loss", "cost"], time_attr="epoch", max_t=epochs, random_seed=seed)
        self._begun: set[str] = set()

    def gives_up(self, entry: Entry, row: Row_) -> float | None:
        trial = SimpleNamespace(trial_id=entry.id, config={})
        if entry.id not in self._begun:
            self._begun.add(entry.id)
            self._peer.on_trial_add(trial)
        told = {"epoch": row["epoch"], "loss": -row["val_accuracy"], "cost": entry.costs["flops"]}
        stop = self._peer.on_trial_result(trial, told) == "STOP"
        return row["epoch"] / entry.spec.task.epochs if stop else None


def run(
    problem: Problem,
    sampler: str,
    trials: int,
    workers: int,
    seed: int,
    ended: Callable[[Session], None] = lambda _session: None,
    **begun: Any,
) -> Replayed:
    """Run a search; `ended` is called after every trial, `begun` says what a session begins
    with."""
    search = problem.config.search.model_copy(
        update={
            "sampler": {STOPPING: OURS, PEER: "random"}.get(sampler, sampler),
            "trials": trials,
            "seed": seed,
            "early_stopping": EarlyStoppingSpec() if sampler == STOPPING else None,
        }
    )
    config = problem.config.model_copy(update={"search": search})
    peer = Moasha(config.task.epochs, seed) if sampler == PEER else None
    return simulate(config, problem.space(), problem.answer(seed), workers, peer, ended, **begun)


def shares(problem: Problem, replayed: Replayed, marks: Iterable[int]) -> dict[str, float]:
    """Share of the truth when so many whole trials' worth of epochs had been trained; a trial that
    failed counts as a whole one. Trials that were given up are no points of a front. Each share
    also from the stricter reference (`strict`)."""
    epochs, failed = problem.config.task.epochs, 0
    done = []
    for entry, used in zip(replayed.ended, replayed.epochs, strict=True):
        if entry.state == TrialState.FAILED:
            failed += epochs - FAILS_AT
        elif entry.state == TrialState.COMPLETE:
            done.append((entry, used + failed))
    found: dict[str, float] = {}
    for mark in marks:
        here = [entry for entry, used in done if used <= mark * epochs]
        found[f"at {mark}"] = problem.share_of(here)
        found[f"strict {mark}"] = problem.share_of(here, strict=True)
    return found


def measure(args: argparse.Namespace) -> None:
    """Append a row to the CSV for every search that it does not have, all samplers of a seed before
    the next seed, until all are there or the minutes are over."""
    known, began = problems(), time.monotonic()
    done = {_key(row) for row in read_csv(args.out)}
    for seed in range(args.seeds):
        for name in args.problems or known:
            for workers in args.workers:
                for sampler in args.samplers:
                    if (name, sampler, workers, seed) in done:
                        continue
                    if args.minutes and time.monotonic() - began > 60 * args.minutes:
                        print("the minutes are over: the same command goes on", flush=True)
                        return
                    row = one(known[name](seed), name, sampler, workers, seed, args.trials)
                    append_csv(row, args.out)
                    print(f"{name}, {sampler}, {workers}, seed {seed}", flush=True)


def one(problem: Problem, name: str, sampler: str, workers: int, seed: int, trials: int) -> Row:
    """A search as a row of the CSV."""
    # Stopped trials are cheap: as many as the same epochs pay for.
    asked = {STOPPING: 3 * trials // 2, PEER: 4 * trials}.get(sampler, trials)
    if problem.layers:
        asked = min(asked, 2**problem.layers)
    spent = time.process_time()
    whole = run(problem, sampler, asked, workers, seed)
    spent = time.process_time() - spent
    found = shares(problem, whole, [m for m in MARKS if m <= trials])
    failed = [e.state == TrialState.FAILED for e in whole.ended[:50]]
    row: Row = {"problem": name, "sampler": sampler, "workers": workers, "seed": seed}
    for column in ("at", "strict"):
        for mark in MARKS:
            share = found.get(f"{column} {mark}")
            row[f"{column} {mark}"] = None if share is None else round(share, 5)
    row["failed of 50"] = sum(failed)
    row["cpu ms"] = round(1000 * spent / len(whole.ended), 2)
    return row


def _key(row: Row) -> tuple[str, str, int, int]:
    """What tells a row from all others."""
    return str(row["problem"]), str(row["sampler"]), int(str(row["workers"])), int(str(row["seed"]))


def summary(rows: list[Row]) -> list[Row]:
    """Median and quartiles over the seeds."""
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        key = (str(row["problem"]), int(str(row["workers"])), str(row["sampler"]))
        groups.setdefault(key, []).append(row)
    found = []
    for (problem, workers, sampler), members in groups.items():
        line: Row = {"problem": problem, "workers": workers, "sampler": sampler}
        for mark in MARKS:
            values = _values(members, mark)
            line[f"at {mark}"] = _quartiles(values) if values else None
        line["seeds"] = len(members)
        line["cpu ms"] = statistics.median(float(str(m["cpu ms"])) for m in members)
        found.append(line)
    return found


def paired(rows: list[Row], column: str = "at") -> list[Row]:
    """Ours at 50 trials against every other sampler at 50 and at 150, seed by seed: the median
    difference, the seeds in which ours is ahead, and the probability of such ranks by chance
    (Wilcoxon's signed-rank test, two-sided)."""
    from scipy.stats import wilcoxon

    known = {
        (r["problem"], int(str(r["workers"])), r["sampler"], int(str(r["seed"]))): r for r in rows
    }
    found: list[Row] = []
    for problem, workers in dict.fromkeys((k[0], k[1]) for k in known):
        for rival in dict.fromkeys(k[2] for k in known if k[:2] == (problem, workers)):
            for mark in (50, 150) if rival in OPTUNA else ():
                pairs = [
                    (known.get((problem, workers, OURS, k[3])), known[k])
                    for k in known
                    if k[:3] == (problem, workers, rival)
                ]
                apart = [
                    ours[0] - others[0]
                    for one, other in pairs
                    if one is not None
                    and (ours := _values([one], 50, column))
                    and (others := _values([other], mark, column))
                ]
                if len(apart) < 5:
                    continue
                chance = wilcoxon(apart).pvalue if any(apart) else 1.0
                line: Row = {"problem": problem, "workers": workers, "rival": f"{rival} at {mark}"}
                line |= {"reference": column, "seeds": len(apart)}
                line |= {"ours at 50 is ahead by": round(statistics.median(apart), 4)}
                found.append(line | {"in": sum(a > 0 for a in apart), "p": float(f"{chance:.2g}")})
    return found


def _values(rows: list[Row], mark: int, column: str = "at") -> list[float]:
    cells = [row.get(f"{column} {mark}") for row in rows]
    return [float(str(cell)) for cell in cells if cell not in (None, "")]


def _quartiles(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


def bars(rows: list[Row]) -> list[str]:
    """Ours at 50 trials against the best Optuna sampler at 150; early stopping at half the epochs
    against the whole search without it."""
    lines = []
    for problem in dict.fromkeys(str(r["problem"]) for r in rows):
        for workers in sorted({int(str(r["workers"])) for r in rows}):

            def median(sampler: str, mark: int, p: str = problem, w: int = workers) -> float | None:
                members = [
                    r
                    for r in rows
                    if (r["problem"], int(str(r["workers"])), r["sampler"]) == (p, w, sampler)
                ]
                values = _values(members, mark)
                return statistics.median(values) if values else None

            rivals = {s: m for s in OPTUNA if (m := median(s, 150)) is not None}
            ours = median(OURS, 50)
            where = f"{problem}, {workers} at once"
            if ours is not None and rivals:
                best = max(rivals, key=lambda s: rivals[s])
                what = f"{where}: ours at 50, {best} at 150"
                lines.append(bar(what, ours, at_least=round(rivals[best], 4)))
            whole, half = median(OURS, 200), median(STOPPING, 100)
            if whole is not None and half is not None:
                what = f"{where}: early stopping at half the epochs of 200 trials"
                lines.append(bar(what, half, at_least=round(whole, 4)))
    return lines


def plot(rows: list[Row], path: Path) -> None:
    """Share of the truth over trials, a panel a problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from bitfront.dashboards.figures.style import PALETTE

    workers = max(int(str(r["workers"])) for r in rows)
    rows = [r for r in rows if int(str(r["workers"])) == workers]
    names = list(dict.fromkeys(str(r["problem"]) for r in rows))
    samplers = list(dict.fromkeys(str(r["sampler"]) for r in rows))
    figure, axes = plt.subplots(2, 3, figsize=(12, 7), squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        for color, sampler in zip(PALETTE, samplers, strict=False):
            members = [r for r in rows if (r["problem"], r["sampler"]) == (name, sampler)]
            marks = [m for m in MARKS if _values(members, m)]
            if not marks:
                continue
            spread = [
                statistics.quantiles(v, n=4, method="inclusive") if len(v) > 1 else [v[0]] * 3
                for v in (_values(members, m) for m in marks)
            ]
            axis.plot(marks, [s[1] for s in spread], "o-", color=color, label=sampler, ms=3)
            low, high = [s[0] for s in spread], [s[2] for s in spread]
            axis.fill_between(marks, low, high, color=color, alpha=0.15, lw=0)
        axis.set_title(name, fontsize=10)
        axis.set_ylim(top=1.005)
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("trials (of whole epochs)")
    for line in axes:
        line[0].set_ylabel("share of the true hypervolume")
    shown = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.suptitle(f"{workers} trials at once; median and quartiles over seeds", fontsize=11)
    figure.legend(
        list(shown.values()), list(shown), loc="lower center", ncol=len(shown), frameon=False
    )
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def asks() -> list[Row]:
    """The processor's time of one ask late in a long search, over plans alone and with settings
    beside them; and where every fifth trial has failed."""
    rows: list[Row] = []
    for trials, layers, settings, failed, limit in ASKS:
        ledger = _asked_space(layers, settings)
        rng = random.Random(0)
        for number in range(trials):
            _answer(ledger, rng, failed and number % 5 == 4)
        ledger.config.search.sampler = OURS
        times = []
        for _ in range(10):
            began = time.process_time()
            entry = ledger.ask()
            times.append(1000 * (time.process_time() - began))
            assert entry is not None
            _told(ledger, entry, rng)
        median = statistics.median(times[1:])
        known = len(next(iter(ledger.entries.values())).spec.plan)
        row: Row = {"trials": trials, "layers": known, "settings": settings, "failed": int(failed)}
        rows.append(row | {"ask ms": median, "first ask ms": times[0]})
        what = f"ask at {trials} trials of {known} layers, {settings} settings"
        what += ", with failures" if failed else ""
        print(bar(f"{what}, CPU ms", median, at_most=limit), flush=True)
    return rows


def _asked_space(layers: int, settings: int) -> Ledger:
    """An empty ledger whose space has about so many layers and settings."""
    space: dict[str, Any] = {"method": "bnn", "plan": {"per": "layer", "levels": ["F", "B"]}}
    if settings:
        space |= {
            "method": ["bnn", "bnn++"],
            "optimizer.lr": {"float": [1e-4, 1.0], "log": True},
            "optimizer.weight_decay": {"float": [1e-6, 1e-2], "log": True},
            "optimizer.momentum": {"float": [0.0, 0.99]},
            "batch_size": [32, 64, 128],
            "bnn.scale": ["none", "channel"],
        }
    model = {"name": "cresnet", "depth": layers + 2, "width": 4}
    config = SearchConfig.model_validate(
        {
            "name": f"asks-{layers}",
            "task": {"dataset": "digits", "model": model, "epochs": 3},
            "space": space,
            "search": {"sampler": "random", "trials": 10**6},
        }
    )
    return Ledger("memory:", config, build_space(config))


def _answer(ledger: Ledger, rng: random.Random, failed: bool) -> None:
    entry = ledger.ask()
    assert entry is not None
    if failed:
        ledger.tell(entry.id, TrialState.FAILED, failure="nan")
    else:
        _told(ledger, entry, rng)


def _told(ledger: Ledger, entry: Entry, rng: random.Random) -> None:
    """A trial is worse by every binary layer and by its distance from the best learning rate."""
    lost = 0.1 * entry.spec.plan.count("B") / len(entry.spec.plan)
    lost += 0.02 * abs(math.log10(entry.spec.task.optimizer.lr) + 2)
    last = {"epoch": 3, "val_accuracy": 0.9 - lost + 0.003 * rng.gauss(0, 1)}
    ledger.tell(entry.id, TrialState.COMPLETE, last, [last])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = [s for s in OPTUNA if s != "gp"] + [OURS, STOPPING]
    parser.add_argument(
        "--samplers", nargs="+", default=default, choices=[*OPTUNA, OURS, STOPPING, PEER, QNEHVI]
    )
    parser.add_argument("--problems", nargs="+", choices=list(problems()))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--minutes", type=float, help="begin no further search after so many")
    parser.add_argument("--quick", action="store_true", help="two problems, two seeds, 60 trials")
    parser.add_argument("--plot", action="store_true", help="only draw what the CSVs have")
    parser.add_argument("--asks", action="store_true", help="only the time of an ask")
    parser.add_argument("--out", type=Path, help="the CSV; default: benchmarks/results")
    args = parser.parse_args()
    if args.asks:
        write_csv(asks(), csv_path("search-asks", PACKAGES))
        return
    if args.quick:
        args.problems, args.seeds, args.trials = ["fashion", "synthetic-20-smooth"], 2, 60
    part = "-".join(args.samplers) if len(args.samplers) == 1 else "all"
    args.out = args.out or csv_path("search-quick" if args.quick else f"search-{part}", PACKAGES)
    if not args.plot:
        measure(args)
    if args.quick:
        print(format_table(summary(read_csv(args.out))))
        return
    rows = kept()
    print(format_table(summary(rows)))
    print("\n".join(bars(rows)))
    if tests := [*paired(rows), *paired(rows, "strict")]:
        print(format_table(tests))
    plot(rows, RESULTS / "search.png")


def kept() -> list[Row]:
    """The rows of all runs that are kept."""
    rows: list[Row] = []
    for path in sorted(RESULTS.glob("search-*cpu*.csv")):
        if not path.name.startswith(
            ("search-asks", "search-quick", "search-first", "search-second")
        ):
            rows += read_csv(path)
    return rows


if __name__ == "__main__":
    main()
