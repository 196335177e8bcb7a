"""A network that is named at the command line: its parameters, its inputs, and which of its layers
a plan decides. For verbs that look at a network before there is a search: cost, bench."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import Any, get_args

from bitfront.search.config.source import value
from bitfront.trainables import own_code
from bitfront.trainables.cost import CostTable, cost_table
from bitfront.trainables.data import DATASETS, DatasetInfo
from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.models import MODELS
from bitfront.trainables.models.own import MissingArgumentError
from bitfront.trainables.registry import is_count
from bitfront.trainables.settings import Activations, settled_activations
from bitfront.trainables.structure.scope import SCOPES
from bitfront.verbs import options as shared

MOST_CLASSES = 1_000_000_000
MOST_NUMBERS = 1_000_000_000


@dataclass(frozen=True)
class NamedNetwork:
    """What the options say of a network."""

    model: str
    params: dict[str, Any]
    shape: tuple[int, ...]
    classes: int
    scope: str | list[str]
    keep_full: list[str]
    activations: str
    integers: bool | None
    axes: bool

    def table(self) -> CostTable:
        """Its layers."""
        return cost_table(
            self.model,
            self.params,
            self.shape,
            self.classes,
            self.scope,
            activations=self.activations,
            keep_full=self.keep_full,
            integers=self.integers,
            axes=self.axes,
        )


def options(parser: ArgumentParser) -> None:
    """The parameters of a network, its inputs, and which layers a plan decides."""
    parser.add_argument("params", nargs="*", metavar="KEY=VALUE", help="parameters of the model")
    parser.add_argument("--dataset", help="for shape and classes, and for a selector of --plan")
    shared.data_dir(parser)
    parser.add_argument("--shape", help="input shape, e.g. 3x32x32 (the default)")
    parser.add_argument(
        "--classes", type=shared.positive, help="default 100; what a network of your own has"
    )
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="a model parameter")
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


def named_network(args: Namespace) -> tuple[NamedNetwork, CostTable]:
    """The network of the options, and its layers; a UserError where there is none. What `args` say
    of it is settled in place."""
    own = MODELS.reference(args.model)
    args.model = args.model if own is None else own_code.settle(own)
    params = _assignments([*args.params, *(args.set or [])], args.model)
    info = _dataset(args, params) if args.dataset else None
    shape = _shape(args.shape) if args.shape else (info.shape if info else (3, 32, 32))
    classes = _classes(args, info)
    MODELS.get(args.model)
    declared = ":" not in args.model and "/" not in args.model
    args.binarize = args.binarize if args.binarize in SCOPES else args.binarize.split(",")
    args.keep_full = args.keep_full.split(",") if args.keep_full else []
    args.activations = settled_activations(args.activations, declared)
    network = NamedNetwork(
        args.model,
        params,
        shape,
        classes,
        args.binarize,
        args.keep_full,
        args.activations,
        None if info is None else info.integers,
        info is None or info.has_axes,
    )
    try:
        return network, network.table()
    except UserError as error:
        raise UserError(error.message, _hint(error, args, shape)) from error


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
