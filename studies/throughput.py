"""What so many minutes of every core give, to bitfront and to the stock combination: trials,
epochs, share of the wall-clock that is training, hypervolume. A measurement is made in one go: one
that was interrupted begins anew."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from typing import Any

import bitfront as bf
from bitfront.search.front import hypervolume_share
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.results import ideal_point
from studies.steps import Place, Settings, Step, cores, run, settings_of
from studies.stock import command, read


def throughput(file: str, minutes: int, rehearsed: Sequence[str], settings: Settings) -> Step:
    """Both of them, one after the other."""

    def do(place: Place) -> None:
        root = place.home / "throughput"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        seconds = 60 if place.rehearsal else 60 * minutes
        changes = [*settings(place), *(rehearsed if place.rehearsal else ())]
        path = place.folder / file
        began = time.time()
        limits = [f"search.hours={seconds / 3600}", "search.trials=1000000"]
        words = settings_of([*changes, *limits, f"resources.concurrent={cores()}"])
        place.bitfront("run", path, "--name", "ours", "--home", root, *words)
        ours = bf.open("ours", root).results
        wall = time.time() - began
        complete = [e for e in ours.entries if e.state == TrialState.COMPLETE]
        began = time.time()
        run(command(path, root.absolute() / "stock", changes, "--seconds", seconds), place.home)
        stock_wall = time.time() - began
        stock = read(root / "stock")
        names = list(ours.config.objectives)

        def share(points: Iterable[Sequence[float]]) -> float:
            ideal, objectives = ideal_point(ours.config), ours.config.front_objectives
            return hypervolume_share(list(points), ours.reference, ideal, objectives)

        rows = {
            "bitfront": row(
                wall,
                [len(e.history) for e in complete],
                [e.seconds or 0.0 for e in complete],
                share(e.values for e in complete if e.values is not None),
            ),
            "stock": row(
                stock_wall,
                [r["epochs"] for r in stock],
                [r["train_seconds"] for r in stock],
                share([r[name] for name in names] for r in stock),
            ),
        }
        place.keep("throughput", {"minutes": seconds / 60, "cores": cores(), "rows": rows})

    what = f"{minutes} minutes of every core for bitfront, as many for the stock combination"
    return Step("throughput", what, 2 * minutes * cores(), do)


def row(
    wall: float, epochs: Sequence[int], seconds: Sequence[float], share: float
) -> dict[str, Any]:
    """The wall-clock is that of the whole command, the start of Python and Ray included; trials
    that were not finished do not count."""
    return {
        "wall_seconds": round(wall, 1),
        "trials": len(epochs),
        "epochs": sum(epochs),
        "training_share": sum(seconds) / (wall * cores()),
        "hypervolume_share": share,
    }
