"""Two searches side by side, or one beside the paper's rows."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial

from bitfront.search.results.comparison import Comparison
from bitfront.search.results.paper import PaperComparison
from bitfront.terminal import tables as terminal
from bitfront.terminal.comparisons import comparison_text, paper_text
from bitfront.trainables.errors import UserError
from bitfront.verbs import options as shared
from bitfront.verbs.opening import results_of


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("a", help="name of a search")
    parser.add_argument("b", nargs="?", help="name of another one")
    parser.add_argument("--paper", action="store_true", help="the rows the search's YAML carries")
    shared.trusted(parser, "ledger")


def action(args: Namespace) -> int:
    if args.paper == (args.b is not None):
        raise UserError("compare with what? give a second search, or --paper alone")
    first = results_of(args, args.a)
    if args.paper:
        beside = PaperComparison(first)
        report, text = beside.as_json, partial(paper_text, beside)
    else:
        both = Comparison(first, results_of(args, args.b))
        report, text = both.as_json, partial(comparison_text, both)
    if args.json:
        terminal.show_json(report())
    else:
        terminal.show(text())
    return 0
