"""How well sums over layers predict the latency of whole networks: device tables of three networks,
each compared with 20 random plans that nothing was fitted to.

    python -m benchmarks.latency
    python -m benchmarks.latency --networks cresnet20 --levels FWB

Batch 1, one thread, the clock of the process: other programs disturb it little."""

from __future__ import annotations

import argparse
import time

from benchmarks.inference import NETWORKS
from benchmarks.table import Row, bar, csv_path, format_table, write_csv
from bitfront.trainables.runtime.additive import checked_plans, predicted
from bitfront.trainables.runtime.machine import cpu_name
from bitfront.trainables.runtime.measuring import measure
from bitfront.trainables.runtime.planned import Subject

MOST_ERROR, LEAST_RANK = 8.0, 0.95
CHECKS = 20


def table_of(name: str, levels: str, seconds: float) -> tuple[Row, list[Row]]:
    """What is said of one network, and its checked and uniform plans."""
    model, params, shape, _ = NETWORKS[name]
    subject = Subject(model, params, shape, 10)
    begun = time.process_time()
    times = measure(subject, name, levels, seconds=seconds, checks=CHECKS)
    spent = time.process_time() - begun
    count = len(times.layers)
    uniform = [letter * count for letter in times.levels]
    plans = [*uniform, *checked_plans(count, "".join(times.levels), CHECKS)]
    rows: list[Row] = []
    for plan in plans:
        found, said = times.whole[plan], predicted(times.layers, times.rest, plan)
        rows.append({"network": name, "plan": plan, "measured": found, "predicted": said})
        rows[-1]["error %"] = 100 * (said - found) / found
    errors = {str(row["plan"]): float(row["error %"] or 0) for row in rows}
    summary: Row = {
        "network": name,
        "F ms": times.whole[uniform[0]],
        "B ms": times.whole[uniform[-1]],
        "mean error %": times.agreement.error_pct,
        "largest %": max(abs(errors[plan]) for plan in plans[len(uniform) :]),
        "rank": times.agreement.rank,
        "all-F off by %": errors[uniform[0]],
        "all-B off by %": errors[uniform[-1]],
        "CPU s": spent,
    }
    return summary, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--levels", default="FB")
    parser.add_argument("--seconds", type=float, default=40.0, help="of measuring, per network")
    args = parser.parse_args()
    print(cpu_name())
    summaries, rows, bars = [], [], []
    for name in args.networks:
        summary, more = table_of(name, args.levels, args.seconds)
        summaries.append(summary)
        rows += more
        error, rank = float(summary["mean error %"] or 0), float(summary["rank"] or 0)
        bars.append(bar(f"{name}, mean error in %", error, at_most=MOST_ERROR))
        bars.append(bar(f"{name}, rank correlation", rank, at_least=LEAST_RANK))
        print(bars[-2], bars[-1], sep="\n", flush=True)
    print(format_table(summaries))
    print(*bars, sep="\n")
    write_csv(rows, csv_path("latency", ["torch", "numba"]))


if __name__ == "__main__":
    main()
