"""Final training from a recipe."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from bitfront.search import kept_code
from bitfront.search.cluster.head import INTERRUPTED
from bitfront.search.ledger.folder import home, pretrained_folder
from bitfront.search.recipes.final_folder import folder_for, refuse_other
from bitfront.search.recipes.final_training import FinalResult, check_test_part, train_recipe
from bitfront.search.recipes.finals import FILE
from bitfront.search.recipes.origin import note_result, search_of
from bitfront.search.recipes.recipe import Recipe, load_recipe
from bitfront.search.results.stored import stored_config
from bitfront.search.session.interrupts import acknowledged, obey
from bitfront.search.tracking.registered import check_name
from bitfront.terminal import tables as terminal
from bitfront.terminal.final_training import result_text
from bitfront.terminal.training_progress import TrainingProgress
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import refuse_link
from bitfront.verbs import options as shared
from bitfront.verbs.opening import warn_of_edits


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("recipe")
    parser.add_argument("--epochs", type=shared.positive, help="instead of the recipe's")
    parser.add_argument(
        "--seeds", type=shared.positive, metavar="N", help="seeds 0 to N-1, not the recipe's"
    )
    parser.add_argument(
        "--keep",
        choices=("last", "best"),
        help="the epoch that is tested: the last one, of a training on train and validation data "
        "(default), or the best on a validation part that is held out as in the search",
    )
    parser.add_argument("--half", action="store_true", help="store what is not binary in float16")
    parser.add_argument(
        "--threads", type=shared.positive, help="CPU threads (default: torch's choice)"
    )
    parser.add_argument(
        "--workers",
        type=shared.positive,
        metavar="N",
        help="share every batch among N workers on Ray, a GPU each where there are any",
    )
    parser.add_argument("--address", help="the Ray cluster of --workers: auto or HOST:PORT")
    parser.add_argument(
        "--register",
        metavar="NAME",
        help="make the network of the first seed a version of this registered model in MLflow",
    )
    shared.data_dir(parser)
    parser.add_argument("--quiet", action="store_true", help="print the result only")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="default: RECIPE-trained/, or a folder beside it"
    )
    shared.trusted(parser, "tracking")
    shared.trust(parser)


def action(args: Namespace) -> int:
    path = Path(args.recipe)
    recipe = _recipe(args, path)
    out, moved = (Path(args.output), None) if args.output else folder_for(recipe, path)
    _check(args, recipe, out)
    silent = args.quiet or args.json
    note = (lambda _text: None) if silent else terminal.say
    if moved is not None:
        note(moved)
    if not args.quiet:
        warn_of_edits(recipe.spec.model_dump(mode="json"), recipe.search, path.parent)
    seeds = len(set(recipe.final.seeds))
    note(f"{recipe.name}: epochs {recipe.final.epochs}, seeds {seeds}, into {out}")
    # With several workers another thread reports the epochs, and an interrupt must be raised in the
    # main thread.
    heed = obey if args.workers is None else lambda: None
    view = TrainingProgress(note, None if silent else sys.stdout, heed)
    try:
        with acknowledged(lambda: _write_now("interrupted, saving ...")):
            result = train_recipe(
                recipe,
                out,
                args.data_dir,
                threads=args.threads,
                note=note,
                pretrained=pretrained_folder(home(args.home)),
                workers=args.workers,
                address=args.address,
                progress=view,
            )
    except KeyboardInterrupt:
        print(terminal.filled(f"kept in {out}: {view.kept()}"), file=sys.stderr)
        return INTERRUPTED
    problem = note_result(recipe, result, home(args.home), args.register)
    if problem is not None:
        note(problem)
    elif args.register is not None:
        note(f"registered in MLflow as a version of {args.register}")
    _show(recipe, result, args.json)
    return 0


def _recipe(args: Namespace, path: Path) -> Recipe:
    """The recipe with what the options change in it."""
    recipe = load_recipe(path)
    origin = search_of(recipe, home(args.home))
    if origin is not None:
        kept_code.look(origin.path)
    if args.epochs is not None:
        recipe.final.epochs = args.epochs
    if args.seeds is not None:
        recipe.final.seeds = list(range(args.seeds))
    if args.keep is not None:
        recipe.final.keep = args.keep
    if args.half:
        recipe.final.rest = "float16"
    return recipe


def _check(args: Namespace, recipe: Recipe, out: Path) -> None:
    """Raise UserError now for what would otherwise fail after the training."""
    if not args.output:
        refuse_link(out)
    origin = search_of(recipe, home(args.home))
    if origin is not None:
        refuse_link(origin.path / FILE)
    if args.register is not None:
        if origin is None or not stored_config(origin).tracking.enabled:
            raise UserError(
                "--register is for recipes whose search is in this home and tracked in MLflow",
                "name the home of the search: --home DIR",
            )
        check_name(args.register)
    if args.address is not None and args.workers is None:
        raise UserError("--address is for --workers N: one worker trains here")
    refuse_other(out, recipe)
    check_test_part(recipe, args.data_dir)


def _write_now(text: str) -> None:
    """Write to standard error from another thread. Not with `print`: the main thread may have been
    interrupted inside of it."""
    os.write(sys.stderr.fileno(), f"\n{text}\n".encode())


def _show(recipe: Recipe, result: FinalResult, as_json: bool) -> None:
    if as_json:
        terminal.show_json(result.as_json())
    else:
        terminal.show(result_text(recipe, result))
