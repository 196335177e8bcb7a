"""What verbs open before they work: the configuration that a YAML and options give, the folder or
results of a search, the status line."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bitfront.search import kept_code
from bitfront.search.config.cautions import cautions
from bitfront.search.config.load import load
from bitfront.search.config.schema import SearchConfig
from bitfront.search.homes import home_for
from bitfront.search.ledger.folder import SearchFolder, find
from bitfront.search.results.results import Results
from bitfront.search.session.interrupts import acknowledged
from bitfront.spaces.ready_made import search_file
from bitfront.spaces.space import Space
from bitfront.terminal.next_commands import new_search
from bitfront.terminal.status_line import StatusLine
from bitfront.terminal.tables import filled
from bitfront.trainables.costs import devices
from bitfront.trainables.own_code import references_in
from bitfront.trainables.text_files import whole_path
from bitfront.verbs.options import QUICKSTART


def search_of(args: Namespace) -> tuple[SearchConfig, Space]:
    """The search that `options.search_yaml` describes, and its space. Warnings are printed on
    standard error, so that JSON on the output stays valid."""
    assignments = list(args.set or [])
    if args.data_dir:
        assignments.append(f"task.data_dir={whole_path(args.data_dir)}")
    devices.look_in(home_for(args.name, args.home))
    if args.trials is not None:
        assignments.append(f"search.trials={args.trials}")
    config, space = load(search_file(args.search or QUICKSTART), assignments, args.name)
    warn(config, space)
    return config, space


def warn(config: SearchConfig, space: Space) -> None:
    """Print what is probably not meant about a search, on standard error."""
    for text in cautions(config, space):
        print(filled(f"warning: {text}"), file=sys.stderr, flush=True)


def warn_of_edits(data: Any, name: str, beside: Path | None = None) -> None:
    """Print which files of the user's own have changed since the search `name`, whose copies of
    them run instead, on standard error. `data`: what names the code; `beside`: a folder where the
    user's files may be."""
    folders = [] if beside is None else [beside.absolute()]
    for text in kept_code.edited(references_in(data), new_search(name), folders):
        print(filled(f"warning: {text}"), file=sys.stderr, flush=True)


def folder_of(args: Namespace, name: str) -> SearchFolder:
    """The folder of a search that was run."""
    return find(home_for(name, args.home), name)


def results_of(args: Namespace, name: str) -> Results:
    """The results of a search that was run."""
    return Results.of(folder_of(args, name))


@contextmanager
def waiting_line(args: Namespace) -> Iterator[StatusLine]:
    """Yield a status line for a verb that starts nothing. It is on standard error, so that the
    output holds the result alone."""
    with StatusLine(args.json, sys.stderr) as line:
        line.wait(f"reading {args.search or QUICKSTART}")
        yield line


@contextmanager
def status_line(args: Namespace) -> Iterator[StatusLine]:
    """Yield a status line that shows what is being done and acknowledges a ctrl-C at once."""
    with StatusLine(args.quiet) as line, acknowledged(line.interrupted):
        line.wait(f"reading {args.search}")
        yield line
