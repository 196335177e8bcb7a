"""What a submitted search printed.

It is the output of the driver that had the last turn at it, whoever sent it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.verbs import options as shared
from bitfront.verbs.on_head import head_at


def options(parser: ArgumentParser) -> None:
    parser.add_argument("search", help="its name, or the id of a job that `submit` printed")
    parser.add_argument("-f", "--follow", action="store_true", help="until it ends")
    shared.head_address(parser, required=True)


def action(args: Namespace) -> int:
    head_at(args.address).log(args.search, args.home, args.follow)
    return 0
