"""One driver's turn at a search: what it does when a trial starts, reports and ends. Ledger, front,
MLflow and terminal are kept in step here. Ray calls it through `cluster/tuner.py`, and so can a
simulator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bitfront.search.cluster.board import Board
from bitfront.search.cluster.resources import packed_share
from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.ending import Ending
from bitfront.search.deciding.inheriting import Inheriting
from bitfront.search.deciding.limits import keeping
from bitfront.search.deciding.losses import Losses
from bitfront.search.deciding.pausing import Pausing
from bitfront.search.front import Front, hypervolume_share
from bitfront.search.ledger.entry import Entry, measured
from bitfront.search.ledger.folder import Checkpoints, SearchFolder, pretrained_folder
from bitfront.search.ledger.ledger import NO_ROWS, Ledger
from bitfront.search.ledger.reader import ledger_errors
from bitfront.search.ledger.states import ENDED, TrialState
from bitfront.search.results.results import ideal_point
from bitfront.search.session.early_stopping import EarlyStopping
from bitfront.search.session.preparation import check_storage
from bitfront.search.session.progress import WORKERS_START, Progress, Silent
from bitfront.search.session.repeats import merged
from bitfront.search.session.rows import Rows
from bitfront.search.tracking.runs import front_metrics
from bitfront.search.tracking.tracker import Tracker
from bitfront.search.urls import redacted
from bitfront.spaces.space import Space
from bitfront.trainables.files import write_atomically


class Session:
    """The state of one turn: the ledger, the front so far and the trials that run."""

    def __init__(
        self,
        config: SearchConfig,
        space: Space,
        folder: SearchFolder,
        tracker: Tracker | None,
        first: Sequence[dict[str, Any]] = (),
        progress: Callable[[Session], Progress] = Silent,
        rows: Rows = NO_ROWS,
    ) -> None:
        """`rows` of a paper are run first, `first` are points to try before the sampler is asked;
        `progress` makes the object that shows this session to people, by default one that shows
        nothing."""
        self.config = config
        self.folder = folder
        with ledger_errors(config.name):
            self.ledger = Ledger(folder.ledger_url, config, space, first, folder.owner, rows)
        self.rows = rows
        self.tracker = tracker
        self.front = Front(config.front_objectives)
        self._ideal = ideal_point(config)
        self._seeds: Counter[str] = Counter()
        spec = config.search.early_stopping
        self.stopping = EarlyStopping(spec, config.front_objectives) if spec else None
        self.pausing = Pausing(config, self.ledger) if config.search.pause else None
        if self.pausing is not None:
            self.ledger.promoted = self.pausing.next
        inherits = config.search.inherit is not None
        self.inheriting = Inheriting(config, self.ledger, rows.ids) if inherits else None
        self._stopped: dict[str, float] = {}
        self._spared: dict[str, float] = {}
        self.curves: dict[str, list[dict[str, float]]] = {}
        self._losses = Losses(config.resources.retries)
        for entry in self.ledger.entries.values():
            self._count(entry)
            if self.stopping is not None:
                self.stopping.remember(entry)
        self.progress: Progress = progress(self)
        self.checkpoints = Checkpoints(folder, config.storage, self.progress.say)
        self.ledger.say = self.progress.say
        self.board = Board(folder.identity)
        self.waits: str | None = None
        """why the first trial of this turn has no place yet"""
        self.starting = WORKERS_START
        """what workers do before the first of them reports"""
        self.gpus = config.resources.whole_gpus
        self.ending = Ending(config.search, self.ledger)
        self.ledger.over = self.ending.over
        self._measuring = False
        self._told_not_saved = False
        self._damaged: dict[str, str] = {}

    @property
    def budget(self) -> int:
        """How many trials the search has when this turn is over: those it may start, or those it
        has and those of the rows that are run alone."""
        if self.rows.alone:
            return len(self.ledger.entries) + len(self.rows.left(self.ledger.entries))
        return self.config.search.trials

    @property
    def total(self) -> int | None:
        """The budget as people see it; None where hours or the gain decide alone."""
        return self.budget if self.rows.alone else self.config.search.budget

    @property
    def ended(self) -> int:
        """How many trials are complete, stopped or failed."""
        return self.ledger.count(*ENDED)

    @property
    def done(self) -> float:
        """Trials that have ended, plus the trained fraction of each that runs."""
        epochs = [
            (curve[-1]["epoch"], self.ledger.entries[trial].spec.task.epochs)
            for trial, curve in list(self.curves.items())
            if curve
        ]
        return self.ended + sum(min(1.0, reached / total) for reached, total in epochs)

    @property
    def failed(self) -> int:
        """How many trials have failed."""
        return self.ledger.count(TrialState.FAILED)

    @property
    def running(self) -> int:
        """How many trials have started and not ended."""
        return self.ledger.count(TrialState.RUNNING)

    @property
    def paused(self) -> int:
        """How many trials rest at a rung."""
        return self.ledger.count(TrialState.PAUSED)

    @property
    def best(self) -> float | None:
        """The best quality of a point of the front, the mean over its seeds; None before the first
        complete trial."""
        quality = self.config.quality
        place = list(self.config.objectives).index(quality.name)
        found = [values[place] for _, values in self.front.items]
        return (max if quality.maximize else min)(found, default=None)

    @property
    def hypervolume_share(self) -> float:
        """The hypervolume of the front, as a share of that of a perfect and free network."""
        values = [v for _, v in self.front.items]
        return hypervolume_share(
            values, self.ledger.reference, self._ideal, self.config.front_objectives
        )

    @property
    def complete(self) -> bool:
        """Whether nothing runs and nothing is left to try in this turn."""
        spent = self.ended + self.paused >= self.budget or self.ledger.exhausted
        if self.paused and not self.rows.alone and self.ledger.promoted() is not None:
            return False
        enough = self.ending.reached is not None and not self.rows.alone
        return not self.running and (spent or enough)

    def settle_gpus(self, there: bool) -> None:
        """Decide what `gpus: auto` means: 0 where the cluster has no GPU, the share that an earlier
        turn measured, or else a whole GPU per trial until the first one has been measured."""
        known = self.ledger.noted("gpu_share")
        self.gpus = (known["gpus"] if known else 1.0) if there else 0.0
        self._measuring = there and known is None

    def _pack(self, memory: tuple[int, int]) -> None:
        """Let as many trials share a GPU as the memory of the first one allows, in this turn and in
        later ones. `memory` is its peak and the total of the GPU, in bytes."""
        peak, total = memory
        self._measuring = False
        self.gpus = packed_share(peak, total)
        self.ledger.note("gpu_share", {"gpus": self.gpus, "peak": peak, "total": total})
        self.progress.say(
            f"a trial takes {peak / 1e9:.2g} of a GPU's {total / 1e9:.3g} GB: "
            f"{round(1 / self.gpus)} on each from now on"
        )

    def ask(self) -> Entry | None:
        """The next trial to train; None where there is none now."""
        entry = self.ledger.ask()
        if entry is not None and self.tracker is not None:
            self.tracker.trial(entry)
        return entry

    def report(self, trial_id: str, result: dict[str, Any]) -> None:
        """Take the result of an epoch."""
        self.ledger.check_there()
        if "failure" in result:
            return
        if self._measuring and "gpu_memory" in result:
            self._pack(result["gpu_memory"])
        if "not_saved" in result and not self._told_not_saved:
            self._told_not_saved = True
            self.progress.say(
                f"checkpoints cannot be kept: {redacted(result['not_saved'])}\n"
                "  the search goes on; a trial whose worker dies begins again"
            )
        self._note_damage(trial_id, result)
        self._note(trial_id, result)
        if self.tracker is not None and not self.ledger.entries[trial_id].looking:
            # A resumed trial sends its whole history: some epochs may not have reached MLflow when
            # the driver before ended.
            for row in result.get("history", [result]):
                self.tracker.epoch(self.ledger.entries[trial_id], measured(row))
        self.progress.changed(reported=(self.ledger.entries[trial_id], result))

    def gives_up(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether early stopping ends the trial here because of its rank among the others. Control
        trials, rows of a paper and repeats with another seed always run to their end."""
        entry = self.ledger.entries[trial_id]
        spared = entry.spec.seed != self.config.search.seed or trial_id in self.rows.ids
        if spared or "failure" in result or result.get("done"):
            return False
        if self.pausing is not None:
            return self._rests(self.pausing, entry, result)
        if self.stopping is None:
            return False
        rung = self.stopping.gives_up(entry, measured(result))
        if rung is None:
            return False
        if self.stopping.is_control(entry):
            self._spared.setdefault(trial_id, rung)
            return False
        self._stopped[trial_id] = rung
        self._note(trial_id, result)
        return True

    def _rests(self, pausing: Pausing, entry: Entry, result: dict[str, Any]) -> bool:
        """Whether the trial pauses here; where checkpoints are too many, some are given up."""
        self._note(entry.id, result)
        curve = list(self.curves[entry.id])
        if not pausing.rests(entry, curve, int(result.get("kept_bytes", 0))):
            return False
        for given_up in pausing.overflow():
            metrics = {**given_up.history[-1], "stopped_at": given_up.rung}
            self._end(given_up.id, TrialState.STOPPED, metrics=metrics, history=given_up.history)
        return True

    def finish(self, trial_id: str, result: dict[str, Any]) -> None:
        """Take the last result of a trial: it is complete, stopped, or failed with a reason."""
        self._note_damage(trial_id, result)
        entry = self.ledger.entries[trial_id]
        if entry.looking and "failure" not in result:
            self._note(trial_id, result)
            self.ledger.looked(trial_id, self.curves[trial_id])
            self.checkpoints.forget_look(trial_id)
        if entry.state != TrialState.RUNNING:  # it paused
            self.curves.pop(trial_id, None)
            if self.tracker is not None:
                self.tracker.trial(entry)
            self.progress.changed(entry)
            return
        if "failure" in result:
            told = (result["failure"], result.get("message", ""), result.get("traceback"))
            self.fail(trial_id, *told)
            return
        metrics = measured(result)
        if trial_id in self._stopped:
            metrics["stopped_at"] = self._stopped.pop(trial_id)
            history = self.curves.get(trial_id, [])
            self._end(trial_id, TrialState.STOPPED, metrics=metrics, history=history)
            return
        if trial_id in self._spared:
            metrics["would_stop_at"] = self._spared.pop(trial_id)
        history = [measured(row) for row in result.get("history", [])]
        picture = json.loads(result.get("picture", "{}"))
        if self.tracker is not None and picture:
            self.tracker.picture(entry, picture)
        self._end(trial_id, TrialState.COMPLETE, metrics=metrics, history=history)

    def _note_damage(self, trial_id: str, result: dict[str, Any]) -> None:
        """Say once that a checkpoint, or weights to inherit, could not be used, and keep that for
        the trial's message."""
        if "not_inherited" in result:
            self.ledger.void_look(trial_id, result["not_inherited"])
        told = "; ".join(result[key] for key in ("damaged", "not_inherited") if key in result)
        if told and trial_id not in self._damaged:
            self._damaged[trial_id] = told
            self.progress.say(f"trial {trial_id}: {told}")

    def _note(self, trial_id: str, result: dict[str, Any]) -> None:
        """Keep the learning curve of a running trial. A worker that resumed it from a checkpoint
        sends the whole curve once; one without a checkpoint begins again at the first epoch."""
        if "history" in result:
            self.curves[trial_id] = [measured(row) for row in result["history"]]
        else:
            curve = self.curves.setdefault(trial_id, [])
            while curve and curve[-1]["epoch"] >= result["epoch"]:
                curve.pop()
            curve.append(measured(result))

    def fail(self, trial_id: str, reason: str, message: str, traceback: str | None = None) -> None:
        """Record that a trial failed; `reason` is a word or two that failures are counted by."""
        self._end(
            trial_id,
            TrialState.FAILED,
            history=self.curves.get(trial_id, []),
            failure=reason,
            message=redacted(message),
            traceback=traceback and redacted(traceback),
        )

    def comes_back(self, trial_id: str) -> bool:
        """Whether a trial whose worker died continues on another worker; if so it is handed back to
        the ledger."""
        curve = self.curves.get(trial_id, [])
        reached = int(curve[-1]["epoch"]) if curve else 0
        if not self._losses.again(trial_id, reached):
            return False
        self.ledger.entries[trial_id].lives += 1
        self.ledger.hand_back(trial_id)
        return True

    def _end(self, trial_id: str, state: TrialState, **details: Any) -> None:
        """Write the end of a trial to the ledger and pass it on to MLflow and the terminal."""
        damaged = self._damaged.pop(trial_id, None)
        if damaged is not None:
            details["message"] = "; ".join(filter(None, [details.get("message"), damaged]))
        entry = self.ledger.tell(trial_id, state, **details)
        if self.inheriting is not None:
            self.inheriting.tidy(self.checkpoints)
        self.ending.keep()
        self.curves.pop(trial_id, None)
        self._losses.forget(trial_id)
        changed = self._count(entry)
        self.checkpoints.forget(trial_id)
        if self.tracker is not None:
            self.tracker.trial(entry)
            self.tracker.search_metric("hypervolume_share", self.hypervolume_share, self.ended)
            if changed:
                self.tracker.front(self.front_metrics())
        self.progress.changed(entry)

    def _count(self, entry: Entry) -> bool:
        """Add a trial that has ended to the front; True when that changed it."""
        if entry.state != TrialState.COMPLETE or entry.values is None:
            return False
        self._seeds[entry.point] += 1
        if self._seeds[entry.point] > 1:
            return self._recount()
        if not keeping(self.config, [entry]):
            return False
        return self.front.add(entry.id, entry.values)

    def front_metrics(self) -> dict[str, dict[str, float]]:
        """The metrics that MLflow shows for each point of the front, by trial."""
        seeds = {key: self._seeds[self.ledger.entries[key].point] for key in self.front.keys}
        return front_metrics(self.config, self.folder, self.front, seeds)

    def _recount(self) -> bool:
        """Compute the front again after a point got another seed; True when it changed."""
        before = self.front.items
        self.front = Front(self.config.front_objectives)
        points = merged(self.ledger.entries.values(), self.config.front_objectives)
        for entry in keeping(self.config, points):
            if entry.values is not None:
                self.front.add(entry.id, entry.values)
        return self.front.items != before

    def trial_config(self, entry: Entry) -> dict[str, Any]:
        """The configuration that the worker of a trial gets."""
        resources = self.config.resources
        return {
            "trial": entry.id,
            "spec": entry.spec.model_dump(mode="json"),
            "folder": self.checkpoints.place(entry.id),
            "pretrained": str(pretrained_folder(self.folder.path.parent)),
            "checkpoint_every": resources.checkpoint_every,
            "threads": max(1, int(resources.cpus)),
            "gpus": self.gpus,
            "measure": self._measuring,
            **({} if self.inheriting is None else self.inheriting.places(entry, self.checkpoints)),
            "rungs": [] if self.pausing is None else self.pausing.epochs(entry),
            "board": self.board.key(entry.id).decode(),
            "memory": resources.memory,
            "log_mb": resources.log_mb,
        }

    def try_storage(self) -> None:
        """Raise UserError before the first trial where the shared storage cannot be used."""
        if self.checkpoints.shared is not None:
            check_storage(self.checkpoints.shared, str(self.config.storage))

    def close(self) -> None:
        """Note in the folder whether the space is exhausted, and delete what ended trials left on
        disk; interrupted and paused trials keep their checkpoints."""
        if self.ledger.exhausted:
            proposals = self.ledger.proposals
            count = str(self.ledger.explored) if proposals.proven else ""
            if proposals.listed is not None:
                count = str(len(proposals.listed))
            write_atomically(self.folder.path / "exhausted", count)
        if not self.running and not self.paused:
            self.checkpoints.forget_all()
