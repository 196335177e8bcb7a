"""The mirror of one search in MLflow: a parent run, and a child run for every trial. Called by the
tracker's thread (tracker.py) only."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.ending import asked_in_words
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.environment import environment
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.states import TrialState
from bitfront.search.pictures import TrialPicture
from bitfront.search.session.repeats import merged
from bitfront.search.tracking.database import make_database
from bitfront.search.tracking.extra_runs import log_extras
from bitfront.search.tracking.extras import extras_of
from bitfront.search.tracking.notes import FRONT, RUN, VIEWS, note_of
from bitfront.search.tracking.runs import (
    code_tags,
    end_tags,
    experiment_name,
    flat_params,
    look_tags,
    role_of,
    run_name,
)
from bitfront.search.tracking.store import find_runs, keeps_artifacts
from bitfront.search.tracking.views import path_of, tags_of
from bitfront.search.urls import sqlite_path
from bitfront.trainables.own_code import shown

# Trials of the front whose pictures are logged, a few ten kilobytes each.
MOST_PICTURES = 40
FrontMetrics = dict[str, dict[str, float]]
"""By trial, the metrics of a point of the front."""
PARENT = "mlflow.parentRunId"
# The tag of a trial's run: the last epoch whose metrics were delivered.
EPOCH = "bitfront.epoch"
STATUS = {
    TrialState.COMPLETE: "FINISHED",
    TrialState.STOPPED: "KILLED",
    TrialState.FAILED: "FAILED",
}


@dataclass
class Child:
    """What MLflow has of one trial's run."""

    run_id: str | None = None
    last_epoch: int = 0
    described: bool = False
    ended: bool = False
    pareto: bool | None = None
    of_front: dict[str, float] = field(default_factory=dict)
    """the metrics of its point of the front"""
    restated: bool = True
    """whether its percentages are of the dearest network of the search"""

    def worth(self) -> tuple[bool, bool, int, str]:
        """The order by which one of two runs of a trial is kept: the more complete one."""
        return self.ended, self.described, self.last_epoch, str(self.run_id)


