"""Check this machine and installation.

With `--address`, every node of a Ray cluster too."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from bitfront.search.cluster.doctor import check_all
from bitfront.search.cluster.ray_client import command_there, is_client
from bitfront.search.cluster.remote.words import is_remote
from bitfront.terminal import tables as terminal
from bitfront.verbs import options as shared
from bitfront.verbs.on_head import head_at, options_there


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument(
        "--address", help="every node of a Ray cluster too: auto, HOST:PORT, ray://..., http://..."
    )
    parser.add_argument("--tracking", metavar="URL", help="an MLflow server that must answer")
    parser.add_argument("--storage", metavar="PLACE", help="a path or URL all nodes must share")
    parser.add_argument("--ledger", metavar="URL", help="a database that a search can use")


def action(args: Namespace) -> int:
    if is_remote(args.address):
        code, output = head_at(args.address).call(
            ["doctor", *options_there(args), "--address", "auto"]
        )
        (sys.stdout if code in (0, 1) else sys.stderr).write(output)
        return code
    if is_client(args.address):  # actors on nodes are answered there, not through the client
        return command_there(args.address, ["doctor", *options_there(args)], args.home)
    checks = check_all(args.home, args.address, args.tracking, args.storage, args.ledger)
    if args.json:
        terminal.show_json([vars(check) for check in checks])
    else:
        for check in checks:
            text = f"{check.verdict:4}  {check.name}: {check.found}"
            terminal.show(terminal.filled(text, " " * 6))
            if check.advice:
                terminal.show(terminal.filled(f"      {check.advice}", ""))
    return 1 if any(check.verdict == "FAIL" for check in checks) else 0
