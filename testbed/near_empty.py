"""Trainables that train nothing, for measuring what is around a training. No torch here: workers
that import it take seconds to start and 200 MB each."""

from __future__ import annotations

import time
from typing import Any

from ray import tune

SECONDS = 10.0


class NearEmpty(tune.Trainable):
    """Ends in its first step."""

    def setup(self, config: dict[str, Any], lent: Any = None) -> None:
        """`lent` are the data, which nobody here looks at."""
        self.trial = config["trial"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        row = {"epoch": 1, "val_accuracy": int(self.trial, 16) % 1000 / 1000, "val_loss": 1.0}
        return {**row, "history": [row], "done": True}


class Busy(NearEmpty):
    """The same, when it has had ten seconds of a core: whatever else takes from that core makes it
    later, as it would a training."""

    def step(self) -> dict[str, Any]:
        began, used = time.perf_counter(), time.process_time()
        while time.process_time() - used < SECONDS:
            sum(range(10_000))
        return {**super().step(), "seconds": time.perf_counter() - began}
