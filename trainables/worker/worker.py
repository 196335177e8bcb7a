"""The Ray Tune trainable: one actor, many trials. It turns a spec into a `Training`, reports an
epoch a step, keeps the trial's checkpoint and turns every fault into a reason."""

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
from bitfront.trainables.data import lend
from bitfront.trainables.errors import first_line
from bitfront.trainables.files import write_atomically
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.telling import heard_by
from bitfront.trainables.worker import gpu, storage
from bitfront.trainables.worker.log import limit_log, shorten_log
from bitfront.trainables.worker.memory import limit_memory

STATE_FILE = "state.pt"
# How long the storage of checkpoints is waited for when a trial begins.
FETCH_SECONDS = 60.0


class Worker(tune.Trainable):
    """Built anew from each config; nothing of the trial before survives `reset_config`.

    Faults are results, not exceptions: Ray would end the actor and lose the seconds it took to
    import torch. What Ray sees as an error is a process that died.
    """

    def setup(self, config: dict[str, Any], lent: dict[str, list[Any]] | None = None) -> None:
        """`lent`: data sets in Ray's object store, a reference each; a node holds them once for
        all its workers. They are fetched when the first trial wants them."""
        for name, references in (lent or {}).items():
            lend(name, partial(_arrays, references[0]))
        self._begin(config)
        if self._stored is not None:
            forget_dead(self._state.parent.parent)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The trial before is over and in the ledger, and this disk may be out of the driver's
        reach."""
        _forget(self._state.parent)
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        """Cheap on purpose: the network is built by the first step. An actor that took seconds to
        be ready would be given up by Tune as soon as another one comes free."""
        self._config = config
        self._training: Any = None
        self._resumed_from = 0
        self._just_resumed = False
        self._not_read: str | None = None
        self._damaged: str | None = None
        self._state, self._stored = places(str(config["folder"]))
        self._every = int(config.get("checkpoint_every", 1))

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
        cache = config.get("stages")
        pretrained = training.PretrainedCache(Path(cache)) if cache is not None else None
        data = training.search_data(spec.task)
        self._training = training.Training(spec, *data, device, pretrained=pretrained)
        if self._stored is not None:
            self._not_read = fetch(self._stored, self._state)
        if training.load_state(self._training, self._state, self._note_damage):
            self._resumed_from = self._training.epochs_done
            self._just_resumed = True

    def step(self) -> dict[str, Any]:
        try:
            # Stages that come before the first epoch are trained within it.
            with heard_by(partial(note_for_driver, str(self._config.get("board", "")))):
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
        if run.done:
            run.network.verify()
            # As text: Ray takes nested results apart before a searcher sees them.
            metrics["picture"] = json.dumps(training.pictures_of(run))
        if run.done or self._just_resumed:
            # The driver may be another one than that which heard of the earlier epochs.
            metrics["history"] = list(run.history)
            self._just_resumed = False
        if not run.done and run.epochs_done % self._every == 0:
            metrics |= self._save()
        if self._not_read is not None:
            metrics["not_saved"], self._not_read = self._not_read, None
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

    def _note_damage(self, reason: str) -> None:
        self._damaged = reason
        print(f"trial {self._config.get('trial', '')}: {reason}", file=sys.stderr)

    def _save(self) -> dict[str, str]:
        """Keep the checkpoint. Where the disk is full or away the trial goes on without: it would
        only begin again if its worker died too."""
        try:
            training.save_state(self._training, self._state)
            if self._stored is not None:
                storage.write(self._stored, self._state.read_bytes())
        except Exception as error:  # torch and every object store have faults of their own
            return {"not_saved": f"{self._stored or self._state}: {first_line(error)[:300]}"}
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
    """Of Ray, which is started by asking when it is not there."""
    return ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE


def note_for_driver(key: str, text: str) -> None:
    """Where the driver looks for what a trial does before its first epoch: in Ray's own store."""
    if key and _is_worker():
        from ray.experimental.internal_kv import _internal_kv_put

        with contextlib.suppress(Exception):
            _internal_kv_put(key.encode(), text.encode(), overwrite=True, namespace=b"bitfront")


def _arrays(reference: Any) -> Any:
    return ray.get(reference)


def places(folder: str) -> tuple[Path, str | None]:
    """Where a trial's checkpoint is written, and where that is copied to when it is kept in an
    object store. One file on this disk serves all trials of a worker, one after another."""
    if not storage.is_url(folder):
        return Path(folder) / STATE_FILE, None
    here = Path(tempfile.gettempdir()) / f"bitfront-{os.getuid()}" / str(os.getpid())
    return here / STATE_FILE, storage.join(folder, STATE_FILE)


def _forget(folder: Path) -> None:
    """What cannot be deleted stays."""
    with contextlib.suppress(OSError):
        storage.forget_here(folder)


def forget_dead(folder: Path) -> None:
    """Delete the files of workers that were killed, which lie below their process ids."""
    for path in folder.glob("*"):
        try:
            os.kill(int(path.name), 0)
        except ProcessLookupError:
            _forget(path)
        except (PermissionError, ValueError, OverflowError):  # somebody else's, or nobody's
            continue


def fetch(stored: str, state: Path, patience: float = FETCH_SECONDS) -> str | None:
    """The checkpoint of this trial on this disk, and no other's. A storage that is away is waited
    for; when it stays away the trial begins anew, to the same end. What is wrong is returned."""
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
    """What the trial before left in cycles. After the first trial everything is imported, and the
    half million objects of that are set aside: looking at them again for every trial would take a
    quarter of a second."""
    global _built
    _built += 1
    if _built > 1:
        gc.collect()
    if _built == 2:
        gc.freeze()
        atexit.register(gc.unfreeze)  # or extension modules report leaks at exit


def failure(error: BaseException) -> dict[str, Any]:
    """A fault as the last result of a trial, with the reason the ledger counts by."""
    text = "".join(traceback.format_exception_only(error)).strip()
    where = traceback.format_exception(error)
    return {
        "failure": reason_of(error),
        "message": text[-2000:],
        "traceback": "".join(where)[-8000:],
        "done": True,
    }


def reason_of(error: BaseException) -> str:
    """nan, oom or error."""
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
