"""Pictures of a search, written where people look: the report, the figures beside the ledger, one
figure for a paper. What they look like is in `dashboards`."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.search.ledger import folder as home
from bitfront.search.ledger.folder import write_atomically
from bitfront.search.results.reader import SearchReader
from bitfront.search.tracking.notes import REPORT
from bitfront.terminal import tables as terminal
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.files import replacing

if TYPE_CHECKING:
    from bitfront.search.results.view import SearchView


# --- the verbs ----------------------------------------------------------------------------------


def report(args: Namespace) -> int:
    """`bitfront report NAME [NAME2]`."""
    from bitfront.dashboards.pages.comparison import comparison_html
    from bitfront.dashboards.pages.report import report_of

    root = home.home(args.home)
    folders = [home.find(root, name) for name in args.searches]
    views = [SearchReader(folder).read() for folder in folders]
    if len(views) == 1:
        path = Path(args.output or folders[0].path / REPORT)
        write_atomically(path, report_of(views[0]))
    else:
        views = _comparable(views)
        names = "-".join(view.name for view in views)
        path = Path(args.output or folders[0].path / f"report-{names}.html")
        write_atomically(path, comparison_html(views))
    if args.json:
        terminal.show_json({"report": str(path)})
    else:
        terminal.show(f"wrote {path}")
    return 0


def figure(args: Namespace) -> int:
    """`bitfront figure NAME --kind KIND -o FILE`."""
    from bitfront.dashboards.figures import FIGURES, Subject
    from bitfront.dashboards.figures.style import EXTENSIONS

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
    given = Path(args.search)
    if given.is_file():
        return given
    from bitfront.search.recipes.finals import final_trainings

    folder = home.find(home.home(args.home), args.search)
    kept = [Path(f.checkpoint) for f in final_trainings(folder) if Path(f.checkpoint).is_file()]
    if not kept:
        raise UserError(
            f"search '{folder.name}' has no masks: trials keep no weights, final trainings do",
            f"bitfront export {folder.name} --knee; bitfront train recipe.yaml; "
            "or give a packed checkpoint in place of the name",
        )
    return kept[-1]


def _view_with_front(args: Namespace) -> SearchView:
    view = SearchReader(home.find(home.home(args.home), args.search)).read()
    if not view.front:
        raise UserError(f"search '{view.name}' has no front yet: no trial is complete")
    return view


def _comparable(views: list[SearchView]) -> list[SearchView]:
    """The searches with their objectives in the order of the first one."""
    first = views[0]
    names = [axis.name for axis in first.objectives]
    for view in views[1:]:
        if sorted(axis.name for axis in view.objectives) != sorted(names):
            both = (", ".join(a.name for a in v.objectives) for v in (first, view))
            raise UserError(
                f"'{first.name}' and '{view.name}' have different objectives: {' and '.join(both)}"
            )
    return [view.in_order(names) for view in views]
