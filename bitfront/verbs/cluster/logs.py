"""What a submitted search printed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.verbs import options as shared
from bitfront.verbs.on_head import head_at


def options(parser: ArgumentParser) -> None:
    shared.search_name(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="until it ends")
    shared.head_address(parser, required=True)


def action(args: Namespace) -> int:
    head_at(args.address).log(args.search, args.follow)
    return 0
