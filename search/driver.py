"""What a running search knows and does when something happens: the ledger, the front, MLflow and
the terminal are kept in step here. Ray calls it through `tuner`; so can a simulator."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, get_args

from search.config import METRICS, SearchConfig
from search.confirm import merged
from search.front import Front, hypervolume_share
from search.home import SearchFolder, stages_folder
from search.progress import Progress
from search.results import ideal_point
from search.stopping import EarlyStopping
from search.study import Entry, Ledger
from search.tracking import Tracker
from spaces.space import Space
from trainables.task import TrainingAttack

# The accuracy of each of several tasks in a row.
TASK_METRIC = "val_accuracy_task"
METRIC_KEYS = (
    "epoch",
    "train_loss",
    *METRICS,
    *(f"{name}_raw" for name in METRICS),
    *(f"{name}_mean" for name in METRICS),
    "acc_soft",
    "soft_gap",
    "flip_rate",
    "dead_share",
    "distance_to_binary",
    "overflow_rate",
    "mask_change",
    *(f"train_robust_{name}" for name in get_args(TrainingAttack) if name != "none"),
    "seconds",
)


class Session:
    """One driver's turn at a search."""

    def __init__(
        self,
        config: SearchConfig,
        space: Space,
        folder: SearchFolder,
        tracker: Tracker | None,
        quiet: bool = False,
        first: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.config = config
        self.folder = folder
        self.ledger = Ledger(folder.ledger_url, config, space, first)
        self.tracker = tracker
        self.front = Front(config.front_objectives)
        self.best: float | None = None
        self._ideal = ideal_point(config)
        self._points: set[str] = set()
        spec = config.search.early_stopping
        self.stopping = EarlyStopping(spec, config.front_objectives) if spec else None
        self._stopped: dict[str, float] = {}
        self._spared: dict[str, float] = {}
        self._curves: dict[str, list[dict[str, float]]] = {}
        for entry in self.ledger.entries.values():
            self._count(entry)
            if self.stopping is not None:
                self.stopping.remember(entry)
        self.progress = Progress(self, quiet)

    @property
    def budget(self) -> int:
        return self.config.search.trials

    @property
    def ended(self) -> int:
        return self.ledger.count("complete", "pruned", "failed")

    @property
    def failed(self) -> int:
        return self.ledger.count("failed")

    @property
    def running(self) -> int:
        return self.ledger.count("running")

    @property
    def hypervolume_share(self) -> float:
        values = [v for _, v in self.front.items]
        return hypervolume_share(
            values, self.ledger.reference, self._ideal, self.config.front_objectives
        )

    @property
    def complete(self) -> bool:
        """Nothing runs and nothing is left to try."""
        return not self.running and (self.ended >= self.budget or self.ledger.exhausted)

    def ask(self) -> Entry | None:
        entry = self.ledger.ask()
        if entry is not None and self.tracker is not None:
            self.tracker.trial(entry)
        return entry

    def report(self, trial_id: str, result: dict[str, Any]) -> None:
        """An epoch of a trial ended."""
        if "failure" in result:
            return
        self._note(trial_id, result)
        if self.tracker is not None:
            self.tracker.epoch(self.ledger.entries[trial_id], _metrics(result))
        self.progress.changed(ended=False)

    def gives_up(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends here for its rank among the others. A control trial does not,
        and a repeat has been asked for because its end is wanted."""
        entry = self.ledger.entries[trial_id]
        repeat = entry.spec.seed != self.config.search.seed
        if self.stopping is None or repeat or "failure" in result or result.get("done"):
            return False
        rung = self.stopping.gives_up(entry, _metrics(result))
        if rung is None:
            return False
        if self.stopping.is_control(entry):
            self._spared.setdefault(trial_id, rung)
            return False
        self._stopped[trial_id] = rung
        self._note(trial_id, result)
        return True

    def finish(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial ran to its end, was given up, or failed in a way it could tell."""
        if "failure" in result:
            self.fail(trial_id, result["failure"], result.get("message", ""))
            return
        metrics = _metrics(result)
        if trial_id in self._stopped:
            metrics["stopped_at"] = self._stopped.pop(trial_id)
            history = self._curves.get(trial_id, [])
            self._end(trial_id, "pruned", metrics=metrics, history=history)
            return
        if trial_id in self._spared:
            metrics["would_stop_at"] = self._spared.pop(trial_id)
        history = [_metrics(row) for row in result.get("history", [])]
        if self.tracker is not None and result.get("picture"):
            self.tracker.picture(self.ledger.entries[trial_id], result["picture"])
        self._end(trial_id, "complete", metrics=metrics, history=history)

    def _note(self, trial_id: str, result: dict[str, Any]) -> None:
        """Keep the curve of a running trial. A worker that took up a trial from a checkpoint sends
        all of it once."""
        if "history" in result:
            self._curves[trial_id] = [_metrics(row) for row in result["history"]]
        else:
            self._curves.setdefault(trial_id, []).append(_metrics(result))

    def fail(self, trial_id: str, reason: str, message: str) -> None:
        history = self._curves.get(trial_id, [])
        self._end(trial_id, "failed", history=history, failure=reason, message=message)

    def recovered(self, trial_id: str) -> None:
        """The worker of a trial died and another one took the trial over."""
        self.ledger.entries[trial_id].lives += 1

    def _end(self, trial_id: str, state: str, **details: Any) -> None:
        entry = self.ledger.tell(trial_id, state, **details)
        self._curves.pop(trial_id, None)
        changed = self._count(entry)
        self.folder.forget_trial(trial_id)
        if self.tracker is not None:
            self.tracker.trial(entry)
            self.tracker.search_metric("hypervolume", self.hypervolume_share, self.ended)
            self.tracker.search_metric("trials_ended", self.ended, self.ended)
            if changed:
                self.tracker.front(set(self.front.keys))
        self.progress.changed(ended=True)

    def _count(self, entry: Entry) -> bool:
        """Enter a trial that ended; True when the front changed."""
        quality = self.config.quality
        value = entry.metrics.get(quality.name)
        if entry.state != "complete" or entry.values is None:
            return False
        if value is not None and (self.best is None or quality.better(value, self.best)):
            self.best = value
        if entry.point in self._points:
            return self._recount()
        self._points.add(entry.point)
        return self.front.add(entry.id, entry.values)

    def _recount(self) -> bool:
        """A point has another seed: its mean moves, and so may the whole front."""
        before = set(self.front.keys)
        self.front = Front(self.config.front_objectives)
        for entry in merged(self.ledger.entries.values(), self.config.front_objectives):
            if entry.values is not None:
                self.front.add(entry.id, entry.values)
        return set(self.front.keys) != before

    def trial_config(self, entry: Entry) -> dict[str, Any]:
        """What the worker gets."""
        resources = self.config.resources
        return {
            "trial": entry.id,
            "spec": entry.spec.model_dump(mode="json"),
            "folder": str(self.folder.trial_folder(entry.id)),
            "stages": str(stages_folder(self.folder.path.parent)),
            "checkpoint_every": resources.checkpoint_every,
            "threads": max(1, int(resources.cpus)),
            "gpus": resources.gpus,
        }

    def close(self) -> None:
        """What is left of ended trials on disk goes; interrupted ones keep their checkpoints."""
        if self.ledger.exhausted:
            (self.folder.path / "exhausted").touch()
        if not self.running:
            shutil.rmtree(self.folder.path / "trials", ignore_errors=True)


def _metrics(result: dict[str, Any]) -> dict[str, float]:
    tasks = (key for key in result if key.startswith(TASK_METRIC))
    return {key: result[key] for key in (*METRIC_KEYS, *tasks) if key in result}
