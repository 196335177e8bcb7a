"""One figure for a paper."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path

from bitfront.dashboards.figures import FIGURES, Subject
from bitfront.dashboards.figures.style import EXTENSIONS
from bitfront.search.recipes.finals import final_trainings
from bitfront.search.results.reader import SearchReader
from bitfront.search.results.view import SearchView
from bitfront.terminal import tables as terminal
from bitfront.terminal.next_commands import for_masks
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.files import replacing
from bitfront.verbs import options as shared
from bitfront.verbs.opening import folder_of


def options(parser: ArgumentParser) -> None:
    parser.add_argument("search", help="its name; of masks also a packed checkpoint")
    kinds = ", ".join(FIGURES).replace("front", "front (default)", 1)
    parser.add_argument("--kind", default="front", help=kinds)
    parser.add_argument("--layer", help="of masks: this one, weight by weight; A,B: side by side")
    parser.add_argument("--title", help="instead of the search's name; '' for none")
    parser.add_argument("-o", "--output", metavar="FILE", help=".pdf, .svg or .png; KIND.pdf")
    shared.trusted(parser, "ledger")
    shared.trust(parser)


def action(args: Namespace) -> int:
    if args.kind not in FIGURES:
        raise UserError(f"--kind {args.kind}: unknown, {did_you_mean(args.kind, FIGURES)}")
    path = Path(args.output or f"{args.kind}.pdf")
    if path.suffix.lower().removeprefix(".") not in EXTENSIONS:
        raise UserError(f"-o {path}: a figure is written as {', '.join(EXTENSIONS)}, by its name")
    if not path.parent.is_dir():
        raise UserError(f"-o {path}: there is no folder {path.parent}")
    subject = Subject(
        partial(_view_with_front, args), partial(_checkpoint, args), args.title, args.layer
    )
    with replacing(path) as part:
        FIGURES.get(args.kind).draw(subject, part)
    terminal.show(f"wrote {path}")
    return 0


def _checkpoint(args: Namespace) -> Path:
    """The packed checkpoint that is named, or the newest one of the search that is named."""
    given = Path(args.search)
    if given.is_file():
        return given
    folder = folder_of(args, args.search)
    kept = [Path(f.checkpoint) for f in final_trainings(folder) if Path(f.checkpoint).is_file()]
    if not kept:
        raise UserError(
            f"search '{folder.name}' has no masks: trials keep no weights, final trainings do",
            for_masks(folder.name),
        )
    return kept[-1]


def _view_with_front(args: Namespace) -> SearchView:
    view = SearchReader(folder_of(args, args.search)).read()
    if not view.front:
        raise UserError(f"search '{view.name}' has no front yet: no trial is complete")
    return view
