"""What a planned network costs, layer by layer."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from typing import Any

from bitfront.search.config.source import value
from bitfront.terminal import tables as terminal
from bitfront.terminal.costs import PlannedNetwork, cost_text
from bitfront.trainables.cost import cost_table
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.methods import build_method
from bitfront.trainables.models import MODELS
from bitfront.trainables.registry import is_count
from bitfront.verbs import options as shared
from bitfront.verbs.plan_option import parse_plan, selected_here

MOST_CLASSES = 1_000_000_000
MOST_NUMBERS = 1_000_000_000


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("model")
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
    parser.add_argument("--classes", type=shared.positive, help="default 100")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="a model parameter")
    parser.add_argument("--scale", choices=("none", "layer", "channel"), default="none")
    parser.add_argument("--binarize", choices=("body", "all"), default="body")
    parser.add_argument(
        "--prune", type=float, metavar="R", help="pruning rate of the planned layers"
    )
    parser.add_argument("--exponent", type=float, default=1.0, metavar="P", help="p of --prune")
    shared.trust(parser)


def action(args: Namespace) -> int:
    info = DATASETS.get(DATASETS.settle(args.dataset, None)) if args.dataset else None
    shape = _shape(args.shape) if args.shape else (info.shape if info else (3, 32, 32))
    classes = args.classes if args.classes is not None else (info.classes if info else 100)
    if not 1 <= classes <= MOST_CLASSES:
        given = quoted(str(args.classes))
        raise UserError(f"--classes {given}: give a number from 1 to {MOST_CLASSES:,}")
    params = _assignments(args.set or [], args.model)
    MODELS.get(args.model)
    table = cost_table(args.model, params, shape, classes, args.binarize)
    plan = parse_plan(args.plan, table, selected_here(args, params))
    kept = None
    if args.prune is not None:
        method = build_method("edge-popup", {"rate": args.prune, "p": args.exponent})
        kept = method.kept(table.sizes(plan))
    network = PlannedNetwork(args.model, params, shape, classes, table, plan, args.scale, kept)
    if args.json:
        terminal.show_json(network.as_json())
    else:
        terminal.show(cost_text(network))
    return 0


def _shape(text: str) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if not all(is_count(part) and int(part) > 0 for part in parts):
        raise UserError(f"--shape {text}: write it as 3x32x32")
    shape = tuple(int(part) for part in parts)
    if math.prod(shape) > MOST_NUMBERS:
        raise UserError(f"--shape {text}: more than {MOST_NUMBERS:,} numbers an input")
    return shape


def _assignments(items: list[str], model: str) -> dict[str, Any]:
    """The parameters of a model that `--set KEY=VALUE` gives."""
    params = {}
    known = MODELS.get(model).params
    for item in items:
        key, _, text = item.partition("=")
        if key not in known:
            raise UserError(f"--set {item}: {model} has no '{key}', {did_you_mean(key, known)}")
        params[key] = value(text)
    return params