class Mirror:
    """A connection, and what MLflow has of the search. Every method may raise any error of MLflow
    where the store is away; the tracker then makes another mirror, which reads again what is
    there."""

    def __init__(self, config: SearchConfig, identity: str, home: Path, uri: str) -> None:
        self.config = config
        self.identity = identity
        self.home = home
        self.uri = uri
        client = _quiet_client()
        file = sqlite_path(uri)
        if file is not None and not file.exists():
            make_database(client, file)
        self.client = client(uri)
        self.experiment_id = self._experiment()
        self.parent_id = self._parent()
        self.children = self._known_children()

    def _keeps(self, run_id: str) -> bool:
        return keeps_artifacts(self.client, run_id, self.uri, self.home)

    def has_ended(self, trial_id: str) -> bool:
        """Whether MLflow has the complete run of a trial."""
        child = self.children.get(trial_id)
        return child is not None and child.ended

    def _experiment(self) -> str:
        name = experiment_name(self.config)
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        location = None
        if self.uri.startswith("sqlite"):
            # MLflow's own default is ./mlruns of whoever happens to write first.
            folder = re.sub(r"^\.+|/", "_", name)
            location = (self.home / "mlartifacts" / folder).as_uri()
        made = str(self.client.create_experiment(name, artifact_location=location))
        # Else the UI guesses, and may show the pages for language models.
        self.client.set_experiment_tag(made, "mlflow.experimentKind", "custom_model_development")
        return made

    def _runs(self, kind: str) -> list[Any]:
        """All runs of the search of that kind."""
        return find_runs(self.client, [self.experiment_id], self.identity, kind)

    def _discard(self, run_id: str) -> None:
        """Delete a run that exists twice: the reply to its creation was lost, or the server created
        it after the request had been given up."""
        self.client.set_terminated(run_id, "KILLED")
        self.client.delete_run(run_id)

    def _parent(self) -> str:
        found, *spares = sorted(self._runs("search"), key=_seniority) or [None]
        for spare in spares:
            self._discard(spare.info.run_id)
        if found is not None:
            run_id = str(found.info.run_id)
            self.client.update_run(run_id, status="RUNNING")
            if not _described(found):  # the driver that made it was killed
                self._describe_parent(run_id)
            return run_id
        tags = {
            "mlflow.runName": self.config.name,
            "mlflow.note.content": self._linked(note_of(self.config, (), (), None)),
            "state": TrialState.RUNNING,
            "bitfront.search": self.config.name,
            "bitfront.search_id": self.identity,
            "bitfront.kind": "search",
            **code_tags(self.config.open_data()),
            **{f"bitfront.{name}": text for name, text in environment().items()},
        }
        run_id = str(self.client.create_run(self.experiment_id, tags=tags).info.run_id)
        self._describe_parent(run_id)
        return run_id

    def _describe_parent(self, run_id: str) -> None:
        from mlflow.entities import Param

        config = self.config
        params = {
            "dataset": shown(config.task.dataset),
            "model": shown(config.task.model.name),
            "epochs": config.task.epochs,
            "sampler": shown(config.search.sampler),
            "trials": config.search.budget or asked_in_words(config.search),
            "objectives": ", ".join(f"{k} {v}" for k, v in config.objectives.items()),
        }
        for name, view in tags_of(config, self.identity).items():
            self.client.set_experiment_tag(self.experiment_id, name, view)
        if self._keeps(run_id):
            self.client.log_text(run_id, config.dump(), "search.yaml")
        self.client.log_batch(run_id, params=[Param(k, str(v)) for k, v in params.items()])

    def _known_children(self) -> dict[str, Child]:
        children: dict[str, Child] = {}
        for run in self._runs("trial"):
            tags = run.data.tags
            child = Child(
                run_id=run.info.run_id,
                last_epoch=_last_epoch(run),
                described="method" in run.data.params,
                ended=run.info.status not in ("RUNNING", "SCHEDULED"),  # the latter rests
                pareto=tags.get("pareto") == "true",
                of_front={k: v for k, v in run.data.metrics.items() if k.startswith(FRONT)},
                restated="flops_own_pct" in run.data.metrics or "flops_pct" not in run.data.metrics,
            )
            twin = children.get(tags["bitfront.trial"])
            if twin is not None:
                child, spare = sorted((twin, child), key=Child.worth, reverse=True)
                self._discard(str(spare.run_id))
            children[tags["bitfront.trial"]] = child
            if child.run_id == run.info.run_id and tags.get(PARENT) != self.parent_id:
                self.client.set_tag(child.run_id, PARENT, self.parent_id)
        return children

    def _discard_spares(self) -> None:
        """Delete duplicate runs that the server created after their requests had been given up."""
        known = {self.parent_id, *(child.run_id for child in self.children.values())}
        for kind in ("search", "trial"):
            for run in self._runs(kind):
                if run.info.run_id not in known:
                    self._discard(run.info.run_id)

    def deliver(self, entry: Entry, rows: list[dict[str, float]]) -> None:
        """Bring the trial's run up to date. Delivering the same twice changes nothing."""
        child = self.children.setdefault(entry.id, Child())
        if not child.restated:
            self._restate(entry, child)
        if child.ended:
            return
        ended = entry.state in STATUS
        weighed = not (ended or (entry.rung is None and entry.look is None))
        tags = look_tags(entry) | ({"state": str(entry.state)} if weighed else {})
        tags |= end_tags(entry, self.config.quality) if ended else {}
        if child.run_id is None:
            run = self.client.create_run(
                self.experiment_id,
                start_time=int((entry.started or time.time()) * 1000),
                tags={
                    PARENT: self.parent_id,
                    "mlflow.runName": run_name(entry, self.config.quality),
                    "bitfront.kind": "trial",
                    "bitfront.trial": entry.id,
                    "bitfront.search": self.config.name,
                    "bitfront.search_id": self.identity,
                    "method": shown(entry.spec.method),
                    **code_tags(entry.spec.model_dump(mode="json")),
                    "plan": entry.spec.plan,
                    "pareto": "false",
                    "role": role_of(entry, self.config),
                    "state": entry.state,
                    **tags,
                },
            )
            child.run_id = run.info.run_id
            tags = {}
        now = int(time.time() * 1000)
        # An epoch may be reported twice, by two workers one after the other.
        once = {row.get("epoch"): row for row in rows}
        history = entry.history if ended and entry.history else list(once.values())
        metrics = [
            (name, float(value), now, int(row["epoch"]))
            for row in history
            if row.get("epoch", 0) > child.last_epoch
            for name, value in row.items()
            if name != "epoch"  # the step of all others: its curve would be a straight line
        ]
        reached = max([child.last_epoch, *(int(row["epoch"]) for row in history if "epoch" in row)])
        done = {EPOCH: str(reached)} if reached > child.last_epoch else {}
        params: dict[str, str] = {}
        if not child.described:
            params = flat_params(entry)
            metrics += [(name, float(value), now, 0) for name, value in entry.costs.items()]
        self.log(child.run_id, metrics, params, {**tags, **done})
        child.described = True
        child.last_epoch = reached
        if weighed:
            rests = entry.state == TrialState.PAUSED
            self.client.update_run(child.run_id, status="SCHEDULED" if rests else "RUNNING")
        if ended:
            end = int((entry.ended or time.time()) * 1000)
            self.client.set_terminated(child.run_id, STATUS[entry.state], end)
            child.ended = True

    def _restate(self, entry: Entry, child: Child) -> None:
        """Correct a run of version 0.1: its name, and percentages of its own network's flops."""
        now = int(time.time() * 1000)
        costs = [(name, float(value), now, 0) for name, value in entry.costs.items()]
        self.log(child.run_id, costs, tags={"mlflow.runName": run_name(entry, self.config.quality)})
        child.restated = True

    def log(
        self,
        run_id: str | None,
        metrics: list[tuple[str, float, int, int]] | None = None,
        params: dict[str, str] | None = None,
        tags: dict[str, str] | None = None,
    ) -> None:
        """Log to a run with as few requests as MLflow's limits allow: 1,000 metrics, 100
        parameters, 100 tags."""
        from mlflow.entities import Metric, Param, RunTag

        measured = [Metric(*m) for m in metrics or []]
        named = [Param(k, v[:6000]) for k, v in (params or {}).items()]
        tagged = [RunTag(k, v) for k, v in (tags or {}).items()]
        # One request takes at most 1,000 items of all kinds together.
        # Tags come last: when they are there, so are the metrics of the epochs they tell of.
        size = max(len(measured), 1)
        for start in range(0, size, 800):
            last = start + 800 >= size
            here = slice(start, start + 800)
            batch = (measured[here], named[:100] if not start else [], tagged if last else [])
            if any(batch):
                self.client.log_batch(run_id, *batch)
        for start in range(100, len(named), 100):
            self.client.log_batch(run_id, params=named[start : start + 100])

    def tag_front(self, front: FrontMetrics) -> None:
        """Tag the runs of the front, and log the means over seeds there: all other metrics of a run
        are of one trial."""
        now = int(time.time() * 1000)
        for trial_id, child in self.children.items():
            on_front = trial_id in front
            told = front.get(trial_id, child.of_front)
            if child.run_id is not None and child.of_front != told:
                # MLflow shows the last step: the mean over most seeds.
                step = int(told[f"{FRONT}seeds"])
                self.log(child.run_id, [(name, v, now, step) for name, v in told.items()])
                child.of_front = told
            if child.run_id is not None and child.pareto is not on_front:
                if on_front or child.pareto:
                    self.client.set_tag(child.run_id, "pareto", str(on_front).lower())
                child.pareto = on_front

    def log_pictures(
        self,
        pictures: Mapping[str, dict[str, Any]],
        front: Collection[str],
        entries: Mapping[str, Entry],
        drawn_by: Mapping[str, TrialPicture],
    ) -> None:
        """Draw the pictures of the front's trials and log them to their runs. `drawn_by` has the
        functions by the name of the data."""
        members = [key for key in pictures if key in front][:MOST_PICTURES]
        for key in members:
            run_id = str(self.children[key].run_id)
            title = run_name(entries[key], self.config.quality)
            if not self._keeps(run_id):
                continue
            with tempfile.TemporaryDirectory() as folder:
                for name, data in pictures[key].items():
                    if name not in drawn_by:
                        continue
                    file = drawn_by[name](data, title, Path(folder) / f"{name}.png")
                    self.client.log_artifact(run_id, str(file))

    def describe(self, entries: Collection[Entry], front: set[str], share: float | None) -> None:
        """Update the parent run's description with the front."""
        points = merged(entries, self.config.front_objectives)
        members = sorted(
            (e for e in points if e.id in front), key=lambda e: e.costs.get("flops", 0.0)
        )
        note = note_of(self.config, entries, members, share)
        self.client.set_tag(self.parent_id, "mlflow.note.content", self._linked(note))

    def _linked(self, note: str) -> str:
        """A description with the paths of the search's views."""
        for view, place in VIEWS.items():
            note = note.replace(place, path_of(self.experiment_id, self.identity, view))
        return note

    def deliver_extras(self, entries: Iterable[Entry]) -> None:
        """Write runs for selectors, pretraining and final trainings that have none yet."""
        folder = SearchFolder(self.home / self.config.name)
        extras = extras_of(folder, list(entries))
        if extras:
            ids = self.experiment_id, self.parent_id, self.identity
            log_extras(self.client, *ids, extras, self._keeps)

    def finish(self, state: str, artifacts: dict[str, str | Path], summary: str) -> None:
        if not self._keeps(self.parent_id):
            artifacts = {}
            summary += "\n\nFiles of this run are not kept: MLflow has them outside of the home."
        for name, content in artifacts.items():
            if isinstance(content, Path):
                self.client.log_artifact(self.parent_id, str(content))
            else:
                self.client.log_text(self.parent_id, content, name)
        note = self._linked(summary.replace(RUN, str(self.parent_id)))
        self.client.set_tag(self.parent_id, "mlflow.note.content", note)
        self.client.set_tag(self.parent_id, "state", state)
        self._discard_spares()
        self.client.set_terminated(self.parent_id, "FINISHED" if state == "complete" else "KILLED")


def _last_epoch(run: Any) -> int:
    """The last epoch that MLflow has of a run; version 0.1 logged it as a metric."""
    text = run.data.tags.get(EPOCH, "")
    return int(text) if text.isdecimal() else int(run.data.metrics.get("epoch", 0))


def _described(parent: Any) -> bool:
    return "dataset" in parent.data.params


def _seniority(parent: Any) -> tuple[bool, int, str]:
    """The order by which every driver keeps the same one of several parent runs: the one with
    parameters, else the oldest."""
    return not _described(parent), parent.info.start_time or 0, parent.info.run_id


def _quiet_client() -> Any:
    """MLflow's client, imported here since that is slow, with its messages silenced."""
    # A server that is away must not block the thread for minutes: the tracker repeats requests
    # itself. (The HTTP library's repetition of a request could make a second run.)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    from mlflow import MlflowClient

    # After the import, which sets levels of its own.
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # It logs a traceback for every statement that a full disk refuses; we say it once.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return MlflowClient
