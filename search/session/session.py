"""What a running search knows and does when something happens: the ledger, the front, MLflow and
the terminal are kept in step here. Ray calls it through `tuner`; so can a simulator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bitfront.search.cluster.board import Board
from bitfront.search.cluster.resources import packed_share
from bitfront.search.config.schema import SearchConfig
from bitfront.search.front import Front, hypervolume_share
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder, stages_folder
from bitfront.search.ledger.ledger import Ledger, ledger_errors
from bitfront.search.ledger.states import ENDED, TrialState
from bitfront.search.results.results import ideal_point
from bitfront.search.session.early_stopping import EarlyStopping
from bitfront.search.session.progress import Progress, Silent
from bitfront.search.session.repeats import merged
from bitfront.search.tracking.notes import FRONT
from bitfront.search.tracking.tracker import Tracker
from bitfront.search.urls import redacted
from bitfront.spaces.space import Space
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.files import discard, write_atomically
from bitfront.trainables.worker import storage


class Session:
    """One driver's turn at a search."""

    def __init__(
        self,
        config: SearchConfig,
        space: Space,
        folder: SearchFolder,
        tracker: Tracker | None,
        first: Sequence[dict[str, Any]] = (),
        progress: Callable[[Session], Progress] = Silent,
    ) -> None:
        """`first` are points to begin with; `progress` makes what shows this session to people,
        which nothing does by default."""
        self.config = config
        self.folder = folder
        with ledger_errors(config.name):
            self.ledger = Ledger(folder.ledger_url, config, space, first, folder.owner)
        self.tracker = tracker
        self.front = Front(config.front_objectives)
        self._ideal = ideal_point(config)
        self._seeds: Counter[str] = Counter()
        spec = config.search.early_stopping
        self.stopping = EarlyStopping(spec, config.front_objectives) if spec else None
        self._stopped: dict[str, float] = {}
        self._spared: dict[str, float] = {}
        self._curves: dict[str, list[dict[str, float]]] = {}
        self._losses: dict[str, tuple[int, int]] = {}
        for entry in self.ledger.entries.values():
            self._count(entry)
            if self.stopping is not None:
                self.stopping.remember(entry)
        self.progress: Progress = progress(self)
        self.ledger.say = self.progress.say
        self.board = Board(folder.identity)
        self.gpus = config.resources.whole_gpus
        self._measuring = False
        self._told_not_saved = False
        self._damaged: dict[str, str] = {}

    @property
    def budget(self) -> int:
        return self.config.search.trials

    @property
    def ended(self) -> int:
        return self.ledger.count(*ENDED)

    @property
    def done(self) -> float:
        """Trials that have ended, and the parts of those that run."""
        epochs = [
            (curve[-1]["epoch"], self.ledger.entries[trial].spec.task.epochs)
            for trial, curve in list(self._curves.items())
            if curve
        ]
        return self.ended + sum(min(1.0, reached / total) for reached, total in epochs)

    @property
    def failed(self) -> int:
        return self.ledger.count(TrialState.FAILED)

    @property
    def running(self) -> int:
        return self.ledger.count(TrialState.RUNNING)

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
        values = [v for _, v in self.front.items]
        return hypervolume_share(
            values, self.ledger.reference, self._ideal, self.config.front_objectives
        )

    @property
    def complete(self) -> bool:
        """Nothing runs and nothing is left to try."""
        return not self.running and (self.ended >= self.budget or self.ledger.exhausted)

    def settle_gpus(self, there: bool) -> None:
        """With `gpus: auto`: none where there are none; what an earlier turn measured; else trials
        take a whole one each until the first has told what it needs."""
        known = self.ledger.noted("gpu_share")
        self.gpus = (known["gpus"] if known else 1.0) if there else 0.0
        self._measuring = there and known is None

    def _pack(self, memory: tuple[int, int]) -> None:
        """What the first trial took decides how many share a GPU from now on, in this turn and in
        later ones."""
        peak, total = memory
        self._measuring = False
        self.gpus = packed_share(peak, total)
        self.ledger.note("gpu_share", {"gpus": self.gpus, "peak": peak, "total": total})
        self.progress.say(
            f"a trial takes {peak / 1e9:.2g} of a GPU's {total / 1e9:.3g} GB: "
            f"{round(1 / self.gpus)} on each from now on"
        )

    def ask(self) -> Entry | None:
        entry = self.ledger.ask()
        if entry is not None and self.tracker is not None:
            self.tracker.trial(entry)
        return entry

    def report(self, trial_id: str, result: dict[str, Any]) -> None:
        """An epoch of a trial ended."""
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
        if self.tracker is not None:
            # All of a trial that was taken up again: of the epochs before, some may not have
            # reached MLflow when its driver ended.
            for row in result.get("history", [result]):
                self.tracker.epoch(self.ledger.entries[trial_id], _metrics(row))
        self.progress.changed(reported=(self.ledger.entries[trial_id], result))

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
        self._note_damage(trial_id, result)
        if "failure" in result:
            self.fail(trial_id, result["failure"], result.get("message", ""))
            return
        metrics = _metrics(result)
        if trial_id in self._stopped:
            metrics["stopped_at"] = self._stopped.pop(trial_id)
            history = self._curves.get(trial_id, [])
            self._end(trial_id, TrialState.STOPPED, metrics=metrics, history=history)
            return
        if trial_id in self._spared:
            metrics["would_stop_at"] = self._spared.pop(trial_id)
        history = [_metrics(row) for row in result.get("history", [])]
        picture = json.loads(result.get("picture", "{}"))
        if self.tracker is not None and picture:
            self.tracker.picture(self.ledger.entries[trial_id], picture)
        self._end(trial_id, TrialState.COMPLETE, metrics=metrics, history=history)

    def _note_damage(self, trial_id: str, result: dict[str, Any]) -> None:
        """A checkpoint that could not be used is told, and kept with the trial."""
        if "damaged" in result and trial_id not in self._damaged:
            self._damaged[trial_id] = result["damaged"]
            self.progress.say(f"trial {trial_id}: {result['damaged']}")

    def _note(self, trial_id: str, result: dict[str, Any]) -> None:
        """Keep the curve of a running trial. A worker that took up a trial from a checkpoint sends
        all of it once; one that found none begins anew."""
        if "history" in result:
            self._curves[trial_id] = [_metrics(row) for row in result["history"]]
        else:
            curve = self._curves.setdefault(trial_id, [])
            while curve and curve[-1]["epoch"] >= result["epoch"]:
                curve.pop()
            curve.append(_metrics(result))

    def fail(self, trial_id: str, reason: str, message: str) -> None:
        history = self._curves.get(trial_id, [])
        self._end(
            trial_id, TrialState.FAILED, history=history, failure=reason, message=redacted(message)
        )

    def comes_back(self, trial_id: str) -> bool:
        """Whether a trial whose worker died is asked for again: it has come further since another
        one died, or has a life left. Machines that are taken back cost a long trial nothing."""
        curve = self._curves.get(trial_id, [])
        reached = int(curve[-1]["epoch"]) if curve else 0
        furthest, losses = self._losses.get(trial_id, (0, 0))
        losses = losses + 1 if reached <= furthest else 1
        self._losses[trial_id] = (max(reached, furthest), losses)
        if losses > self.config.resources.retries:
            return False
        self.ledger.entries[trial_id].lives += 1
        self.ledger.hand_back(trial_id)
        return True

    def _end(self, trial_id: str, state: TrialState, **details: Any) -> None:
        damaged = self._damaged.pop(trial_id, None)
        if damaged is not None:
            details["message"] = "; ".join(filter(None, [details.get("message"), damaged]))
        entry = self.ledger.tell(trial_id, state, **details)
        self._curves.pop(trial_id, None)
        self._losses.pop(trial_id, None)
        changed = self._count(entry)
        self.folder.forget_trial(trial_id)
        if self._storage is not None:
            self._forget(self._checkpoint_folder(trial_id))
        if self.tracker is not None:
            self.tracker.trial(entry)
            self.tracker.search_metric("hypervolume", self.hypervolume_share, self.ended)
            self.tracker.search_metric("trials_ended", self.ended, self.ended)
            if changed:
                self.tracker.front(self.front_metrics())
        self.progress.changed(entry)

    def _count(self, entry: Entry) -> bool:
        """Enter a trial that ended; True when the front changed."""
        if entry.state != TrialState.COMPLETE or entry.values is None:
            return False
        self._seeds[entry.point] += 1
        if self._seeds[entry.point] > 1:
            return self._recount()
        return self.front.add(entry.id, entry.values)

    def front_metrics(self) -> dict[str, dict[str, float]]:
        """By trial, what is to be said of a point of the front in MLflow besides its own trial:
        the mean over its seeds, which is what fronts show, and how many they are."""
        name = self.config.quality.name
        place = list(self.config.objectives).index(name)
        return {
            key: {
                f"{FRONT}{name}": values[place],
                f"{FRONT}seeds": self._seeds[self.ledger.entries[key].point],
            }
            for key, values in self.front.items
        }

    def _recount(self) -> bool:
        """A point has another seed: its mean moves, and so may the whole front."""
        before = self.front.items
        self.front = Front(self.config.front_objectives)
        for entry in merged(self.ledger.entries.values(), self.config.front_objectives):
            if entry.values is not None:
                self.front.add(entry.id, entry.values)
        return self.front.items != before

    def trial_config(self, entry: Entry) -> dict[str, Any]:
        """What the worker gets."""
        resources = self.config.resources
        return {
            "trial": entry.id,
            "spec": entry.spec.model_dump(mode="json"),
            "folder": self._checkpoint_folder(entry.id),
            "stages": str(stages_folder(self.folder.path.parent)),
            "checkpoint_every": resources.checkpoint_every,
            "threads": max(1, int(resources.cpus)),
            "gpus": self.gpus,
            "measure": self._measuring,
            "board": self.board.key(entry.id).decode(),
            "memory": resources.memory,
            "log_mb": resources.log_mb,
        }

    @property
    def _storage(self) -> str | None:
        """This search's part of the shared storage, if it has one."""
        place = self.config.storage
        return place and storage.join(place, f"{self.config.name}-{self.folder.identity}")

    def try_storage(self) -> None:
        """A storage that refuses is found before the first trial, which would only begin anew."""
        if self._storage is not None:
            check_storage(self._storage, str(self.config.storage))

    def _checkpoint_folder(self, trial_id: str) -> str:
        if self._storage is None:
            return str(self.folder.trial_folder(trial_id))
        return storage.join(self._storage, trial_id)

    def _forget(self, place: str) -> None:
        """A storage that is away keeps a checkpoint nobody needs; that is no fault of a trial."""
        try:
            storage.forget(place)
        except Exception as error:  # every object store has faults of its own
            self.progress.say(redacted(f"{place} could not be deleted: {error}"))

    def close(self) -> None:
        """What is left of ended trials on disk goes; interrupted ones keep their checkpoints."""
        if self.ledger.exhausted:
            listed = self.ledger.listed
            count = "" if listed is None else str(len(listed))
            write_atomically(self.folder.path / "exhausted", count)
        if not self.running:
            discard(self.folder.path / "trials")
            if self._storage is not None:
                self._forget(self._storage)


def check_storage(place: str, called: str) -> None:
    """An error where files cannot be kept at `place`, a part of the storage that is `called` so."""
    try:
        storage.try_out(place)
    except Exception as error:  # every object store has faults of its own
        raise UserError(
            redacted(f"storage {called} cannot be used: {first_line(error)}"),
            "it must let files be written, read, listed and deleted; "
            "of several nodes: bitfront doctor --address auto --storage PLACE",
        ) from None


def _metrics(result: dict[str, Any]) -> dict[str, float]:
    """Everything training measured. A worker says what that is, since Ray adds numbers of its own;
    in a row of a history nothing else is."""
    names = result.get("measured", result)
    values = {name: result[name] for name in names if name in result}
    return {n: v for n, v in values.items() if isinstance(v, int | float) and type(v) is not bool}
