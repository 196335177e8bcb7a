"""A turn at a search as a terminal shows it, for `run`, `resume` and `extend`. What happens in a
turn is in `bitfront.search.session.launch`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from bitfront.dashboards.search_files import PICTURES
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.results import Results
from bitfront.search.session import launch as session_launch
from bitfront.search.session.launch import Shown
from bitfront.spaces.space import Space
from bitfront.terminal.next_commands import resume
from bitfront.terminal.progress import Progress
from bitfront.terminal.status_line import StatusLine
from bitfront.terminal.summary import show_end


def launch(
    config: SearchConfig,
    space: Space,
    folder: SearchFolder,
    address: str | None,
    quiet: bool = False,
    warm_start: Results | None = None,
    line: StatusLine | None = None,
    renewed: bool = True,
    rows: Sequence[str] | None = None,
) -> int:
    """Run the trials that the ledger says are left, or only those of `rows`, print the front and
    the next commands, and return the exit code."""
    shown = shown_on(line or StatusLine(quiet), quiet)
    turn = partial(session_launch.launch, config, space, folder, address, shown)
    return turn(warm_start, renewed, rows)


def shown_on(line: StatusLine, quiet: bool) -> Shown:
    """The functions that show a turn: its progress on `line`, its end below; with `quiet` errors
    only."""
    return Shown(
        line=line,
        progress=partial(Progress, line=line),
        pictures=PICTURES,
        lost=_tell_lost,
        conclude=(lambda _results, _complete: None) if quiet else show_end,
    )


def _tell_lost(error: str, name: str) -> None:
    words = f"error: {error}: nothing is lost, continue with: {resume(name)}"
    print(words, file=sys.stderr, flush=True)
