"""A page to send around: the search in pictures."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bitfront.dashboards.pages.comparison import comparable, comparison_html
from bitfront.dashboards.pages.report import report_of
from bitfront.search.results.reader import SearchReader
from bitfront.search.tracking.notes import REPORT
from bitfront.terminal import tables as terminal
from bitfront.trainables.files import write_atomically
from bitfront.verbs import options as shared
from bitfront.verbs.opening import folder_of


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("searches", nargs="+", metavar="search", help="its name; two are compared")
    parser.add_argument("-o", "--output", metavar="HTML", help="default: report.html in its folder")
    shared.trusted(parser, "ledger")


def action(args: Namespace) -> int:
    folders = [folder_of(args, name) for name in args.searches]
    views = [SearchReader(folder).read() for folder in folders]
    if len(views) == 1:
        path = Path(args.output or folders[0].path / REPORT)
        write_atomically(path, report_of(views[0]))
    else:
        views = comparable(views)
        names = "-".join(view.name for view in views)
        path = Path(args.output or folders[0].path / f"report-{names}.html")
        write_atomically(path, comparison_html(views))
    if args.json:
        terminal.show_json({"report": str(path)})
    else:
        terminal.show(f"wrote {path}")
    return 0
