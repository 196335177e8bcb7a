"""A turn at a search, started from Python: what `bitfront run`, `resume` and `extend` do, without
their options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bitfront.search.caches import settle
from bitfront.search.cluster import head
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.folder import LEDGER, SearchFolder
from bitfront.search.session.interrupts import acknowledged, ending_gently
from bitfront.spaces.space import Space
from bitfront.terminal.notebooks import status_line
from bitfront.terminal.status_line import StatusLine
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code.trusted import trusting
from bitfront.verbs.opening import warn
from bitfront.verbs.searching.resume import resumed
from bitfront.verbs.searching.run import started


def take_turn(
    config: SearchConfig,
    space: Space,
    root: Path,
    address: str | None = None,
    quiet: bool = False,
    ledger: str | None = None,
    rows: Sequence[str] | None = None,
) -> SearchFolder:
    """Run the trials that are left of a search, or those of some rows of a paper, and return its
    folder."""
    if not quiet:
        warn(config, space)
    with _turn(quiet) as line:
        url = ledger or os.environ.get(LEDGER) or None
        code, folder = started(config, space, root, line, address, quiet, url, rows=rows)
    _conclude(code)
    return folder


def continue_turn(
    config: SearchConfig, folder: SearchFolder, address: str | None, quiet: bool, trust: bool
) -> None:
    """Run what is left of a search that was run before, after the checks of a new one."""
    with trusting(trust), _turn(quiet) as line:
        code = resumed(config, folder, address, quiet, line)
    _conclude(code)


@contextmanager
def _turn(quiet: bool) -> Iterator[StatusLine]:
    """Yield the line that shows a turn; ctrl-C ends the turn as it ends that of the command."""
    settle()
    with ending_gently(), status_line(quiet) as line, acknowledged(line.interrupted):
        yield line


def _conclude(code: int) -> None:
    """Raise what a turn was ended by: the results are kept, but what comes after it in a script
    expects a search that is complete."""
    error = head.lost()
    if code == head.INTERRUPTED:
        raise KeyboardInterrupt("the search is kept: the same call continues it")
    if error is not None:
        head.leave_without_ray(head.LOST)
        raise UserError(f"{error}", "nothing is lost: the same call in a new Python continues")
