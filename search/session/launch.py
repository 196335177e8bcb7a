"""One driver's turn at a search, from the lock on its folder to the last write to MLflow. `run`,
`resume` and `extend` are one path, because the ledger says what is left to do. What is checked
before is in `preparation`; what is printed is passed in by the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bitfront.search import benched, homes, kept_code, submission
from bitfront.search.cluster import head
from bitfront.search.config.schema import SearchConfig
from bitfront.search.deciding.ending import asked_in_words
from bitfront.search.ledger.disks import network_disk
from bitfront.search.ledger.folder import SearchFolder, writing
from bitfront.search.live.teller import telling
from bitfront.search.pictures import Pictures
from bitfront.search.results.results import Results
from bitfront.search.results.stored import stored_config
from bitfront.search.session.beginning import Beginning, forget_former
from bitfront.search.session.interrupts import asked_to_end, ending_gently, held_back
from bitfront.search.session.preparation import (
    check_places,
    check_same,
    code_changes,
    differences,
)
from bitfront.search.session.preview import quick_estimate
from bitfront.search.session.progress import Line, Progress
from bitfront.search.session.rows import selectors_of_rows, settle_rows
from bitfront.search.session.selection import settle, start_points
from bitfront.search.session.session import Session
from bitfront.search.session.warm_start import carried_points, carried_trials
from bitfront.search.tracking.notes import SMALL_FRONT, note_of
from bitfront.search.tracking.tracker import Tracker
from bitfront.search.urls import redacted
from bitfront.spaces.space import Space
from bitfront.trainables.costs.devices import KEPT
from bitfront.trainables.files import write_atomically
from bitfront.trainables.own_code import references_in
from bitfront.trainables.training.pretraining import check_checkpoint

# From this many trials on that MLflow lacks when a search ends, the user is told: fewer are
# delivered in a few seconds.
WORTH_TELLING = 100
# The file of a search that says what pictures and MLflow show: `40 sqlite:///...`.
DELIVERED = "delivered"

Artifacts = dict[str, str | Path]


@dataclass(frozen=True)
class Shown:
    """The functions that show a turn to people. They come from the rooms above."""

    line: Line
    progress: Callable[[Session], Progress]
    pictures: Pictures
    lost: Callable[[str, str], None]
    """called with an error and the name of the search when Ray is gone"""
    conclude: Callable[[Results, bool], None]
    """called at the end with the results, and whether the search is complete"""


@ending_gently()
def launch(
    config: SearchConfig,
    space: Space,
    folder: SearchFolder,
    address: str | None,
    shown: Shown,
    warm_start: Results | None = None,
    renewed: bool = True,
    rows: Sequence[str] | None = None,
) -> int:
    """Run the trials that the ledger says are left, and return the exit code. `renewed`: pictures
    and MLflow are written anew also for a finished search that is unchanged since they were.
    `rows`: labels of rows of a paper that are run alone."""
    line = shown.line
    check_places(config, folder)
    if address is not None:
        homes.remember(folder.path.parent)
    with line, folder.locked():
        disk = network_disk(folder.path)
        if disk is not None and folder.owner is None:
            line.say(
                f"{folder.path} is on a network disk ({disk}), where SQLite may corrupt when two "
                "machines use it: better a local disk (--home DIR) or --ledger postgresql://..."
            )
        if folder.exists:
            Results.of(folder)  # a damaged ledger is an error before anything is changed
        beginning = Beginning(folder)
        try:
            check_same(config, folder)  # another driver may have had its turn since
            if not beginning.begun and folder.exists:
                former = stored_config(folder)
                if differences(former, config) or code_changes(former, config, folder):
                    forget_former(former, folder)
            with writing(folder.path):
                folder.note_sender()
                kept_code.keep(folder.path, references_in(config.open_data()))
                if space.device is not None:
                    space.device.write(folder.path / KEPT)
                write_atomically(folder.config_file, config.dump())
                (folder.path / "exhausted").unlink(missing_ok=True)
            head.leave_job_folder(folder.path)
            with head.concluding(partial(_end_without_ray, folder, shown)):
                driven = partial(_drive, config, space, folder, address, shown, warm_start)
                complete = driven(beginning, renewed, rows)
        except BaseException:
            if not beginning.begun:
                beginning.undo()
            raise
        if not complete and not beginning.begun:
            beginning.undo()
            line.say("Interrupted before the first trial: nothing was kept.")
            return head.exit_code() if head.lost() else head.INTERRUPTED
    results = Results.of(folder)
    shown.conclude(results, complete)
    if not complete:
        return head.exit_code() if head.lost() else _stopped()
    return 0 if results.front else 1


def _stopped() -> int:
    """The exit code of a turn that somebody has ended. A job of Ray's that ends otherwise than with
    0 stays in its list as FAILED, and a search that was stopped has not failed."""
    sent = submission.here()
    return 0 if sent is not None and sent.job else head.INTERRUPTED


def _end_without_ray(folder: SearchFolder, shown: Shown) -> int:
    """Show the end of the search while the main thread waits for a Ray that is gone, and return the
    exit code."""
    _tell_lost(folder, shown)
    shown.conclude(Results.of(folder), False)
    return head.exit_code()


def _tell_lost(folder: SearchFolder, shown: Shown) -> None:
    error = head.lost()
    if error is not None and not asked_to_end():
        shown.lost(str(error), folder.name)


def _drive(
    config: SearchConfig,
    space: Space,
    folder: SearchFolder,
    address: str | None,
    shown: Shown,
    warm_start: Results | None,
    beginning: Beginning,
    renewed: bool,
    chosen: Sequence[str] | None,
) -> bool:
    """Run the trials and deliver the rest to MLflow; return whether all of this turn is done."""
    line = shown.line
    line.wait("preparing the search")
    tracker = None
    if config.tracking.enabled:
        tracker = Tracker(config, folder.identity, folder.path.parent, shown.pictures)
    # A warm start is kept for later turns with all points that the search begins with.
    wanted = None if warm_start is not None else selectors_of_rows(config, space, chosen)
    space = settle(config, space, folder, address, line.say, line, shown.pictures, wanted)
    first = start_points(space)
    if warm_start is not None:
        first += carried_points(warm_start, space)
    rows = settle_rows(config, space, chosen)
    session = Session(config, space, folder, tracker, first, telling(shown.progress), rows)
    if warm_start is not None:
        session.ledger.learn_from(carried_trials(warm_start, space))
    beginning.ledger = session.ledger
    ended_before = session.ended
    known = not (renewed and session.complete) and _delivered(folder) == _told(session)
    if tracker is not None:
        tracker.start(session.ledger.entries.values())
        tracker.front(session.front_metrics())
    _announce(session, line)
    complete = False
    try:
        complete = _run_trials(session, address, line)
        if complete and config.search.bench and not _known_times(session, ended_before):
            _bench(session, line)
    except KeyboardInterrupt:
        _tell_lost(folder, shown)
        complete = False
    finally:
        session.close()
        known = known and session.ended == ended_before and not (tracker and tracker.started)
        if beginning.begun and not known:
            line.wait("drawing the front")
            artifacts, summary = summarize(folder, shown)
            problem = None
            if tracker is not None:
                line.wait("telling MLflow the rest")
                # Rows that were run alone leave the rest of the search to do.
                over = complete and (not rows.alone or session.ended >= config.search.trials)
                problem = _close_tracker(tracker, folder, artifacts, summary, over, line)
            if complete and problem is None and artifacts:
                write_atomically(folder.path / DELIVERED, _told(session))
        elif tracker is not None:
            tracker.abandon()
    return complete


def _known_times(session: Session, ended_before: int) -> bool:
    """Whether the points of the front were measured, and are still the same."""
    found = benched.read(session.folder)
    return found is not None and session.ended == ended_before


def _bench(session: Session, line: Line) -> None:
    """Measure the points of the front, and tell MLflow. What cannot be measured is reported and
    does not end the turn."""
    try:
        front = Results.of(session.folder).front
        device = session.ledger.space.device
        benched.bench_front(front, session.folder, device, line.wait)
    except Exception as error:
        line.say(f"the front was not measured: {type(error).__name__}: {error}")
        return
    if session.tracker is not None:
        session.tracker.front(session.front_metrics())


def _announce(session: Session, line: Line) -> None:
    config = session.config
    done = f"{session.ended} trials done, " if session.ended else ""
    left = max(0, session.budget - session.ended)
    told = f"{left} to go" if config.search.budget is not None else "more to come"
    until = asked_in_words(config.search)
    if session.ending.reached is not None:
        told = session.ending.reached.sentence()[:-1]
    elif until and not session.rows.alone:
        told += f" until {until}" if config.search.budget is None else f" or until {until}"
    line.say(f"search {config.name}: {done}{told}, in {session.folder.path}")
    of_rows = min(left, len(session.rows.left(session.ledger.entries)))
    if of_rows and not session.rows.alone:
        line.say(f"{of_rows} of them are rows of the paper, which come first")
    for text in starting_point(session.ledger.space):
        line.say(text)
    device = session.ledger.space.device
    if device is not None:
        line.say(f"latency_ms of device table {device.name}: {device.describe()}")


def _run_trials(session: Session, address: str | None, line: Line) -> bool:
    """Run what is left, and return whether that is all."""
    if session.complete:
        return True
    ended_before = session.ended
    if not line.quiet and address is None:
        line.wait("timing a few steps of a trial")
        session.progress.expect(*quick_estimate(session.config, session.ledger.space))
    line.wait("starting Ray" if address is None else f"joining Ray at {address}")
    with held_back():  # what Ray does at the exit fails where its import was interrupted
        from bitfront.search.cluster.tuner import run_trials

    run_trials(session, address)
    if session.complete and session.ended > ended_before:
        session.ledger.look_ahead()
    return session.complete


def starting_point(space: Space) -> list[str]:
    """Sentences on what trials start from, other than random weights: a checkpoint, or pretraining
    that is trained once and shared."""
    lines = []
    if space.task.pretrain.checkpoint is not None:
        lines.append(check_checkpoint(space.task).text())
    epochs = space.pretraining_lengths()
    if epochs:
        lengths = " or ".join(str(n) for n in epochs)
        lines.append(
            f"trials start from {lengths} epochs in full precision, trained once and shared"
        )
    return lines


def _close_tracker(
    tracker: Tracker,
    folder: SearchFolder,
    artifacts: Artifacts,
    note: str,
    complete: bool,
    line: Line,
) -> str | None:
    """Deliver the rest to MLflow; returns what went wrong, or None."""

    def waiting(seconds: float) -> None:
        line.say(
            f"MLflow at {tracker.uri} is away: waiting up to {seconds:.0f} s for it (ctrl-C: "
            f"not at all; bitfront resume {folder.name}{submission.back()} delivers the rest later)"
        )

    if tracker.behind >= WORTH_TELLING:
        line.say(f"{tracker.behind} trials are on their way to MLflow ...")
    problem = tracker.close("complete" if complete else "interrupted", artifacts, note, waiting)
    if problem is not None:
        line.say(
            f"MLflow at {tracker.uri} did not take everything: {problem}\n"
            f"  nothing is lost; to deliver it: bitfront resume {folder.name}{submission.back()}"
        )
    return problem


def _told(session: Session) -> str:
    """How many trials have ended, and the MLflow that is told of them."""
    tracker = session.tracker
    return f"{session.ended} {redacted(tracker.uri) if tracker is not None else ''}".strip()


def _delivered(folder: SearchFolder) -> str | None:
    """The `_told` of the turn that last drew pictures and reached MLflow; None where there is
    none."""
    try:
        return (folder.path / DELIVERED).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def summarize(folder: SearchFolder, shown: Shown) -> tuple[Artifacts, str]:
    """The pictures of the search and the note on its MLflow run. A failure, such as a full disk or
    a database that is away, is reported and does not end the turn."""
    artifacts: Artifacts = {}
    note = ""
    try:
        results = Results.of(folder)
        about = results.config, results.entries, results.front, results.hypervolume_share
        note = note_of(*about)
        artifacts = shown.pictures.of_search(results)
        note = note_of(*about, picture=SMALL_FRONT in artifacts)
    except (Exception, KeyboardInterrupt) as error:
        shown.line.say(f"pictures were not made: {type(error).__name__}: {error}")
    return artifacts, note
