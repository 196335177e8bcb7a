"""The only MLflow writer: one parent run a search, one child run a trial.

A thread of its own sends what changed in batches, off the hot path. What a server that is away
did not take is sent again later. Each start compares what MLflow has with the ledger, so that they
agree again after any crash: the ledger is the truth, this is a view of it."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dashboards.predictions import predictions_image
from dashboards.pruning import kept_kernels_image
from dashboards.quantizer import quantizer_image
from search.config import SearchConfig
from search.entry import Entry
from search.environment import environment
from search.extras import extras_of
from search.home import SearchFolder
from search.notes import RUN, note_of
from search.runs import (
    end_tags,
    experiment_name,
    first_line,
    flat_params,
    log_extras,
    role_of,
    run_name,
    tracking_uri,
)

FLUSH_SECONDS = 1.0
LONGEST_BACKOFF = 10.0
# How long the end of a search waits for a store that takes nothing, but for a server that may be
# restarting (`tracking.patience`).
CLOSE_SECONDS = 20.0
RETRY_SECONDS = 2.0
# Between two descriptions of a search that is running.
NOTE_SECONDS = 20.0
# Trials of the front whose pictures are logged, a few ten kilobytes each.
MOST_PICTURES = 40
STATUS = {"complete": "FINISHED", "pruned": "KILLED", "failed": "FAILED"}


# What `trainables.pictures` makes, by its name.
PICTURES: dict[str, Callable[[dict[str, Any], str, Path], Path]] = {
    "predictions": predictions_image,
    "quantizer": quantizer_image,
    "masks": kept_kernels_image,
}


@dataclass
class _Child:
    """What MLflow has of one trial."""

    run_id: str | None = None
    last_epoch: int = 0
    described: bool = False
    ended: bool = False
    pareto: bool | None = None


@dataclass
class _Outbox:
    """What changed since the last delivery."""

    trials: dict[str, Entry] = field(default_factory=dict)
    curves: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    parent: list[tuple[str, float, int, int]] = field(default_factory=list)
    front: set[str] | None = None


class Tracker:
    """Takes notes from the driver at once, writes them to MLflow when it can."""

    def __init__(self, config: SearchConfig, identity: str, home: Path) -> None:
        self.config = config
        self.identity = identity
        self.home = home
        self.uri = tracking_uri(config, home)
        self.last_error: str | None = None
        self.experiment_id: str | None = None
        self.parent_id: str | None = None
        self._client: Any = None
        self._children: dict[str, _Child] = {}
        self._entries: dict[str, Entry] = {}
        self._outbox = _Outbox()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._started = threading.Event()
        self._closing = False
        self._progress = 0.0
        self._patience = CLOSE_SECONDS / 2
        self._described = 0.0
        self._pictures: dict[str, dict[str, Any]] = {}
        self._front: set[str] = set()
        self._thread: threading.Thread | None = None

    # What the driver calls; none of it touches MLflow or waits.

    def start(self, entries: Iterable[Entry]) -> None:
        """Begin delivering; `entries` is all the ledger has so far."""
        self._entries = {entry.id: entry for entry in entries}
        with self._lock:
            self._outbox.trials.update(self._entries)
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def trial(self, entry: Entry) -> None:
        """A trial started or ended."""
        with self._lock:
            self._entries[entry.id] = entry
            self._outbox.trials[entry.id] = entry

    def epoch(self, entry: Entry, metrics: dict[str, float]) -> None:
        with self._lock:
            self._outbox.trials.setdefault(entry.id, entry)
            self._started.set()
            self._outbox.curves.setdefault(entry.id, []).append(metrics)

    def picture(self, entry: Entry, picture: dict[str, Any]) -> None:
        """What the trial's worker made pictures of, told when the trial has ended. They are drawn
        in the end, of the front: drawing takes time that a running search has better uses for."""
        with self._lock:
            self._pictures = {k: v for k, v in self._pictures.items() if k in self._front}
            self._pictures[entry.id] = picture

    @property
    def behind(self) -> int:
        """How many trials MLflow does not have as they are now."""
        with self._lock:
            ended = [e.id for e in self._entries.values() if e.state in STATUS]
            return sum(not self._children.get(i, _Child()).ended for i in ended)

    def search_metric(self, name: str, value: float, step: int) -> None:
        with self._lock:
            self._outbox.parent.append((name, value, int(time.time() * 1000), step))

    def front(self, trial_ids: set[str]) -> None:
        with self._lock:
            self._outbox.front = self._front = set(trial_ids)

    def close(
        self,
        state: str,
        artifacts: dict[str, str | Path],
        summary: str,
        waiting: Callable[[float], None] = lambda seconds: None,
    ) -> str | None:
        """Deliver the rest, end the parent run. Returns what went wrong, if anything did. `waiting`
        is told once that the store takes nothing, and how long it is waited for."""
        self._patience = self._patience_for(state)
        self._closing = True
        self._started.set()
        self._wake.set()
        self._progress = time.monotonic()
        try:
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(0.2)
                waiting = self._tell(waiting)
                if self._idle > self._patience + CLOSE_SECONDS / 2:
                    return self.last_error or "MLflow did not answer in time"
            if self._pending():
                return self.last_error
            while not self._finished(state, artifacts, summary):
                waiting = self._tell(waiting)
                if self._idle > self._patience:
                    return self.last_error
                time.sleep(RETRY_SECONDS)
        except KeyboardInterrupt:
            return self.last_error or "not waited for"
        return None

    def _patience_for(self, state: str) -> float:
        if state != "complete" or not self.uri.startswith("http"):
            return CLOSE_SECONDS / 2
        return self.config.tracking.patience

    @property
    def _idle(self) -> float:
        return time.monotonic() - self._progress

    def _tell(self, waiting: Callable[[float], None]) -> Callable[[float], None]:
        """Call it, the first time there is something to wait for."""
        if self.last_error is None or self._idle < CLOSE_SECONDS / 4:
            return waiting
        waiting(self._patience)
        return lambda seconds: None

    def _finished(self, state: str, artifacts: dict[str, str | Path], summary: str) -> bool:
        """Whether all that is told only in the end has been; may be tried again."""
        try:
            self._log_pictures()
            self._deliver_extras()
            self._finish_parent(state, artifacts, summary)
        except Exception as error:
            self.last_error = first_line(error)
            return False
        return True

    # The thread.

    def _work(self) -> None:
        # Importing MLflow takes seconds of CPU that the workers need to start up.
        self._started.wait()
        delay = FLUSH_SECONDS
        while True:
            try:
                self._flush()
                delay = FLUSH_SECONDS
            except Exception as error:
                self.last_error = first_line(error)
                delay = min(LONGEST_BACKOFF, 2 * delay)
                # What was on the way may have arrived: the next attempt looks again at what is
                # there, and makes no run twice.
                self._client = None
            if self._closing:
                if not self._pending() or self._idle > self._patience:
                    return
                delay = min(delay, RETRY_SECONDS)
            self._wake.wait(delay)
            if self._closing:
                self._wake.clear()

    def _pending(self) -> bool:
        with self._lock:
            box = self._outbox
            return bool(box.trials or box.curves or box.parent or box.front is not None)

    def _flush(self) -> None:
        if self._client is None:
            self._connect()
        with self._lock:
            box, self._outbox = self._outbox, _Outbox()
        try:
            refused = self._deliver_all(box)
            if box.front is not None:
                self._tag_front(box.front)
                self._describe(box.front, box.parent)
                box.front = None
            if box.parent:
                self._log(self.parent_id, metrics=box.parent)
                box.parent = []
            if refused is not None:
                raise refused
        except Exception:
            self._put_back(box)
            raise

    def _deliver_all(self, box: _Outbox) -> Exception | None:
        """Every trial that can be delivered, even when MLflow refuses one of them: that one stays
        in the box, and what was said of it is returned."""
        refused: Exception | None = None
        for trial_id in list(box.trials):
            try:
                self._deliver(box.trials[trial_id], box.curves.get(trial_id, []))
            except Exception as error:
                refused = error
                continue
            self._progress = time.monotonic()
            box.trials.pop(trial_id)
            box.curves.pop(trial_id, None)
        return refused

    def _put_back(self, box: _Outbox) -> None:
        with self._lock:
            new = self._outbox
            new.trials = {**box.trials, **new.trials}
            for trial_id, rows in box.curves.items():
                new.curves[trial_id] = rows + new.curves.get(trial_id, [])
            new.parent = box.parent + new.parent
            new.front = box.front if new.front is None else new.front

    def _connect(self) -> None:
        # A server that is away must not hold the thread for minutes: it tries again itself.
        # (A request that is repeated by the HTTP library could make a second run.)
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        import logging

        from mlflow import MlflowClient

        # After the import, which sets levels of its own.
        for name in ("alembic", "mlflow"):
            logging.getLogger(name).setLevel(logging.ERROR)
        # A traceback for every statement that a full disk refuses; we say once what is wrong.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)

        self._make_database(MlflowClient)
        client = MlflowClient(self.uri)
        first = self.experiment_id is None
        self.experiment_id = self._experiment(client)
        self.parent_id = self._parent(client)
        self._children = self._known_children(client)
        with self._lock:
            for entry in self._entries.values():
                known = self._children.get(entry.id)
                if known is None or not known.ended:
                    self._outbox.trials.setdefault(entry.id, entry)
        self._client = client
        if first:  # another one is no progress: it follows a failure
            self._progress = time.monotonic()

    def _make_database(self, client: Any) -> None:
        """A new SQLite store, whole or not at all: MLflow creates its tables in many steps, and a
        driver killed between two of them would leave a file that nothing can open."""
        path = Path(self.uri.removeprefix("sqlite:///"))
        if not self.uri.startswith("sqlite:///") or path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another name at every attempt: a disk that is full leaves some of the tables, and MLflow
        # remembers by its name that it has made them.
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        try:
            client(f"sqlite:///{part}").search_experiments(max_results=1)
            if not path.exists():
                part.rename(path)
        finally:
            for left in path.parent.glob(f"{part.name}*"):
                left.unlink(missing_ok=True)

    def _experiment(self, client: Any) -> str:
        name = experiment_name(self.config)
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        location = None
        if self.uri.startswith("sqlite"):
            # MLflow's own default is ./mlruns of whoever happens to write first.
            folder = re.sub(r"^\.+|/", "_", name)
            location = (self.home / "mlartifacts" / folder).as_uri()
        made = str(client.create_experiment(name, artifact_location=location))
        # Else the UI guesses, and may show the pages for language models.
        client.set_experiment_tag(made, "mlflow.experimentKind", "custom_model_development")
        return made

    def _parent(self, client: Any) -> str:
        runs = client.search_runs(
            [self.experiment_id],
            f"tags.`bitfront.search_id` = '{self.identity}' and tags.`bitfront.kind` = 'search'",
            max_results=1,
        )
        if runs:
            run_id = str(runs[0].info.run_id)
            client.update_run(run_id, status="RUNNING")
            if "dataset" not in runs[0].data.params:  # whoever made it was cut off
                self._describe_parent(client, run_id)
            return run_id
        tags = {
            "mlflow.runName": self.config.name,
            "mlflow.note.content": note_of(self.config, (), (), None),
            "state": "running",
            "bitfront.search": self.config.name,
            "bitfront.search_id": self.identity,
            "bitfront.kind": "search",
            **{f"bitfront.{name}": text for name, text in environment().items()},
        }
        run_id = str(client.create_run(self.experiment_id, tags=tags).info.run_id)
        self._describe_parent(client, run_id)
        return run_id

    def _describe_parent(self, client: Any, run_id: str) -> None:
        from mlflow.entities import Param

        config = self.config
        params = {
            "dataset": config.task.dataset,
            "model": config.task.model.name,
            "epochs": config.task.epochs,
            "sampler": config.search.sampler,
            "trials": config.search.trials,
            "objectives": ", ".join(f"{k} {v}" for k, v in config.objectives.items()),
        }
        client.log_text(run_id, config.dump(), "search.yaml")
        client.log_batch(run_id, params=[Param(k, str(v)) for k, v in params.items()])

    def _known_children(self, client: Any) -> dict[str, _Child]:
        children: dict[str, _Child] = {}
        token = None
        while True:
            page = client.search_runs(
                [self.experiment_id],
                f"tags.`bitfront.search_id` = '{self.identity}' and tags.`bitfront.kind` = 'trial'",
                max_results=1000,
                page_token=token,
            )
            for run in page:
                tags = run.data.tags
                child = _Child(
                    run_id=run.info.run_id,
                    last_epoch=int(run.data.metrics.get("epoch", 0)),
                    described="method" in run.data.params,
                    ended=run.info.status != "RUNNING",
                    pareto=tags.get("pareto") == "true",
                )
                twin = children.get(tags["bitfront.trial"])
                if twin is not None:
                    # The answer to its making was lost on the way, and it was made again.
                    kept, spare = (twin, child) if twin.ended else (child, twin)
                    client.delete_run(spare.run_id)
                    child = kept
                children[tags["bitfront.trial"]] = child
            token = page.token
            if not token:
                return children

    def _deliver(self, entry: Entry, rows: list[dict[str, float]]) -> None:
        """Bring the trial's run up to date. Sending the same twice changes nothing."""
        child = self._children.setdefault(entry.id, _Child())
        if child.ended:
            return
        ended = entry.state in STATUS
        tags = end_tags(entry) if ended else {}
        if child.run_id is None:
            run = self._client.create_run(
                self.experiment_id,
                start_time=int((entry.started or time.time()) * 1000),
                tags={
                    "mlflow.parentRunId": self.parent_id,
                    "mlflow.runName": run_name(entry),
                    "bitfront.kind": "trial",
                    "bitfront.trial": entry.id,
                    "bitfront.search": self.config.name,
                    "bitfront.search_id": self.identity,
                    "method": entry.spec.method,
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
        # An epoch may have been told twice, by two workers one after the other.
        once = {row.get("epoch"): row for row in rows}
        history = entry.history if ended and entry.history else list(once.values())
        metrics = [
            (name, float(value), now, int(row["epoch"]))
            for row in history
            if row.get("epoch", 0) > child.last_epoch
            for name, value in row.items()
        ]
        params: dict[str, str] = {}
        if not child.described:
            params = flat_params(entry)
            metrics += [(name, float(value), now, 0) for name, value in entry.costs.items()]
        self._log(child.run_id, metrics, params, tags)
        child.described = True
        child.last_epoch = max(
            [child.last_epoch, *(int(row["epoch"]) for row in history if "epoch" in row)]
        )
        if ended:
            end = int((entry.ended or time.time()) * 1000)
            self._client.set_terminated(child.run_id, STATUS[entry.state], end)
            child.ended = True

    def _log(
        self,
        run_id: str | None,
        metrics: list[tuple[str, float, int, int]] | None = None,
        params: dict[str, str] | None = None,
        tags: dict[str, str] | None = None,
    ) -> None:
        """As few requests as MLflow's limits allow: 1,000 metrics, 100 parameters, 100 tags."""
        from mlflow.entities import Metric, Param, RunTag

        measured = [Metric(*m) for m in metrics or []]
        named = [Param(k, v[:6000]) for k, v in (params or {}).items()]
        tagged = [RunTag(k, v) for k, v in (tags or {}).items()]
        # One request takes at most 1,000 items of all kinds together.
        for start in range(0, max(len(measured), len(named), len(tagged), 1), 800):
            here = slice(start, start + 800)
            batch = (measured[here], named[:100] if not start else [], tagged if not start else [])
            if any(batch):
                self._client.log_batch(run_id, *batch)
        for start in range(100, len(named), 100):
            self._client.log_batch(run_id, params=named[start : start + 100])

    def _tag_front(self, front: set[str]) -> None:
        for trial_id, child in self._children.items():
            on_front = trial_id in front
            if child.run_id is not None and child.pareto is not on_front:
                if on_front or child.pareto:
                    self._client.set_tag(child.run_id, "pareto", str(on_front).lower())
                child.pareto = on_front

    def _log_pictures(self) -> None:
        """Of the front's trials."""
        members = [key for key in self._pictures if key in self._front][:MOST_PICTURES]
        for key in members:
            run_id, title = self._children[key].run_id, run_name(self._entries[key])
            with tempfile.TemporaryDirectory() as folder:
                for name, data in self._pictures[key].items():
                    file = PICTURES[name](data, title, Path(folder) / f"{name}.png")
                    self._client.log_artifact(run_id, str(file))

    def _describe(self, front: set[str], parent: list[tuple[str, float, int, int]]) -> None:
        """Keep the parent's description in step with the front, now and then."""
        if time.monotonic() - self._described < NOTE_SECONDS:
            return
        self._described = time.monotonic()
        with self._lock:
            entries = list(self._entries.values())
        members = sorted(
            (e for e in entries if e.id in front), key=lambda e: e.costs.get("flops", 0.0)
        )
        share = next((value for name, value, *_ in reversed(parent) if name == "hypervolume"), None)
        note = note_of(self.config, entries, members, share)
        self._client.set_tag(self.parent_id, "mlflow.note.content", note)

    def _deliver_extras(self) -> None:
        """Selectors, stages and final trainings that have no run yet."""
        folder = SearchFolder(self.home / self.config.name)
        extras = extras_of(folder, list(self._entries.values()))
        if extras:
            log_extras(self._client, self.experiment_id, self.parent_id, self.identity, extras)

    def _finish_parent(self, state: str, artifacts: dict[str, str | Path], summary: str) -> None:
        for name, content in artifacts.items():
            if isinstance(content, Path):
                self._client.log_artifact(self.parent_id, str(content))
            else:
                self._client.log_text(self.parent_id, content, name)
        note = summary.replace(RUN, str(self.parent_id))
        self._client.set_tag(self.parent_id, "mlflow.note.content", note)
        self._client.set_tag(self.parent_id, "state", state)
        self._client.set_terminated(self.parent_id, "FINISHED" if state == "complete" else "KILLED")
