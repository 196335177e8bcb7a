"""Starting and continuing a search: run, resume and extend are one path, because the ledger says
what is left to do."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bitfront.search import named
from bitfront.search.cluster import head
from bitfront.search.cluster.resources import check_here
from bitfront.search.config.load import load_text
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.settle import MLFLOW_RUN
from bitfront.search.ledger.disks import network_disk
from bitfront.search.ledger.folder import (
    LEDGER,
    SearchFolder,
    is_name,
    selections_folder,
    stages_folder,
    write_atomically,
    writing,
)
from bitfront.search.results.results import Results, stored_config
from bitfront.search.session.beginning import Beginning, forget_former, has_trials, missing_folders
from bitfront.search.session.interrupts import asked_to_end, ending_gently
from bitfront.search.session.status_line import StatusLine
from bitfront.search.tracking.notes import SMALL_FRONT, note_of
from bitfront.search.urls import canonical, redacted, with_whole_path, without_secrets
from bitfront.spaces.space import Space
from bitfront.terminal import tables as terminal
from bitfront.terminal.summary import front_summary, next_commands
from bitfront.trainables.errors import UserError

# What may differ between two turns at the same search: how much, where and how it is shown.
# A checkpoint is known by its hash, not by where it lies.
MAY_CHANGE = (
    "search.trials",
    "resources",
    "storage",
    "tracking",
    "description",
    "task.data_dir",
    "task.pretrain.checkpoint",
    "task.loss.distill.teacher",
    "paper",
)
# Trials that MLflow still lacks when a search ends: fewer are there in a few seconds.
WORTH_TELLING = 100


def fetched(config: SearchConfig, space: Space, root: Path) -> tuple[SearchConfig, Space]:
    """The search with a checkpoint of an MLflow run as a file here, checked like one."""
    checkpoint = config.task.pretrain.checkpoint
    if checkpoint is None or not checkpoint.startswith(MLFLOW_RUN):
        return config, space
    from bitfront.search.tracking.runs import fetch_artifact, tracking_uri

    run = checkpoint.removeprefix(MLFLOW_RUN).partition("/")[0]
    if not is_name(run) or ".." in checkpoint.split("/"):
        raise UserError(f"{checkpoint}: not an artifact of a run, write {MLFLOW_RUN}RUN/FILE")
    folder = stages_folder(root) / "mlflow" / run
    path = fetch_artifact(checkpoint, tracking_uri(config, root), folder)
    here, space = load_text(config.dump(), assignments=[f"task.pretrain.checkpoint={path}"])
    places = {"tracking": config.tracking, "storage": config.storage}
    return here.model_copy(update=places), space


def prepare(config: SearchConfig, root: Path, ledger_url: str | None = None) -> SearchFolder:
    """The folder of the search, new or the same as before."""
    folder = SearchFolder(root / config.name)
    named.remember("tracking", config.tracking.uri)
    named.remember("storage", config.storage)
    check_same(config, folder)
    made = missing_folders(folder.path)
    made += [] if folder.lock_file.exists() else [folder.lock_file]
    with writing(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
    if ledger_url is not None:
        given = ledger_url != os.environ.get(LEDGER)  # which other searches may use
        ledger_url = with_whole_path(canonical(ledger_url))
        if given:
            named.remember("ledger", ledger_url)
        moved = given and without_secrets(ledger_url) != without_secrets(folder.ledger_url)
        if folder.exists and moved and (folder.running or has_trials(folder)):
            raise UserError(
                f"search '{config.name}' has its ledger at {redacted(folder.ledger_url)}, "
                f"not at {redacted(ledger_url)}",
                "leave --ledger out, or give this search a name of its own (--name)",
            )
        if not folder.exists or moved:
            made += [] if folder.ledger_file.exists() else [folder.ledger_file]
            folder.set_ledger_url(ledger_url)
        os.environ[LEDGER] = ledger_url  # with its password, which is stored nowhere
    return replace(folder, made=tuple(made))


def check_same(config: SearchConfig, folder: SearchFolder) -> None:
    """A search that has trials stays what it is; its budget only grows."""
    if not folder.exists:
        return
    stored = stored_config(folder)
    changed = differences(stored, config)
    if not changed:
        # The same ones in another order make no other search; it keeps the order it began with.
        config.objectives = {name: config.objectives[name] for name in stored.objectives}
    fewer = config.search.trials < stored.search.trials
    if not (changed or fewer) or not has_trials(folder):
        return
    config.search.trials = max(config.search.trials, stored.search.trials)
    if changed:
        raise UserError(
            f"search '{config.name}' exists with another configuration: {'; '.join(changed)}",
            f"give this one a name of its own: --name {config.name}-2",
        )


def differences(old: SearchConfig, new: SearchConfig) -> list[str]:
    """`key: old -> new` for every setting that makes another search of it."""
    before, after = (_flat(c.open_data()) for c in (old, new))
    found = []
    for key in sorted({*before, *after}):
        free = any(key == k or key.startswith(k + ".") for k in MAY_CHANGE)
        if not free and before.get(key) != after.get(key):
            found.append(f"{key}: {before.get(key)} -> {after.get(key)}")
    return found


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(data, dict) or not data:
        return {prefix: data}
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def check_start(config: SearchConfig, address: str | None, line: StatusLine) -> None:
    """What would keep the first trial from starting, as far as it can be seen before anything is
    made: data, resources of this machine, the storage of checkpoints."""
    from bitfront.search.session.session import check_storage
    from bitfront.trainables.data import DATASETS, load_train

    if address is None:
        check_here(config.resources)
    line.wait(f"reading {config.task.dataset}")
    if not DATASETS.get(config.task.dataset).embedded:
        load_train(config.task.dataset, config.task.data_dir, config.task.normalize)
    if config.storage is not None:
        line.wait("trying the storage of checkpoints")
        check_storage(config.storage, config.storage)


@ending_gently()
def launch(
    config: SearchConfig,
    space: Space,
    folder: SearchFolder,
    address: str | None,
    quiet: bool = False,
    warm_start: Results | None = None,
    line: StatusLine | None = None,
) -> int:
    """Run what the ledger says is left; print the front and what comes next. The exit code."""
    line = line or StatusLine(quiet)
    check_places(config, folder)
    with line, folder.locked():
        disk = network_disk(folder.path)
        if disk is not None and folder.owner is None:
            line.say(
                f"{folder.path} is on a network disk ({disk}), where SQLite may corrupt when two "
                "machines use it: better a local disk (--home DIR) or --ledger postgresql://..."
            )
        if folder.exists:
            Results.of(folder)  # a damaged one is told before anything is changed
        beginning = Beginning(folder)
        try:
            check_same(config, folder)  # another driver may have had its turn since
            if not beginning.begun and folder.exists:
                former = stored_config(folder)
                if differences(former, config):
                    forget_former(former, folder)
            with writing(folder.path):
                write_atomically(folder.config_file, config.dump())
                (folder.path / "exhausted").unlink(missing_ok=True)
            with head.concluding(partial(_end_without_ray, folder, quiet)):
                complete = _drive(config, space, folder, address, line, warm_start, beginning)
        except BaseException:
            if not beginning.begun:
                beginning.undo()
            raise
        if not complete and not beginning.begun:
            beginning.undo()
            line.say("Interrupted before the first trial: nothing was kept.")
            return head.exit_code() if head.lost() else head.INTERRUPTED
    results = Results.of(folder)
    if not quiet:
        _conclude(results, complete)
    if not complete:
        return head.exit_code() if head.lost() else head.INTERRUPTED
    return 0 if results.front else 1


def check_places(config: SearchConfig, folder: SearchFolder) -> None:
    """Refuses, before anything is written, what the user has not named and what lies outside."""
    if config.tracking.enabled:
        named.check("tracking", config.tracking.uri, config.name)
    named.check("storage", config.storage, config.name)
    _ = folder.ledger_url
    for place in (stages_folder, selections_folder):
        place(folder.path.parent)


def _end_without_ray(folder: SearchFolder, quiet: bool) -> int:
    """The main thread waits for a Ray that is gone: say what it would have said."""
    _tell_lost(folder)
    if not quiet:
        _conclude(Results.of(folder), complete=False)
    return head.exit_code()


def _tell_lost(folder: SearchFolder) -> None:
    error = head.lost()
    if error is not None and not asked_to_end():
        words = f"error: {error}: nothing is lost, continue with: bitfront resume {folder.name}"
        print(words, file=sys.stderr, flush=True)


def _drive(
    config: SearchConfig,
    space: Space,
    folder: SearchFolder,
    address: str | None,
    line: StatusLine,
    warm_start: Results | None,
    beginning: Beginning,
) -> bool:
    line.wait("preparing the search")
    from bitfront.search.session.preview import quick_estimate
    from bitfront.search.session.selection import settle, start_points
    from bitfront.search.session.session import Session
    from bitfront.search.session.warm_start import carried_points
    from bitfront.search.tracking.tracker import Tracker

    tracker = None
    if config.tracking.enabled:
        tracker = Tracker(config, folder.identity, folder.path.parent)
    space = settle(config, space, folder, address, line.say, line)
    first = start_points(space)
    if warm_start is not None:
        first += carried_points(warm_start, space)
    session = Session(config, space, folder, tracker, line.quiet, first, line)
    beginning.ledger = session.ledger
    left = config.search.trials - session.ended
    if tracker is not None:
        tracker.start(session.ledger.entries.values())
        tracker.front(session.front_metrics())
    how = f"{session.ended} trials done, " if session.ended else ""
    line.say(f"search {config.name}: {how}{max(0, left)} to go, in {folder.path}")
    for text in starting_point(space):
        line.say(text)
    complete = False
    try:
        if left > 0 or session.ledger.interrupted():
            if not line.quiet and address is None:
                line.wait("timing a few steps of a trial")
                session.progress.eta_model.expect(*quick_estimate(config, space))
            line.wait("starting Ray" if address is None else f"joining Ray at {address}")
            from bitfront.search.cluster.tuner import run_trials

            run_trials(session, address)
        complete = session.complete
    except KeyboardInterrupt:
        _tell_lost(folder)
        complete = False
    finally:
        session.close()
        if beginning.begun:
            line.wait("drawing the front")
            artifacts, summary = _summary(folder, line)
            if tracker is not None:
                line.wait("telling MLflow the rest")
                _close_tracker(tracker, folder, artifacts, summary, complete, line)
        elif tracker is not None:
            tracker.abandon()
    return complete


def starting_point(space: Space) -> list[str]:
    """What trials that do not train end-to-end start from, and what that costs once."""
    from bitfront.trainables.training.pretraining import check_checkpoint

    lines = []
    if space.task.pretrain.checkpoint is not None:
        lines.append(check_checkpoint(space.task).text())
    epochs = space.pretraining_lengths()
    if epochs:
        told = " or ".join(str(n) for n in epochs)
        lines.append(f"trials start from {told} epochs in full precision, trained once and shared")
    return lines


def _close_tracker(
    tracker: Any,
    folder: SearchFolder,
    artifacts: dict[str, str | Path],
    note: str,
    complete: bool,
    line: StatusLine,
) -> None:
    def waiting(seconds: float) -> None:
        line.say(
            f"MLflow at {tracker.uri} is away: waiting up to {seconds:.0f} s for it (ctrl-C: "
            f"not at all; bitfront resume {folder.name} delivers the rest later)"
        )

    if tracker.behind >= WORTH_TELLING:
        line.say(f"{tracker.behind} trials are on their way to MLflow ...")
    problem = tracker.close("complete" if complete else "interrupted", artifacts, note, waiting)
    if problem is not None:
        line.say(
            f"MLflow at {tracker.uri} did not take everything: {problem}\n"
            f"  nothing is lost; to deliver it: bitfront resume {folder.name}"
        )


def _summary(folder: SearchFolder, line: StatusLine) -> tuple[dict[str, str | Path], str]:
    """The pictures of the search and the note on its MLflow run. What cannot be made is told and
    costs nothing else: the disk may be full, the database away."""
    # Plotly looks at pandas where it is loaded; the tracker's thread may be halfway through that.
    import pandas  # noqa: F401

    from bitfront.verbs.pictures import write_figures

    artifacts: dict[str, str | Path] = {}
    note = ""
    try:
        results = Results.of(folder)
        told = results.config, results.entries, results.front, results.hypervolume_share
        note = note_of(*told)
        artifacts = write_figures(results)
        note = note_of(*told, picture=SMALL_FRONT in artifacts)
    except (Exception, KeyboardInterrupt) as error:
        line.say(f"pictures were not made: {type(error).__name__}: {error}")
    return artifacts, note


def _exhausted(results: Results) -> str:
    count = results.different_trials
    if count is None:
        return "No other point of the space that satisfies the limits was found."
    return f"All {count} different trials of the space that satisfy the limits have been tried."


def _conclude(results: Results, complete: bool) -> None:
    terminal.show("")
    if not complete:
        terminal.show("Interrupted: running trials keep their last checkpoint.")
    elif results.space_exhausted:
        terminal.show(_exhausted(results))
    failures = results.failures()
    if failures:
        listed = ", ".join(f"{count} {reason}" for reason, count in failures.items())
        terminal.show(f"Failed trials: {listed} (bitfront status {results.config.name} --json)")
    terminal.show(front_summary(results, colours=terminal.coloured()))
    terminal.show("")
    terminal.show(next_commands(results))
