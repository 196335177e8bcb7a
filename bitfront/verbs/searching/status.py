"""How searches are doing."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from bitfront.search import submission
from bitfront.search.garbage import ending_soon
from bitfront.search.homes import owner_of, searches
from bitfront.search.ledger.folder import SearchFolder, home
from bitfront.search.results.results import Results
from bitfront.terminal import tables as terminal
from bitfront.terminal.status import failures_text, status_table
from bitfront.trainables.errors import UserError, first_line
from bitfront.verbs import options as shared
from bitfront.verbs.on_head import on_head
from bitfront.verbs.opening import folder_of


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("searches", nargs="*", metavar="search", help="names (default: all)")
    parser.add_argument(
        "--failures", action="store_true", help="every failed trial with its traceback"
    )
    shared.head_address(parser)
    shared.trusted(parser, "ledger")


@ending_soon()
def action(args: Namespace) -> int:
    if args.address is not None:
        return on_head(args, args.searches)
    folders = [folder_of(args, n) for n in args.searches] or searches(args.home)
    found = [(folder.name, *_read(folder)) for folder in folders]
    on_a_head = submission.here() is not None
    if args.json:
        reports = [report for _, _, report in found]
        terminal.show_json(reports[0] if len(args.searches) == 1 else reports)
    elif args.failures:
        for _, each, _ in found:
            terminal.show(each.message if isinstance(each, UserError) else failures_text(each))
    elif found:
        shown = [(name, each) for name, each, _ in found]
        places = [(str(f.path.parent), owner_of(f)) for f in folders] if on_a_head else None
        terminal.show(status_table(shown, terminal.coloured(), places))
    elif on_a_head:
        terminal.show("no search has been submitted here; start one: bitfront submit")
    else:
        terminal.show(f"no search has been run in {home(args.home)}; start one: bitfront run")
    return int(any(isinstance(each, UserError) for _, each, _ in found))


def _read(folder: SearchFolder) -> tuple[Results | UserError, dict[str, Any]]:
    """The results of a search and its report; for a damaged search its error, so that the others
    can still be listed."""
    try:
        results = Results.of(folder)
        place = {"home": str(folder.path.parent), "owner": owner_of(folder)}
        return results, results.status_json() | (place if submission.here() is not None else {})
    except UserError as error:
        problem = error
    except Exception as error:  # any fault in one folder must not hide the others
        problem = UserError(f"{folder.path}: damaged: {first_line(error, typed=True)}")
    return problem, {"search": folder.name, "error": problem.message}
