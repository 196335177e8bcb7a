"""Faults in the workers of a cluster under test: every worker logs each epoch it trains, and chosen
trials fail in a chosen way. Ray runs `install` when a worker starts; bitfront itself has no code
for this.

The environment variable BITFRONT_CHAOS names a folder with two files. `faults.json` is `{trial:
{"kind": ..., "epoch": n}, "pace": s}`: which trial fails how and in which epoch, and by how many
seconds every epoch is prolonged. `audit.log` has one line per epoch: trial, epoch, time of its
beginning, process id."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = "BITFRONT_CHAOS"
HOOK = {"__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "testbed.faulty.install"}
LEAK_BYTES = 64 * 1024**2
PRINT_BYTES = 1024**3


class Trained(NamedTuple):
    """One epoch that a worker has begun."""

    trial: str
    epoch: int
    began: float
    worker: int


def install() -> None:
    """Wrap `Worker._epoch`, so that it logs the epoch and fails as `faults.json` says."""
    import bitfront.trainables.training.loop  # now rather than in the first epoch, which is timed  # noqa: F401
    from bitfront.trainables.worker.worker import Worker

    train = Worker._epoch

    def epoch(self: Worker) -> dict[str, Any]:
        folder, trial = Path(os.environ[FOLDER]), self._config["trial"]
        number = self._training.epochs_done + 1
        note = Trained(trial, number, time.time(), os.getpid())
        with (folder / "audit.log").open("a") as out:
            out.write(" ".join(map(str, note)) + "\n")
        faults = _faults(folder)
        time.sleep(faults.get("pace", 0.0))
        fault = faults.get(trial)
        if fault is not None and number >= fault["epoch"]:
            misbehave(fault["kind"], self._training)
        return train(self)

    Worker._epoch = epoch  # type: ignore[method-assign]


def misbehave(kind: str, training: Any) -> None:
    if kind == "raise":
        raise RuntimeError("told to raise")
    if kind == "nan":
        for parameter in training.model.parameters():
            parameter.data.fill_(float("nan"))
    elif kind == "hang":
        while True:
            time.sleep(3600)
    elif kind == "leak":
        kept = []
        while True:
            kept.append(bytearray(os.urandom(1) * LEAK_BYTES))
            time.sleep(0.01)
    elif kind == "print":
        line = "x" * 1023 + "\n"
        for _ in range(PRINT_BYTES // len(line)):
            sys.stdout.write(line)
        sys.stdout.flush()
    else:
        raise ValueError(f"unknown fault {kind!r}")


def _faults(folder: Path) -> dict[str, Any]:
    try:
        faults: dict[str, Any] = json.loads((folder / "faults.json").read_text())
    except FileNotFoundError:
        return {}
    return faults


def tell(folder: Path, pace: float = 0.0, **faults: dict[str, Any]) -> None:
    """Write `faults.json`, with the pace of epochs and the trials that fail, and delete the old
    audit."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audit.log").unlink(missing_ok=True)
    (folder / "faults.json").write_text(json.dumps({"pace": pace, **faults}))


def audit(folder: Path) -> list[Trained]:
    """Every epoch that was begun; incomplete lines of the log are left out."""
    try:
        lines = (folder / "audit.log").read_text().splitlines()
    except FileNotFoundError:
        return []
    rows = [line.split() for line in lines]
    return [Trained(r[0], int(r[1]), float(r[2]), int(r[3])) for r in rows if len(r) == 4]
