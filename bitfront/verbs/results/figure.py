"""One figure for a paper."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bitfront.dashboards.figures.front import front_image
from bitfront.dashboards.figures.hypervolume import hypervolume_image
from bitfront.dashboards.figures.importance import importance_image
from bitfront.dashboards.figures.layers import layers_image
from bitfront.dashboards.figures.pruning import mask_image, masks_image
from bitfront.dashboards.figures.style import EXTENSIONS
from bitfront.search.recipes.finals import final_trainings
from bitfront.search.recipes.masks import pruned_masks
from bitfront.search.results.importance import LEAST_TRIALS, importances
from bitfront.search.results.view import SearchReader
from bitfront.terminal import tables as terminal
from bitfront.terminal.next_commands import for_masks
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.files import replacing
from bitfront.verbs import options as shared
from bitfront.verbs.opening import folder_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bitfront.dashboards.view import SearchView


def options(parser: ArgumentParser) -> None:
    parser.add_argument("search", help="its name; of masks also a packed checkpoint")
    kinds = ", ".join(KINDS).replace("front", "front (default)", 1)
    parser.add_argument("--kind", default="front", help=kinds)
    parser.add_argument("--layer", help="of masks: this one, weight by weight")
    parser.add_argument("--title", help="instead of the search's name; '' for none")
    parser.add_argument("-o", "--output", metavar="FILE", help=".pdf, .svg or .png; KIND.pdf")
    shared.trusted(parser, "ledger")


def action(args: Namespace) -> int:
    if args.kind not in KINDS:
        raise UserError(f"--kind {args.kind}: unknown, {did_you_mean(args.kind, KINDS)}")
    path = Path(args.output or f"{args.kind}.pdf")
    if path.suffix.lower().removeprefix(".") not in EXTENSIONS:
        raise UserError(f"-o {path}: a figure is written as {', '.join(EXTENSIONS)}, by its name")
    if not path.parent.is_dir():
        raise UserError(f"-o {path}: there is no folder {path.parent}")
    with replacing(path) as part:
        KINDS[args.kind](args, part)
    terminal.show(f"wrote {path}")
    return 0


def _front(args: Namespace, path: Path) -> None:
    view = _view_with_front(args)
    front_image(view.points, _title(args, view), path, **view.labels)


def _layers(args: Namespace, path: Path) -> None:
    view = _view_with_front(args)
    layers_image(view, _title(args, view), path)


def _hypervolume(args: Namespace, path: Path) -> None:
    view = _view_with_front(args)
    hypervolume_image([view], _title(args, view), path)


def _importance(args: Namespace, path: Path) -> None:
    view = _view_with_front(args)
    shares = importances(view)
    if not shares:
        raise UserError(
            f"search '{view.name}' cannot tell what mattered: it needs {LEAST_TRIALS} complete "
            "trials, of different quality, that differ in something all of them have"
        )
    importance_image(shares, view.quality.label, _title(args, view), path)


def _masks(args: Namespace, path: Path) -> None:
    """Of a packed checkpoint, or of the final trainings of a search."""
    masks, title = pruned_masks(_checkpoint(args))
    draw_masks(masks, title if args.title is None else args.title, args.layer, path)


def draw_masks(
    masks: dict[str, NDArray[np.bool_]], title: str, layer: str | None, path: Path
) -> None:
    """Write what layers keep as a picture: of all of them, or of one weight by weight."""
    if layer is None:
        masks_image(masks, title, path)
        return
    if layer not in masks:
        raise UserError(f"--layer {layer}: no such pruned layer, {did_you_mean(layer, masks)}")
    mask_image(masks[layer], f"{title}, {layer}", path)


KINDS: dict[str, Callable[[Namespace, Path], None]] = {
    "front": _front,
    "layers": _layers,
    "hypervolume": _hypervolume,
    "masks": _masks,
    "importance": _importance,
}


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


def _title(args: Namespace, view: SearchView) -> str:
    return view.title if args.title is None else args.title
