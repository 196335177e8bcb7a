"""The MLflow UI, opened on a search."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.search.ledger.folder import home
from bitfront.search.tracking.server import serve
from bitfront.terminal import tables as terminal
from bitfront.verbs import options as shared
from bitfront.verbs.opening import folder_of


def options(parser: ArgumentParser) -> None:
    shared.served(parser, default_port=5000)
    shared.trusted(parser, "tracking")


def action(args: Namespace) -> int:
    shared.not_remote(args)
    folder = folder_of(args, args.search) if args.search else None
    where = args.host, shared.port_of(args), not args.no_browser
    return serve(home(args.home), folder, *where, say=terminal.show)
