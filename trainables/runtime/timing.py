"""How long calls take, measured side by side: one after another in every round, so that whatever
else the machine does disturbs all of them alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping

from bitfront.trainables.runtime.threads import threads

FEWEST_ROUNDS = 5
# Networks that are too slow for so many rounds are measured for so many times the wanted seconds.
PATIENCE = 3.0
# Calls of a round follow each other for so long, as those of a program that does nothing else.
BLOCK_MS = 5.0


def clock() -> Callable[[], float]:
    """The time of this process on the CPU where it uses one thread, which other processes do not
    disturb; else that of the wall."""
    return time.process_time if threads() == 1 else time.perf_counter


def milliseconds(
    calls: Mapping[str, Callable[[], object]], seconds: float = 2.0
) -> dict[str, float]:
    """The median time of each call, over as many rounds as fit into so many seconds of the wall,
    some at least as long as that takes no more than three times as long; in a round, short calls
    are repeated."""
    now, begun = clock(), time.perf_counter()

    def timed(call: Callable[[], object], times: int) -> float:
        begin = now()
        for _ in range(times):
            call()
        return 1000 * (now() - begin) / times

    for call in calls.values():
        call()
    times = {
        name: max(1, math.ceil(BLOCK_MS / max(timed(call, 1), 1e-3)))
        for name, call in calls.items()
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    rounds = 0
    while rounds == 0 or time.perf_counter() - begun < _allowed(rounds, seconds):
        for name, call in calls.items():
            found[name].append(timed(call, times[name]))
        rounds += 1
    return {name: statistics.median(values) for name, values in found.items()}


def _allowed(rounds: int, seconds: float) -> float:
    """How many seconds measuring may have taken before another round begins."""
    return seconds if rounds >= FEWEST_ROUNDS else PATIENCE * seconds
