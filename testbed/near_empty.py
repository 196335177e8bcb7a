"""Trainables without training, for measuring the overhead around it. They do not import torch, with
which a worker takes seconds to start and 200 MB."""

from __future__ import annotations

import time
from typing import Any

from ray import tune

SECONDS = 10.0
STEPS = 5


class NearEmpty(tune.Trainable):
    """A trial that ends in its first step, with an accuracy computed from its id."""

    def setup(self, config: dict[str, Any], lent: Any = None, code: Any = None) -> None:
        """Prepare a trial; `lent` are the data and `code` is the user's, which are not used."""
        self.trial = config["trial"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        row = {"epoch": 1, "val_accuracy": int(self.trial, 16) % 1000 / 1000, "val_loss": 1.0}
        return {**row, "history": [row], "done": True}


class Stepped(NearEmpty):
    """A trial that reports five epochs as fast as it can."""

    def setup(self, config: dict[str, Any], lent: Any = None, code: Any = None) -> None:
        super().setup(config, lent, code)
        self.rows: list[dict[str, Any]] = []

    def step(self) -> dict[str, Any]:
        last = super().step()["history"][0]
        self.rows.append({**last, "epoch": len(self.rows) + 1})
        if len(self.rows) < STEPS:
            return dict(self.rows[-1])
        return {**self.rows[-1], "history": self.rows, "done": True}


class Busy(NearEmpty):
    """A trial whose only step takes ten seconds of CPU time: anything else that uses its core
    delays it, as it would delay a training."""

    def step(self) -> dict[str, Any]:
        began, used = time.perf_counter(), time.process_time()
        while time.process_time() - used < SECONDS:
            sum(range(10_000))
        return {**super().step(), "seconds": time.perf_counter() - began}
