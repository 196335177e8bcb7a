"""What the workers of a cluster under test do besides training: they write down every epoch they
train, and misbehave where they are told to. Ray runs `install` when a worker starts; the product
knows nothing of it.

`BITFRONT_CHAOS` names a folder. `faults.json` in it says what goes wrong, `{trial: {"kind": ...,
"epoch": n}}`, and in `pace` the seconds every epoch takes longer. `audit.log` takes a line an
epoch: trial, epoch, the time it began, the process."""

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
    """One epoch that some worker began."""

    trial: str
    epoch: int
    began: float
    worker: int


def install() -> None:
    """Wrap what a trial does in an epoch."""
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
    """Say how long epochs take and which trials misbehave, and begin a new audit."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audit.log").unlink(missing_ok=True)
    (folder / "faults.json").write_text(json.dumps({"pace": pace, **faults}))


def audit(folder: Path) -> list[Trained]:
    """Every epoch that was begun, as far as its line was written whole."""
    try:
        lines = (folder / "audit.log").read_text().splitlines()
    except FileNotFoundError:
        return []
    rows = [line.split() for line in lines]
    return [Trained(r[0], int(r[1]), float(r[2]), int(r[3])) for r in rows if len(r) == 4]
