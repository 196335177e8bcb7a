"""Points of a front as recipes."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bitfront.search.deciding.limits import misses_in_words
from bitfront.search.ledger.entry import Entry
from bitfront.search.recipes.choice import (
    best_within,
    cheapest_with,
    knee_of,
)
from bitfront.search.recipes.export import may_save, recipe_of, save_beside
from bitfront.search.recipes.recipe import Recipe, load_recipe
from bitfront.search.results.results import Results
from bitfront.search.results.settings import in_a_line, settings_of
from bitfront.terminal import tables as terminal
from bitfront.terminal.next_commands import after_export
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import parse, shown
from bitfront.verbs import options as shared
from bitfront.verbs.on_head import answer_of
from bitfront.verbs.on_head import shown as shown_there
from bitfront.verbs.opening import results_of, warn_of_edits

# What a recipe is called on the head of a cluster, before it is written here.
THERE = "recipe-there.yaml"


def options(parser: ArgumentParser) -> None:
    shared.search_name(parser)
    # argparse would put all ways to choose a point on one line.
    parser.usage = "bitfront export SEARCH --budget 40%% [--epochs N] [--seeds N] [-o PATH]"
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--budget",
        help="the best point within: 40%% of the flops of the search's dearest network in full "
        "precision (as flops %% in `bitfront front`), a count of the cost that is "
        "optimized, or one of another cost: bytes=50k",
    )
    which.add_argument(
        "--min-accuracy",
        "--min-quality",
        metavar="ACC",
        help="the cheapest point with: 0.97 or 97%%",
    )
    which.add_argument("--knee", action="store_true", help="where the front bends most")
    which.add_argument(
        "--trial", metavar="ID", help="this trial, by its id (5b1ddccb), the start of it, or t12"
    )
    which.add_argument("--all", action="store_true", help="every point of the front")
    parser.add_argument(
        "--epochs", type=shared.positive, help="epochs of final training (default: as searched)"
    )
    parser.add_argument(
        "--seeds", type=shared.positive, default=3, help="seeds of final training (default 3)"
    )
    parser.add_argument("-o", "--output", metavar="PATH", help="default recipe.yaml, or recipes/")
    parser.add_argument("--force", action="store_true", help="replace a file of other content")
    shared.head_address(parser)
    shared.trusted(parser, "ledger")


def action(args: Namespace) -> int:
    if args.address is not None:
        return _export_there(args)
    results = results_of(args, args.search)
    if not results.front:
        raise UserError(f"search '{results.config.name}' has no complete trial yet")
    if args.all:
        _export_all(results, args)
    else:
        _export_one(results, _chosen(results, args), args)
    return 0


def _export_there(args: Namespace) -> int:
    """Export on the head of a cluster, and write here what it wrote there."""
    usual = Path(args.output or ("recipes" if args.all else "recipe.yaml"))
    answer = answer_of(args, [args.search], ["-o", THERE])
    said = answer.out
    for name, text in answer.files.items():
        wanted = usual / Path(name).relative_to(THERE) if args.all else usual
        recipe = _received(text)
        if args.output and not args.all and not args.force and not may_save(recipe, wanted):
            raise _taken(wanted)
        path = save_beside(recipe, wanted, args.force)
        if path != wanted:
            terminal.say(f"{wanted} has other content and stays as it is: wrote {path}")
        usual = path if not args.all else usual
    return shown_there(replace(answer, out=said.replace(THERE, str(usual))))


def _received(text: str) -> Recipe:
    """The recipe that a head sent. Paths of the head's own mean nothing here."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "recipe.yaml"
        file.write_text(text, encoding="utf-8")
        recipe = load_recipe(file)
    return recipe.model_copy(update={"code": dict.fromkeys(recipe.code, "")})


def _taken(path: Path) -> UserError:
    return UserError(
        f"{path} is there and has other content; it is not overwritten",
        "another name, or --force to replace it",
    )


def _export_all(results: Results, args: Namespace) -> None:
    out = Path(args.output or "recipes")
    for entry in results.front:
        recipe = recipe_of(results, entry, args.epochs, list(range(args.seeds)))
        usual = out / f"{results.config.name}-{entry.id}.yaml"
        path = save_beside(recipe, usual, args.force)
        if path != usual:
            terminal.say(f"{usual} has other content and stays as it is: wrote {path}")
    terminal.show(f"{len(results.front)} recipes in {out}")
    _tell_code(recipe)


def _export_one(results: Results, entry: Entry, args: Namespace) -> None:
    recipe = recipe_of(results, entry, args.epochs, list(range(args.seeds)))
    usual = Path(args.output or "recipe.yaml")
    if args.output and not args.force and not may_save(recipe, usual):
        raise _taken(usual)
    path = save_beside(recipe, usual, args.force)
    if path != usual:
        terminal.show(f"{usual} has other content and stays as it is")
    settings = in_a_line(settings_of(entry))
    chosen = " ".join(filter(None, (shown(entry.spec.method), settings, entry.spec.plan)))
    terminal.say(
        f"{path}: trial {entry.id}, {chosen}\n"
        f"  {terminal.expectation(entry, results.config.quality, results.seed_noise)}\n"
        f"  {terminal.count(entry.costs['flops'])} flops "
        f"({entry.costs['flops_pct']:.1f} % of the dearest network in full precision)"
        f"{_other_costs(results, entry)}\n"
        f"  {after_export(path)}"
    )
    _tell_code(recipe)


def _other_costs(results: Results, entry: Entry) -> str:
    """The costs that the search optimizes besides flops."""
    costs = [name for name in results.config.objectives if name in entry.costs]
    told = [n for n in costs if n not in ("flops", "flops_pct", "flops_own_pct")]
    return "".join(f", {terminal.count(entry.costs[name])} {name}" for name in told)


def _tell_code(recipe: Recipe) -> None:
    """Say which code of the user's own a recipe needs."""
    for text, place in recipe.code.items():
        where = f"; it is in {place}" if place else ", which is not here"
        terminal.say(f"  the recipe needs {shown(text)} (@{parse(text).digest}){where}")
    warn_of_edits(list(recipe.code), recipe.search)


def _chosen(results: Results, args: Namespace) -> Entry:
    """The point the options ask for."""
    if args.trial:
        entry = results.find(args.trial)
        misses = misses_in_words(results.config, entry.metrics)
        if misses:
            terminal.say(f"warning: trial {entry.id} is no point of the front: it misses {misses}")
        return entry
    if args.budget:
        return best_within(results, args.budget)
    if args.min_accuracy:
        return cheapest_with(results, args.min_accuracy)
    if args.knee:
        return knee_of(results)
    raise UserError("which point? give --budget, --min-accuracy, --knee, --trial or --all")
