"""Give a search more trials or hours and run them."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace

from bitfront.search.cluster.ray_client import is_client, run_there
from bitfront.search.cluster.remote.words import is_remote
from bitfront.search.config.schema import UNLIMITED, SearchSpec
from bitfront.search.deciding.ending import GAIN, asked_in_words
from bitfront.search.results.results import Results, config_to_continue
from bitfront.trainables.errors import UserError
from bitfront.verbs import options as shared
from bitfront.verbs.on_head import send
from bitfront.verbs.opening import folder_of, status_line
from bitfront.verbs.searching.resume import resumed


def options(parser: ArgumentParser) -> None:
    shared.search_name(parser)
    parser.add_argument("--trials", metavar="+N", help="+N more, or a new total")
    parser.add_argument("--hours", metavar="+H", help="+H hours more, or a new total")
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
    if args.trials is None and args.hours is None:
        raise UserError("extend by what?", "--trials +20 or --hours +1")
    with status_line(args) as line:
        begun = Results.of(folder)
        if args.trials is not None:
            said = more_trials(config.search, str(args.trials), begun)
            for text in said:
                line.say(text)
        if args.hours is not None:
            for text in more_hours(config.search, str(args.hours), begun):
                line.say(text)
        return resumed(config, folder, args.address, args.quiet, line)


def more_trials(search: SearchSpec, text: str, results: Results) -> list[str]:
    """Give the search the trials that `+N` or a total asks for, and return what changes besides.
    One that its hours or its gain has ended counts its trials alone from now on, those it has
    included."""
    begun = len(results.entries)
    if results.ended_by is None and search.budget is not None:
        search.trials = new_budget(text, search.trials)
        return []
    search.trials = new_budget(text, begun)
    lifted = asked_in_words(search)
    search.hours, search.until = None, None
    return [f"{search.trials} trials in all from now on, no longer until {lifted}"]


def more_hours(search: SearchSpec, text: str, results: Results) -> list[str]:
    """Give the search the hours that `+H` or a total asks for, and return what changes besides: a
    number of trials or a gain that has ended it ends it no more."""
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount):
        raise UserError(f"--hours {text}: give +H for H more hours, or a new total")
    before = search.hours or 0.0
    total = before + amount if text.startswith("+") else amount
    if total <= before:
        raise UserError(f"--hours {text}: the search has {before:g} already", "write +H for H more")
    search.hours = total
    said = []
    if results.ended_by is not None and search.until is not None and results.ended_by.what == GAIN:
        search.until = None
        said.append("the gain that is left ends it no more")
    if search.budget is not None and len(results.entries) >= search.budget:
        search.trials = UNLIMITED
        said.append("as many trials as these hours take")
    return said


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
