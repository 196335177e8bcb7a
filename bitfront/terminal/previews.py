"""A preview and a rehearsal of a search as text, and the progress of a rehearsal. Both are computed
in `bitfront.search.session`."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bitfront.search.durations import duration
from bitfront.search.session.preview import Preview
from bitfront.search.session.rehearsal import Rehearsal
from bitfront.search.session.session import Session
from bitfront.terminal.progress import LINE_SECONDS
from bitfront.terminal.tables import count, filled, table, width
from bitfront.trainables.own_code import shown

# Seconds between two updates of the progress of a rehearsal on a terminal.
TERMINAL_SECONDS = 0.5


def preview_text(preview: Preview) -> str:
    """The size of the space, the range of every cost, and the expected time."""
    size = "infinitely many" if preview.points is None else count(preview.points)
    rows = [
        [
            name,
            f"{a:,.4g}" if b < 1000 else f"{a:,.0f}",
            f"{b:,.4g}" if b < 1000 else f"{b:,.0f}",
        ]
        for name, (a, b) in preview.costs.items()
        if name != "flops_own_pct" or preview.several_networks
    ]
    flops = f"{preview.full_flops:,.0f} flops"
    notes = [f"flops_pct: of the network in full precision, {flops}"]
    if preview.several_networks:
        notes = [f"flops_pct: of the dearest network in full precision, {flops}"]
        notes.append("flops_own_pct: of each network itself in full precision")
    rehearsal = preview.rehearsal
    return "\n".join(
        [
            filled(
                f"search {preview.search}: {_length(preview)} of a space with {size} points, "
                f"{preview.layers} layers to plan at most"
            ),
            f"{100 * preview.feasible_share:.0f} % of random points satisfy the limits",
            *_priors(preview),
            "",
            table(["cost", "least", "greatest"], rows),
            *notes,
            "",
            *map(filled, [*_time(preview), *_rows(preview)]),
            *([] if rehearsal is None else [rehearsal_text(rehearsal), ""]),
            "nothing was started",
        ]
    )


def _priors(preview: Preview) -> list[str]:
    """What the search begins with and looks near to, until trials say otherwise."""
    told = ", ".join(f"{shown(key)} {prior}" for key, prior in preview.priors.items())
    return [filled(f"priors, which steer the search and exclude nothing: {told}")] if told else []


def _time(preview: Preview) -> list[str]:
    if preview.trial_seconds is None:
        return [f"times are not known: {preview.untimed}"] if preview.untimed else []
    low, high = preview.trial_seconds
    trials = (
        f"one trial: {_short(low)} to {_short(high)}; {preview.concurrent} at once; "
        f"{_whole(preview)}{_stopping(preview)}"
    )
    if not preview.pretraining_epochs:
        return [trials]
    lengths = " or ".join(str(n) for n in preview.pretraining_epochs)
    return [
        trials,
        f"of which {_short(preview.pretraining_seconds or 0.0)} or less for {lengths} epochs in "
        "full precision, trained once for each network",
    ]


def _length(preview: Preview) -> str:
    """`50 trials`, `trials until 2 hours`, `50 trials or until 2 hours`."""
    if preview.trials is None:
        return f"trials until {preview.until}"
    return f"{preview.trials} trials" + (f" or until {preview.until}" if preview.until else "")


def _whole(preview: Preview) -> str:
    """How long the search takes, and how many trials that is where their number is open."""
    if preview.eta_seconds is None:
        return "no number of trials: the gain decides when it ends"
    told = f"about {duration(preview.eta_seconds)} in all"
    seconds = sum(preview.trial_seconds or ()) / 2
    if preview.trials is None and seconds:
        number = int(preview.concurrent * preview.eta_seconds / seconds)
        told += f", some {count(number)} trials on this machine"
    return told


def _rows(preview: Preview) -> list[str]:
    """What the rows of a paper cost by themselves."""
    if not preview.rows:
        return []
    time = "" if preview.row_seconds is None else f", about {duration(preview.row_seconds)}"
    text = (
        f"rows of the paper: {preview.rows}, which take {preview.row_trials} trials, "
        f"{preview.row_epochs:,} epochs{time}; "
        f"{'they run alone' if preview.rows_alone else 'they run first'}"
    )
    if preview.rows_alone:
        return [text]
    if preview.trials is not None and preview.row_trials > preview.trials:
        text += f", and {preview.row_trials - preview.trials} of them not at all: give more trials"
    return [text]


def _short(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _stopping(preview: Preview) -> str:
    return ", less what trials that do not run to their end save" if preview.early_stopping else ""


def rehearsal_text(rehearsal: Rehearsal) -> str:
    """What would happen to the trials of the search."""
    head = f"rehearsal with made-up accuracies: {rehearsal.trials} of {rehearsal.asked} trials run"
    lines = [head + (", then nothing new is left" if rehearsal.exhausted else "")]
    if rehearsal.distinct is not None:
        lines.append(f"  different trials within the limits: {rehearsal.distinct}")
    elif rehearsal.exhausted:
        lines.append("  the sampler and random tries found no other point within the limits")
    if rehearsal.made_up_selectors:
        names = ", ".join(rehearsal.made_up_selectors)
        lines.append(f"  made up too, in place of training: the order of layers of {names}")
    lines += [
        f"  {rehearsal.complete} complete, {rehearsal.stopped} stopped early, "
        f"{rehearsal.failed} failed; {rehearsal.repeats} of them repeat a point with another seed",
        f"  proposed but not run: {rehearsal.refused_by_limits} beyond a limit, "
        f"{rehearsal.known} that were known",
        f"  points on the front: {rehearsal.front}",
    ]
    if rehearsal.rows:
        answered = rehearsal.rows - len(rehearsal.unanswered)
        lines.append(
            f"  rows of the paper that are answered: {answered} of {rehearsal.rows}, by "
            f"{rehearsal.row_trials} trials of {rehearsal.row_epochs:,} epochs, which run first"
        )
        lines += [f"    unanswered: {row.label}: {row.why}" for row in rehearsal.unanswered]
    return "\n".join(_wrapped(line) for line in lines)


def _wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width(), subsequent_indent=indent, break_on_hyphens=False)


@contextmanager
def rehearsal_progress(trials: int) -> Iterator[Callable[[Session], None]]:
    """Yield a function to call after every trial of a rehearsal. From time to time it prints how
    many trials are done: on a terminal by rewriting one line, elsewhere as a new line. It prints on
    standard error, since the output may be JSON."""
    out = sys.stderr
    shown, since = out.isatty(), time.monotonic()

    def ended(session: Session) -> None:
        nonlocal since
        if time.monotonic() - since < (TERMINAL_SECONDS if shown else LINE_SECONDS):
            return
        since = time.monotonic()
        text = f"rehearsing: {session.ended} of {trials} trials"
        print(f"\r{text}" if shown else text, end="" if shown else "\n", file=out, flush=True)

    try:
        yield ended
    finally:
        if shown:
            print("\r\033[K", end="", file=out, flush=True)
