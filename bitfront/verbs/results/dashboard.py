"""Searches in the browser, while they run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.dashboards.pages.server import serve, serve_optuna
from bitfront.search.ledger.folder import find, home, list_searches
from bitfront.terminal import tables as terminal
from bitfront.trainables.errors import UserError
from bitfront.verbs import options as shared


def options(parser: ArgumentParser) -> None:
    shared.served(parser, default_port=8050)
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="answer by this name too, for example of a proxy (repeatable)",
    )
    parser.add_argument(
        "--optuna", action="store_true", help="the ledger in optuna-dashboard instead"
    )
    shared.trusted(parser, "ledger")


def action(args: Namespace) -> int:
    shared.not_remote(args)
    root, names = home(args.home), args.allow_host or ()
    where = args.host, shared.port_of(args), not args.no_browser
    if not args.optuna:
        return serve(root, args.search, *where, names, say=terminal.show)
    searches = list_searches(root)
    if not args.search and not searches:
        raise UserError(f"no search has been run in {root}", "start one: bitfront run")
    folder = find(root, args.search) if args.search else searches[-1]
    return serve_optuna(folder, *where, names, say=terminal.show)
