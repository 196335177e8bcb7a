"""The watcher of a running search's workers: it reports those that died to the session, says which
nodes were lost, and ends workers that have not reported an epoch for too long. Ray Tune calls
it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import ray
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError
from ray.tune import Callback
from ray.tune.experiment import Trial

from bitfront.search.cluster import head
from bitfront.search.cluster.searcher import (
    LOOK_SECONDS,
    LedgerSearcher,
    ending_all_when_lost,
    starting,
    waits_for_place,
)

# A driver that was blocked this long, since its database was away, received no reports meanwhile:
# that time does not count against its workers.
HELD_UP_SECONDS = 5.0
# Trials whose workers died this long before Ray called their node dead, or after, died with it: Ray
# waits for some heartbeats first, and tells of the workers one by one.
BEFORE_SECONDS = 120.0
AFTER_SECONDS = 2.0
# Seconds between two looks at what keeps the first trial from reporting.
START_SECONDS = 5.0
# Ray's numbers for why a node is gone: it was stopped, or the autoscaler had no use for it.
MEANT_TO_GO = (1, 4)


def last_words(trial: Any) -> str:
    """Ray's message about the end of a trial's worker. Ray's pickle of the error is not read:
    somebody else may have written it."""
    try:
        text = Path(trial.error_file).read_text(errors="replace")
    except (OSError, TypeError):
        return "no word of why"
    return text.rpartition("Failure # ")[2].partition("\n")[2].strip()[:2000]


@contextmanager
def deaths_by_memory() -> Iterator[None]:
    """Inside, a worker that Ray ended because its node ran out of memory, or that was lost with its
    node, has died. The errors that tell of it are none that Ray Tune expects of a worker: it would
    end the search."""
    handle, ask = RayActorManager._actor_task_failed, Trial._get_default_result_or_future

    # Its arguments have Ray's names: Ray calls it by them.
    def failed(manager: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError | NodeDiedError):
            exception = RayActorError(error_msg=f"{type(exception).__name__}: {exception}")
        handle(manager, tracked_actor_task=tracked_actor_task, exception=exception)

    def asked(trial: Trial) -> Any:
        """What Tune asks of a worker before its first result, and of one that died too."""
        try:
            return ask(trial)
        except (OutOfMemoryError, NodeDiedError):
            trial._default_result_or_future = None
            return None

    with (
        mock.patch.object(RayActorManager, "_actor_task_failed", failed),
        mock.patch.object(Trial, "_get_default_result_or_future", asked),
    ):
        yield


class Nodes:
    """Notices lost nodes and says so, a sentence for each with what becomes of its trials."""

    def __init__(
        self,
        say: Callable[[str], None],
        note: Callable[[list[str], list[str]], None] = lambda _there, _lost: None,
    ) -> None:
        """`note` is called with the hosts that are there and those that were lost."""
        self._say, self._note = say, note
        self._alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        self._most = len(self._alive)
        self._lost: dict[str, tuple[dict[str, Any], float]] = {}
        self._trials: dict[str, list[float]] = {}
        self._next = 0.0

    def worker_died(self, actor: str) -> None:
        """Note that a trial goes on elsewhere because its worker died, perhaps with its node."""
        from ray._private.state import actors

        now = time.monotonic()
        node = (actors(actor).get("Address") or {}).get("NodeID", "")
        recent = [t for t in self._trials.get(node, ()) if now - t < BEFORE_SECONDS]
        self._trials[node] = [*recent, now]

    def look(self, now: float) -> None:
        """Look at the nodes from time to time, and say which ones were lost a while ago."""
        if now >= self._next:
            self._next = now + LOOK_SECONDS
            self._see(ray.nodes(), now)
        for node, (known, since) in list(self._lost.items()):
            if now - since >= AFTER_SECONDS:
                del self._lost[node]
                died = self._trials.pop(node, [])
                self._tell(known, sum(since - t < BEFORE_SECONDS for t in died))
        if not self._lost:
            self._most = len(self._alive)

    def _see(self, nodes: list[dict[str, Any]], now: float) -> None:
        before = self._alive
        self._alive = {node["NodeID"]: node for node in nodes if node["Alive"]}
        gone = (n for n in nodes if not n["Alive"] and n.get("DeathReason") not in MEANT_TO_GO)
        self._note([_host(n) for n in self._alive.values()], [_host(n) for n in gone])
        why = {node["NodeID"]: node.get("DeathReason") for node in nodes}
        for key in before.keys() - self._alive.keys():
            if self._trials.get(key) or why.get(key) not in MEANT_TO_GO:
                self._lost[key] = (before[key], now)

    def _tell(self, node: dict[str, Any], trials: int) -> None:
        left = f"{len(self._alive)} of {max(self._most, len(self._alive) + 1)} nodes left"
        if trials:
            fate = f"{trials} trial{'s go' if trials > 1 else ' goes'} on elsewhere"
        else:
            fate = "no trial ran there"
        self._say(f"node {node['NodeManagerAddress']} was lost, {left}: {fate}")


def _host(node: dict[str, Any]) -> str:
    return str(node.get("NodeManagerHostname") or node["NodeManagerAddress"])


class Watcher(Callback):
    """Reports failed trials to the session, with the reason; `report_within` is in seconds."""

    def __init__(self, searcher: LedgerSearcher, report_within: float | None) -> None:
        self.searcher = searcher
        self.limit = report_within
        self._last_report: dict[str, tuple[Any, float]] = {}
        self._hung: set[str] = set()
        self._last_step = time.monotonic()
        self._nodes: Nodes | None = None
        self._look_at_start: float | None = 0.0
        self._has_place = False
        self._actors: dict[str, str] = {}

    def setup(self, *args: Any, **info: Any) -> None:
        progress = self.searcher.session.progress
        self._nodes = Nodes(progress.say, progress.nodes)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if not self._has_place:
            self._has_place = True
            self.searcher.session.folder.note_wait(None)
        self.searcher.session.waits = None
        self._last_report[trial.trial_id] = (trial, time.monotonic())
        actor = trial.temporary_state.ray_actor
        if actor is not None:
            self._actors[trial.trial_id] = actor._actor_id.hex()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._look_at_start = None
        self._last_report[trial.trial_id] = (trial, time.monotonic())

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._last_report.pop(trial.trial_id, None)
        self._actors.pop(trial.trial_id, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._last_report.pop(trial.trial_id, None)
        actor = self._actors.pop(trial.trial_id, None)
        head.check()
        entry_id = self.searcher.trials.pop(trial.trial_id, None)
        if entry_id is None:
            return
        if self.searcher.session.comes_back(entry_id):
            if self._nodes is not None and actor is not None:
                self._nodes.worker_died(actor)
            return
        reason, message = "lost worker", last_words(trial)
        if "OutOfMemory" in message or "low on memory" in message:
            reason = "oom"
        elif trial.trial_id in self._hung:
            reason, message = "hung", f"no epoch within {self.limit:g} s (resources.report_within)"
        with ending_all_when_lost():
            self.searcher.session.fail(entry_id, reason, message)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """End the workers that have not reported for too long. Ray then reports them as dead, and
        the session may start the trial again."""
        now = time.monotonic()
        held_up, self._last_step = now - self._last_step, now
        if self._nodes is not None:
            self._nodes.look(now)
        self.searcher.session.progress.look()
        if self._look_at_start is not None and now >= self._look_at_start:
            self._look_at_start = now + START_SECONDS
            session = self.searcher.session
            session.waits = None if self._has_place else waits_for_place(session)
            if session.waits is not None:
                session.folder.note_wait(session.waits)
            session.starting = starting()
        if self.limit is None:
            return
        for trial_id, (trial, last) in list(self._last_report.items()):
            reported = last
            if held_up > HELD_UP_SECONDS:
                reported += held_up
                self._last_report[trial_id] = (trial, reported)
            actor = trial.temporary_state.ray_actor
            if now - reported > self.limit and actor is not None:
                self._hung.add(trial_id)
                self._last_report.pop(trial_id)
                ray.kill(actor)
