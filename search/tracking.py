"""The only MLflow writer: one parent run a search, one child run a trial.

A thread of its own sends what changed in batches, off the hot path. What a server that is away
did not take is sent again later. Each start compares what MLflow has with the ledger, so that they
agree again after any crash: the ledger is the truth, this is a view of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dashboards.predictions import predictions_html
from search.config import SearchConfig
from search.environment import environment
from search.study import Entry
from trainables.kinds import kind_of
from trainables.methods import METHODS
from trainables.registry import UserError

FLUSH_SECONDS = 1.0
LONGEST_BACKOFF = 30.0
CLOSE_SECONDS = 20.0
STATUS = {"complete": "FINISHED", "pruned": "KILLED", "failed": "FAILED"}


def tracking_uri(config: SearchConfig, home: Path) -> str:
    """The YAML, else MLFLOW_TRACKING_URI, else a SQLite file beside the searches."""
    default = f"sqlite:///{home / 'mlflow.db'}"
    return config.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or default


def fetch_artifact(artifact: str, uri: str, folder: Path) -> Path:
    """A file of an MLflow run (`runs:/RUN/FILE`), copied into `folder`."""
    import mlflow

    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = mlflow.artifacts.download_artifacts(
            artifact, dst_path=str(folder), tracking_uri=uri
        )
    except Exception as error:  # every store has its own types
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{artifact}: MLflow at {uri} does not have it: {first}") from None
    path = Path(found)
    if not path.is_file():
        raise UserError(f"{artifact}: a folder; name the file of the weights in it")
    return path


def experiment_name(config: SearchConfig) -> str:
    return config.tracking.experiment or f"{config.task.dataset} {config.task.model.name}"


def run_name(entry: Entry) -> str:
    """Readable in a list: number, method, share of the flops, accuracy or other quality."""
    name = f"t{entry.number:04d} {entry.spec.method} {entry.costs['flops_pct']:.0f} %"
    quality = kind_of(entry.spec.task.dataset).quality
    value = entry.metrics.get(quality.name)
    return f"{name} {quality.number(value, 1)}" if value is not None else name


def end_tags(entry: Entry) -> dict[str, str]:
    """What is known of a trial when it has ended."""
    tags = {"state": entry.state, "mlflow.runName": run_name(entry)}
    if entry.failure:
        tags |= {"failure": entry.failure, "message": (entry.message or "")[:500]}
    return tags


def flat_params(entry: Entry) -> dict[str, str]:
    """A trial's parameters for MLflow: what makes it this trial. What all trials of a search share
    is in the parent's search.yaml; in the columns of a comparison it would be noise."""
    spec = entry.spec
    flat = {"method": spec.method, "plan": spec.plan, "seed": str(spec.seed)}
    # Not by the method's own name: MLflow takes no '+' in a key.
    flat |= {f"method.{name}": str(value) for name, value in spec.params.items()}
    drawn = {k: str(v) for k, v in entry.drawn.items() if k.rpartition(".")[0] not in METHODS}
    return drawn | flat


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
    pictures: dict[str, dict[str, Any]] = field(default_factory=dict)
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
            self._outbox.trials[entry.id] = entry

    def epoch(self, entry: Entry, metrics: dict[str, float]) -> None:
        with self._lock:
            self._outbox.trials.setdefault(entry.id, entry)
            self._started.set()
            self._outbox.curves.setdefault(entry.id, []).append(metrics)

    def picture(self, entry: Entry, picture: dict[str, Any]) -> None:
        """What the trial's network predicts over its inputs, told when it has ended."""
        with self._lock:
            self._outbox.trials.setdefault(entry.id, entry)
            self._outbox.pictures[entry.id] = picture

    def search_metric(self, name: str, value: float, step: int) -> None:
        with self._lock:
            self._outbox.parent.append((name, value, int(time.time() * 1000), step))

    def front(self, trial_ids: set[str]) -> None:
        with self._lock:
            self._outbox.front = set(trial_ids)

    def close(self, state: str, artifacts: dict[str, str | Path], summary: str) -> str | None:
        """Deliver the rest, end the parent run. Returns what went wrong, if anything did."""
        self._closing = True
        self._started.set()
        self._wake.set()
        if self._thread is not None:
            self._progress = time.monotonic()
            while self._thread.is_alive():
                self._thread.join(0.2)
                if time.monotonic() - self._progress > CLOSE_SECONDS:
                    return self.last_error or "MLflow did not answer in time"
        if self._pending():
            return self.last_error
        try:
            self._finish_parent(state, artifacts, summary)
        except Exception as error:
            self.last_error = _first_line(error)
            return self.last_error
        return None

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
                self.last_error = _first_line(error)
                delay = min(LONGEST_BACKOFF, 2 * delay)
            if self._closing:
                idle = time.monotonic() - self._progress
                if not self._pending() or idle > CLOSE_SECONDS / 2:
                    return
                delay = min(delay, 2.0)
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
            if box.parent:
                self._log(self.parent_id, metrics=box.parent)
                box.parent = []
            if box.front is not None:
                self._tag_front(box.front)
                box.front = None
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
                rows, picture = box.curves.get(trial_id, []), box.pictures.get(trial_id)
                self._deliver(box.trials[trial_id], rows, picture)
            except Exception as error:
                refused = error
                continue
            self._progress = time.monotonic()
            box.trials.pop(trial_id)
            box.curves.pop(trial_id, None)
            box.pictures.pop(trial_id, None)
        return refused

    def _put_back(self, box: _Outbox) -> None:
        with self._lock:
            new = self._outbox
            new.trials = {**box.trials, **new.trials}
            for trial_id, rows in box.curves.items():
                new.curves[trial_id] = rows + new.curves.get(trial_id, [])
            new.pictures = {**box.pictures, **new.pictures}
            new.parent = box.parent + new.parent
            new.front = box.front if new.front is None else new.front

    def _connect(self) -> None:
        # A server that is away must not hold the thread for minutes: it tries again itself.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        import logging

        from mlflow import MlflowClient

        # After the import, which sets levels of its own.
        for name in ("alembic", "mlflow", "mlflow.store.db.utils"):
            logging.getLogger(name).setLevel(logging.ERROR)

        self._make_database(MlflowClient)
        client = MlflowClient(self.uri)
        self.experiment_id = self._experiment(client)
        self.parent_id = self._parent(client)
        self._children = self._known_children(client)
        self._client = client
        self._progress = time.monotonic()

    def _make_database(self, client: Any) -> None:
        """A new SQLite store, whole or not at all: MLflow creates its tables in many steps, and a
        driver killed between two of them would leave a file that nothing can open."""
        path = Path(self.uri.removeprefix("sqlite:///"))
        if not self.uri.startswith("sqlite:///") or path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        client(f"sqlite:///{part}").search_experiments(max_results=1)
        if not path.exists():
            part.rename(path)

    def _experiment(self, client: Any) -> str:
        name = experiment_name(self.config)
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        location = None
        if self.uri.startswith("sqlite"):
            # MLflow's own default is ./mlruns of whoever happens to write first.
            location = (self.home / "mlartifacts" / name.replace("/", "_")).as_uri()
        return str(client.create_experiment(name, artifact_location=location))

    def _parent(self, client: Any) -> str:
        runs = client.search_runs(
            [self.experiment_id],
            f"tags.`bitfront.search_id` = '{self.identity}' and tags.`bitfront.kind` = 'search'",
            max_results=1,
        )
        if runs:
            run_id = str(runs[0].info.run_id)
            client.update_run(run_id, status="RUNNING")
            return run_id
        from mlflow.entities import Param

        tags = {
            "mlflow.runName": self.config.name,
            "bitfront.search": self.config.name,
            "bitfront.search_id": self.identity,
            "bitfront.kind": "search",
            **{f"bitfront.{name}": text for name, text in environment().items()},
        }
        run = client.create_run(self.experiment_id, tags=tags)
        config = self.config
        params = {
            "dataset": config.task.dataset,
            "model": config.task.model.name,
            "epochs": config.task.epochs,
            "sampler": config.search.sampler,
            "trials": config.search.trials,
            "objectives": ", ".join(f"{k} {v}" for k, v in config.objectives.items()),
        }
        client.log_batch(run.info.run_id, params=[Param(k, str(v)) for k, v in params.items()])
        client.log_text(run.info.run_id, config.dump(), "search.yaml")
        return str(run.info.run_id)

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
                children[tags["bitfront.trial"]] = _Child(
                    run_id=run.info.run_id,
                    last_epoch=int(run.data.metrics.get("epoch", 0)),
                    described="method" in run.data.params,
                    ended=run.info.status != "RUNNING",
                    pareto=tags.get("pareto") == "true",
                )
            token = page.token
            if not token:
                return children

    def _deliver(
        self,
        entry: Entry,
        rows: list[dict[str, float]],
        picture: dict[str, Any] | None = None,
    ) -> None:
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
                    **tags,
                },
            )
            child.run_id = run.info.run_id
            tags = {}
        now = int(time.time() * 1000)
        history = entry.history if ended and entry.history else rows
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
        if picture is not None:
            page = predictions_html(picture, run_name(entry))
            self._client.log_text(child.run_id, page, "predictions.html")
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

    def _finish_parent(self, state: str, artifacts: dict[str, str | Path], summary: str) -> None:
        for name, content in artifacts.items():
            if isinstance(content, Path):
                self._client.log_artifact(self.parent_id, str(content))
            else:
                self._client.log_text(self.parent_id, content, name)
        self._client.set_tag(self.parent_id, "mlflow.note.content", summary)
        self._client.set_tag(self.parent_id, "state", state)
        self._client.set_terminated(self.parent_id, "FINISHED" if state == "complete" else "KILLED")


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]
