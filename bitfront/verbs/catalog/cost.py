"""What a planned network costs, layer by layer."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from typing import Any, get_args

from bitfront.search.config.source import value
from bitfront.terminal import tables as terminal
from bitfront.terminal.costs import PlannedNetwork, cost_text
from bitfront.trainables import own_code
from bitfront.trainables.cost import cost_table
from bitfront.trainables.data import DATASETS, DatasetInfo
from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.methods import build_method
from bitfront.trainables.models import MODELS
from bitfront.trainables.models.own import MissingArgumentError
from bitfront.trainables.registry import is_count
from bitfront.trainables.settings import TREATED_INPUTS, Activations, settled_activations
from bitfront.trainables.structure.scope import SCOPES
from bitfront.verbs import options as shared
from bitfront.verbs.plan_option import parse_plan, selected_here

MOST_CLASSES = 1_000_000_000
MOST_NUMBERS = 1_000_000_000


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("model", help="a name, or a network of your own: my_net.py:MyNet")
    parser.add_argument("params", nargs="*", metavar="KEY=VALUE", help="parameters of the model")
    parser.add_argument(
        "--plan", default="F", help="letters, one letter for all, first:7, mixbin-grad@40%%"
    )
    parser.add_argument("--dataset", help="for shape and classes, and for a selector of --plan")
    shared.data_dir(parser)
    parser.add_argument(
        "--epochs",
        type=shared.positive,
        default=10,
        help="of the network a selector of --plan trains first",
    )
    parser.add_argument("--shape", help="input shape, e.g. 3x32x32 (the default)")
    parser.add_argument(
        "--classes", type=shared.positive, help="default 100; what a network of your own has"
    )
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="a model parameter")
    parser.add_argument("--scale", choices=("none", "layer", "channel"), default="none")
    parser.add_argument(
        "--binarize",
        default="body",
        metavar="WHICH",
        help="body (default), all, or names and patterns of layers, separated by commas",
    )
    parser.add_argument(
        "--keep-full",
        metavar="WHICH",
        help="names and patterns of layers that stay F, separated by commas",
    )
    parser.add_argument(
        "--activations",
        metavar="NAME",
        choices=get_args(Activations),
        default="auto",
        help=f"task.activations, for the bytes of norms and shifts before binary inputs: "
        f"{', '.join(get_args(Activations))}",
    )
    parser.add_argument(
        "--prune", type=float, metavar="R", help="pruning rate of the planned layers"
    )
    parser.add_argument("--exponent", type=float, default=1.0, metavar="P", help="p of --prune")
    shared.trust(parser)


def action(args: Namespace) -> int:
    own = own_code.is_reference(args.model)
    args.model = own_code.settle(args.model) if own else args.model
    params = _assignments([*args.params, *(args.set or [])], args.model)
    info = _dataset(args, params) if args.dataset else None
    shape = _shape(args.shape) if args.shape else (info.shape if info else (3, 32, 32))
    classes = _classes(args, info)
    MODELS.get(args.model)
    args.binarize = _scope(args.binarize)
    args.keep_full = args.keep_full.split(",") if args.keep_full else []
    declared = ":" not in args.model and "/" not in args.model
    args.activations = settled_activations(args.activations, declared)
    try:
        table = cost_table(
            args.model,
            params,
            shape,
            classes,
            args.binarize,
            activations=args.activations,
            keep_full=args.keep_full,
            integers=None if info is None else info.integers,
        )
    except UserError as error:
        raise UserError(error.message, _hint(error, args, shape)) from error
    plan = parse_plan(args.plan, table, selected_here(args, params))
    kept = None
    if args.prune is not None:
        method = build_method("edge-popup", {"rate": args.prune, "p": args.exponent})
        kept = method.kept(table.sizes(plan))
    called = own_code.shown(args.model)
    stored = TREATED_INPUTS.get(args.activations, 0)
    network = PlannedNetwork(called, params, shape, classes, table, plan, args.scale, stored, kept)
    if args.json:
        terminal.show_json(network.as_json())
    else:
        terminal.show(cost_text(network))
    return 0


def _dataset(args: Namespace, params: dict[str, Any]) -> DatasetInfo:
    """The data of --dataset, for the network; what they are called is kept."""
    name = DATASETS.settle(args.dataset, None)
    if DATASETS.get(name).integers:
        from bitfront.trainables.models.building import suited

        name = suited(name, args.model, params)
    args.dataset = name
    return DATASETS.get(name)


def _classes(args: Namespace, info: DatasetInfo | None) -> int:
    """The number of classes: given, of the dataset, or 100; 0, not known, for a network of the
    user's own, which has as many outputs as it has."""
    if args.classes is not None:
        classes: int = args.classes
    elif info is not None:
        classes = info.classes
    else:
        return 0 if own_code.is_reference(args.model) else 100
    if not 1 <= classes <= MOST_CLASSES:
        given = quoted(str(args.classes))
        raise UserError(f"--classes {given}: give a number from 1 to {MOST_CLASSES:,}")
    return classes


def _hint(error: UserError, args: Namespace, shape: tuple[int, ...]) -> str | None:
    """What to do about a network that cannot be made or followed, in words of this command."""
    if not own_code.is_reference(args.model):
        return error.hint
    if isinstance(error, MissingArgumentError):
        return "give it behind the network, KEY=VALUE; --classes 10 gives num_classes"
    if args.shape is None and args.dataset is None and " fails " in error.message:
        return f"{'x'.join(map(str, shape))} was tried: say what it takes, --shape 1x28x28"
    return error.hint


def _scope(text: str) -> str | list[str]:
    return text if text in SCOPES else text.split(",")


def _shape(text: str) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if not all(is_count(part) and int(part) > 0 for part in parts):
        raise UserError(f"--shape {text}: write it as 3x32x32")
    shape = tuple(int(part) for part in parts)
    if math.prod(shape) > MOST_NUMBERS:
        raise UserError(f"--shape {text}: more than {MOST_NUMBERS:,} numbers an input")
    return shape


def _assignments(items: list[str], model: str) -> dict[str, Any]:
    """The parameters of a model that KEY=VALUE gives, with or without `--set`."""
    params = {}
    info = MODELS.get(model)
    for item in items:
        key, _, text = item.partition("=")
        if info.param(key) is None:
            hint = did_you_mean(key, info.params)
            raise UserError(f"{item}: {own_code.shown(model)} has no argument '{key}', {hint}")
        params[key] = value(text)
    return params
