"""End the driver of a running search; resume continues it."""

from __future__ import annotations

import os
import signal
import socket
import time
from argparse import ArgumentParser, Namespace

from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.results import Results
from bitfront.terminal import tables as terminal
from bitfront.terminal.next_commands import resume
from bitfront.trainables.errors import UserError
from bitfront.verbs import options as shared
from bitfront.verbs.on_head import on_head
from bitfront.verbs.opening import folder_of

# How long a driver may take to end.
STOP_SECONDS = 120.0


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.search_name(parser)
    shared.head_address(parser)


def action(args: Namespace) -> int:
    """Ask the driver to end as ctrl-C would, and wait until it has."""
    if args.address is not None:
        return on_head(args, [args.search])
    folder = folder_of(args, args.search)
    state = stopped(folder)
    if args.json:
        terminal.show_json({"search": folder.name, "state": state})
    elif not folder.exists:
        terminal.show(f"search '{folder.name}' had no trial yet: nothing of it is left")
    elif state == "running":
        terminal.show(f"search '{folder.name}' still runs: it ends with the epochs under way")
    elif Results.of(folder).state_without_driver == "complete":
        terminal.show(f"search '{folder.name}' is complete: there is nothing to stop")
    else:
        terminal.show(f"search '{folder.name}' is {state}; continue: {resume(folder.name)}")
    return 1 if state == "running" else 0


def stopped(folder: SearchFolder) -> str:
    """Ask the driver of a search to end as ctrl-C would, wait until it has, and return what it is
    then: stopped, running still, or not running in the first place."""
    driver = folder.driver
    if driver is None:
        return "not running"
    host, pid = driver
    if host != socket.gethostname():
        raise UserError(f"search '{folder.name}' runs on {host}", "stop it there")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while folder.running and time.monotonic() < deadline:
        time.sleep(0.2)
    return "running" if folder.running else "stopped"
