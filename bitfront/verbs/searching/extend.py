"""Give a search more trials and run them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bitfront.search.cluster.ray_client import is_client, run_there
from bitfront.search.cluster.remote.words import is_remote
from bitfront.search.results.results import config_to_continue
from bitfront.trainables.errors import UserError
from bitfront.verbs import options as shared
from bitfront.verbs.on_head import send
from bitfront.verbs.opening import folder_of, status_line
from bitfront.verbs.searching.resume import resumed


def options(parser: ArgumentParser) -> None:
    shared.search_name(parser)
    parser.add_argument("--trials", required=True, metavar="+N", help="+N more, or a new total")
    shared.running(parser)
    shared.waiting(parser)
    shared.trusted(parser, "ledger", "tracking", "storage")
    shared.trust(parser)


def action(args: Namespace) -> int:
    if is_client(args.address):
        return run_there(args)
    if is_remote(args.address):
        return send(args, args.search)
    folder = folder_of(args, args.search)
    config = config_to_continue(folder)
    config.search.trials = new_budget(str(args.trials), config.search.trials)
    with status_line(args) as line:
        return resumed(config, folder, args.address, args.quiet, line)


def new_budget(text: str, budget: int) -> int:
    """The new budget of trials that `+N` or a total asks for; `budget` is the present one."""
    try:
        amount = int(text)
    except ValueError:
        raise UserError(f"--trials {text}: give +N for N more trials, or a new total") from None
    total = budget + amount if text.startswith("+") else amount
    if total <= budget:
        raise UserError(
            f"--trials {text}: the search has a budget of {budget} already", "write +N for N more"
        )
    return total
