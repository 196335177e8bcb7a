"""The front of a search."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from bitfront.dashboards.figures.front.table import front_csv
from bitfront.dashboards.figures.front.text import front_text
from bitfront.search.garbage import ending_soon
from bitfront.search.results.figure_data import figure_labels, front_points, seen_by
from bitfront.terminal import tables as terminal
from bitfront.terminal.summary import front_summary
from bitfront.verbs import options as shared
from bitfront.verbs.on_head import on_head
from bitfront.verbs.opening import results_of


def options(parser: ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    shared.json_output(form)
    shared.search_name(parser)
    parser.add_argument("--plot", action="store_true", help="with a scatter of all trials")
    parser.add_argument(
        "--x",
        metavar="COST",
        help="the front of quality and this cost, e.g. latency_ms, whatever the search optimized",
    )
    parser.add_argument("--wide", action="store_true", help="whole plans and all columns")
    form.add_argument(
        "--csv",
        action="store_true",
        help="all points with a complete trial as CSV, a row per point: means over its seeds",
    )
    shared.head_address(parser)
    shared.trusted(parser, "ledger")


@ending_soon()
def action(args: Namespace) -> int:
    if args.address is not None:
        return on_head(args, [args.search])
    results = results_of(args, args.search)
    results = results if args.x is None else seen_by(results, args.x)
    if args.json:
        terminal.show_json(results.as_json())
    elif args.csv:
        sys.stdout.write(front_csv(front_points(results), results.figure_quality.bare))
    else:
        terminal.show(front_summary(results, args.wide, terminal.coloured()))
        if args.plot:
            columns = min(100, terminal.width())
            plot = front_text(front_points(results), columns, **figure_labels(results))
            terminal.show("\n" + plot)
    return 0
