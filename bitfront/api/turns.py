"""A turn at a search, started from Python: what `bitfront run`, `resume` and `extend` do, without
their options."""

from __future__ import annotations

import os
from pathlib import Path

from bitfront.api.opened import OpenedSearch
from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.folder import LEDGER, SearchFolder
from bitfront.search.session.interrupts import acknowledged
from bitfront.spaces.space import Space
from bitfront.terminal.own_data import tell
from bitfront.terminal.status_line import StatusLine


def take_turn(
    config: SearchConfig,
    space: Space,
    root: Path,
    address: str | None = None,
    quiet: bool = False,
    ledger: str | None = None,
) -> OpenedSearch:
    """Run the trials that are left of a search and return it: complete, or interrupted."""
    from bitfront.search.session.preparation import check_start, fetched, prepare  # torch

    with StatusLine(quiet) as line, acknowledged(line.interrupted):
        config, space = fetched(config, space, root)
        check_start(config, space, SearchFolder(root / config.name), address, line)
        tell(config.task, line.say)
        folder = prepare(config, root, ledger or os.environ.get(LEDGER) or None)
        _run(config, space, folder, address, quiet, line)
    return OpenedSearch(folder)


def continue_turn(
    config: SearchConfig, folder: SearchFolder, address: str | None, quiet: bool
) -> None:
    """Run what is left of a search that was run before, after the checks of a new one."""
    from bitfront.search.config.load import load_text
    from bitfront.search.session.preparation import check_places, check_start  # torch

    with StatusLine(quiet) as line, acknowledged(line.interrupted):
        config, space = load_text(config.dump())
        check_places(config, folder)
        check_start(config, space, folder, address, line)
        _run(config, space, folder, address, quiet, line)


def _run(
    config: SearchConfig,
    space: Space,
    folder: SearchFolder,
    address: str | None,
    quiet: bool,
    line: StatusLine,
) -> None:
    from bitfront.verbs.launch import launch  # Ray

    launch(config, space, folder, address, quiet, line=line)
