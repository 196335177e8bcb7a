"""The Ray Tune trainable: one actor runs many trials, one after another. It builds a training run
from a spec, reports one epoch per step, writes the trial's checkpoint and reports every exception
as a result with a reason."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import sys
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune

from bitfront.trainables import training
from bitfront.trainables.data import PartName, lend
from bitfront.trainables.errors import first_line
from bitfront.trainables.files import write_atomically
from bitfront.trainables.own_code import Bundle, unpack
from bitfront.trainables.progress import reporting_to
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.worker import gpu, storage
from bitfront.trainables.worker.log import limit_log, shorten_log
from bitfront.trainables.worker.memory import limit_memory

STATE_FILE = "state.pt"
# How long a trial waits at its start for the storage of checkpoints.
FETCH_SECONDS = 60.0
# By name of a dataset and of its part, a list with one reference.
Lent = dict[str, dict[PartName, list[Any]]]


class Worker(tune.Trainable):
    """The Ray actor. `reset_config` replaces the whole state of the trial before.

    Faults are reported as results, not as exceptions: for an exception Ray would end the actor, and
    the next one would import torch again, which takes seconds. Only a process that dies is an error
    to Ray."""

    def setup(
        self,
        config: dict[str, Any],
        lent: Lent | None = None,
        code: Bundle | None = None,
    ) -> None:
        """Prepare the first trial. `lent`: references to datasets in Ray's object store, where a
        node holds them once for all its workers; they are fetched when a trial first needs them.
        `code`: code of the user's own that trials run."""
        if code is not None:
            unpack(code)
        for name, parts in (lent or {}).items():
            for part, references in parts.items():
                lend(name, part, partial(_arrays, references[0]))
        self._begin(config)
        if self._stored is not None:
            forget_dead(self._state.parent.parent)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial. The end of the trial before is in the ledger; its files are deleted
        here, since the driver may have no access to this disk. One that rests at a rung keeps its
        own."""
        if self._stored is not None or not self._rests:
            _forget(self._state.parent)
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        """Store the config; the first step builds the network. An actor that took seconds to be
        ready would be given up by Tune as soon as another one is free."""
        self._config = config
        self._training: Any = None
        self._resumed_from = 0
        self._just_resumed = False
        self._not_read: str | None = None
        self._damaged: str | None = None
        self._state, self._stored = places(str(config["folder"]))
        self._not_inherited: str | None = None
        # Where this trial leaves its weights, and whose weights it begins with.
        self._bequest: str | None = config.get("bequest")
        self._look: dict[str, Any] | None = config.get("look")
        if self._look is not None:
            self._state, self._stored = places(str(self._look["folder"]))
        self._every = int(config.get("checkpoint_every", 1))
        self._rungs: list[int] = config.get("rungs", [])

    def _build(self) -> None:
        import torch

        _collect_garbage()
        config = self._config
        limit_memory(config.get("memory"))
        if _is_worker():
            limit_log(config.get("log_mb"))
        torch.set_num_threads(max(1, int(config.get("threads", 1))))
        device = training.device_from_resources(float(config.get("gpus", 0)))
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch.backends.cudnn.deterministic = True
        spec = TrialSpec.model_validate(config["spec"])
        # The folder keeps the name it had in version 0.1.
        cache = config.get("pretrained")
        pretrained = training.PretrainedCache(Path(cache)) if cache is not None else None
        data = training.search_data(spec.task)
        start = partial(training.Training, pretrained=pretrained)
        if self._look is not None:
            self._training = start(training.look_spec(spec, self._look["epochs"]), *data, device)
            if self._resume() or self._inherit(self._look):
                return
            self._look = None
            self._state, self._stored = places(str(config["folder"]))
        self._training = start(spec, *data, device)
        self._resume()

    def _resume(self) -> bool:
        """Continue from the checkpoint of this trial, if there is one; returns whether there
        was."""
        if self._stored is not None:
            self._not_read = fetch(self._stored, self._state)
        if training.load_state(self._training, self._state, self._note_damage):
            self._resumed_from = self._training.epochs_done
            self._just_resumed = True
        return self._just_resumed

    def _inherit(self, look: dict[str, Any]) -> bool:
        """Give the run the weights of another trial; returns whether they are there. Without them
        the trial is trained from scratch, and its result says so."""
        try:
            content = storage.read(look["weights"])
            reason = "they are not there"
            if content is not None:
                self._training.inherited = training.opened_bequest(content)
                return True
        except Exception as error:  # torch and every object store have faults of their own
            reason = first_line(error)[:200]
        self._not_inherited = f"no weights of trial {look['parent']} ({reason}): it began anew"
        return False

    def step(self) -> dict[str, Any]:
        try:
            # Pretraining takes place within the first epoch.
            with reporting_to(partial(note_for_driver, str(self._config.get("board", "")))):
                if self._training is None:
                    self._build()
                return self._epoch()
        except Exception as error:
            self._training = None
            return failure(error)
        finally:
            shorten_log()

    def _epoch(self) -> dict[str, Any]:
        run = self._training
        metrics = dict(run.history[-1] if run.done else run.epoch())
        metrics["measured"] = list(metrics)
        if run.done and self._look is None:
            run.network.verify()
            # As text: Ray flattens nested results before a searcher gets them.
            metrics["picture"] = json.dumps(training.pictures_of(run))
            metrics |= self._leave()
        if run.done or self._just_resumed:
            # The driver may not be the one that received the earlier epochs.
            metrics["history"] = list(run.history)
            self._just_resumed = False
        if not run.done and (self._rests or run.epochs_done % self._every == 0):
            metrics |= self._save()
        if self._rests and self._state.exists():
            metrics["kept_bytes"] = self._state.stat().st_size
        if self._not_read is not None:
            metrics["not_saved"], self._not_read = self._not_read, None
        if self._not_inherited is not None:
            metrics["not_inherited"], self._not_inherited = self._not_inherited, None
        if self._damaged is not None:
            metrics["damaged"], self._damaged = self._damaged, None
        if self._config.get("measure"):
            memory = gpu.gpu_memory(run.device)
            if memory is not None:
                metrics["gpu_memory"] = memory
        return {
            **metrics,
            "resumed_from": self._resumed_from,
            "worker": os.getpid(),
            "done": run.done,
        }

    @property
    def _rests(self) -> bool:
        """Whether the trial has come to an epoch at which it may pause."""
        run = self._training
        return run is not None and not run.done and run.epochs_done in self._rungs

    def _note_damage(self, reason: str) -> None:
        self._damaged = reason
        print(f"trial {self._config.get('trial', '')}: {reason}", file=sys.stderr)

    def _save(self) -> dict[str, str]:
        """Write the checkpoint; returns what went wrong, or {}. Where the disk is full or missing,
        the trial continues without a checkpoint: it starts over only if its worker dies as well."""
        try:
            training.save_state(self._training, self._state)
            if self._stored is not None:
                storage.write(self._stored, self._state.read_bytes())
        except Exception as error:  # torch and every object store have faults of their own
            return {"not_saved": f"{self._stored or self._state}: {first_line(error)[:300]}"}
        return {}

    def _leave(self) -> dict[str, str]:
        """Write the weights for others to begin with; returns what went wrong, or {}."""
        if self._bequest is None:
            return {}
        try:
            storage.write(self._bequest, training.bequest(self._training.model))
        except Exception as error:  # every object store has faults of its own
            return {"not_saved": f"{self._bequest}: {first_line(error)[:300]}"}
        return {}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        if self._training is None:
            self._build()
        training.save_state(self._training, Path(checkpoint_dir) / STATE_FILE)

    def load_checkpoint(self, checkpoint: Any) -> None:
        folder = checkpoint if isinstance(checkpoint, str) else checkpoint.path
        self._build()
        training.load_state(self._training, Path(folder) / STATE_FILE, self._note_damage)

    def cleanup(self) -> None:
        self._training = None
        if self._stored is not None:
            _forget(self._state.parent)


def _is_worker() -> bool:
    """Whether this process is a worker of Ray. Asking Ray's runtime context alone would start
    Ray."""
    return ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE


def note_for_driver(key: str, text: str) -> None:
    """Write the progress of a trial before its first epoch to Ray's key-value store, from which the
    driver reads it."""
    if key and _is_worker():
        from ray.experimental.internal_kv import _internal_kv_put

        with contextlib.suppress(Exception):
            _internal_kv_put(key.encode(), text.encode(), overwrite=True, namespace=b"bitfront")


def _arrays(reference: Any) -> Any:
    return ray.get(reference)


def places(folder: str) -> tuple[Path, str | None]:
    """(path a trial's checkpoint is written to, URL it is copied to or None). With an object store
    all trials of a worker, one after another, use the same local file."""
    if not storage.is_url(folder):
        return Path(folder) / STATE_FILE, None
    here = Path(tempfile.gettempdir()) / f"bitfront-{os.getuid()}" / str(os.getpid())
    return here / STATE_FILE, storage.join(folder, STATE_FILE)


def _forget(folder: Path) -> None:
    """Delete the files of a trial; what cannot be deleted stays."""
    with contextlib.suppress(OSError):
        storage.forget_here(folder)


def forget_dead(folder: Path) -> None:
    """Delete the files of workers that were killed, which are in folders named by process id."""
    for path in folder.glob("*"):
        try:
            os.kill(int(path.name), 0)
        except ProcessLookupError:
            _forget(path)
        except (PermissionError, ValueError, OverflowError):  # another user's, or not an id
            continue


def fetch(stored: str, state: Path, patience: float = FETCH_SECONDS) -> str | None:
    """Copy this trial's checkpoint, if there is one, from the storage to this disk; returns what
    went wrong, or None. A storage that does not answer is retried for `patience` seconds; after
    that the trial starts over, with the same result."""
    state.unlink(missing_ok=True)
    deadline, pause = time.monotonic() + patience, 0.5
    while True:
        try:
            content = storage.read(stored)
            break
        except Exception as error:  # every object store has faults of its own
            if time.monotonic() + pause > deadline:
                return f"{stored}: {first_line(error)[:300]}"
        time.sleep(pause)
        pause = min(10.0, 2 * pause)
    if content is not None:
        write_atomically(state, content)
    return None


_built = 0


def _collect_garbage() -> None:
    """Collect the reference cycles that the trial before left. After the first trial everything is
    imported; these half million objects are then frozen, since scanning them for every trial would
    take a quarter of a second."""
    global _built
    _built += 1
    if _built > 1:
        gc.collect()
    if _built == 2:
        gc.freeze()
        atexit.register(gc.unfreeze)  # or extension modules report leaks at exit


def failure(error: BaseException) -> dict[str, Any]:
    """The last result of a trial that failed, with the reason that is stored in the ledger."""
    text = "".join(traceback.format_exception_only(error)).strip()
    where = traceback.format_exception(error)
    return {
        "failure": reason_of(error),
        "message": text[-2000:],
        "traceback": "".join(where)[-8000:],
        "done": True,
    }


def reason_of(error: BaseException) -> str:
    """The reason of a failure: nan, oom or error."""
    if type(error).__name__ == "DivergedError":
        return "nan"
    text = str(error).lower()
    if (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "out of memory" in text
        or "can't allocate memory" in text
        or "not enough memory" in text
    ):
        return "oom"
    return "error"
