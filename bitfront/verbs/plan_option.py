"""The value of `--plan`: letters, a selector with a number of layers or a budget; and the work of a
selector that trains a network first."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from bitfront.search.ledger.folder import home, pretrained_folder, selections_folder
from bitfront.search.session.selection import intentions
from bitfront.terminal import tables as terminal
from bitfront.trainables.cost import CostTable
from bitfront.trainables.errors import UserError
from bitfront.trainables.plan import check_plan
from bitfront.trainables.registry import is_count
from bitfront.trainables.selectors import SELECTORS, Selection, SelectionSpec, select
from bitfront.trainables.task import Task

# The data a selector trains on when the user names none.
EMBEDDED = "digits"


def parse_plan(text: str, table: CostTable, selected: Callable[[str], Selection]) -> str:
    """The plan that a text means: letters, one letter for all layers, `first:7` or `last:7` (a
    number of layers), or `SELECTOR@40%` (a budget). `selected` runs a selector that trains a
    network."""
    n = len(table.plan_layers)
    mark = next((m for m in (":", "@") if m in text), None)
    if mark is None:
        return check_plan(text * n if len(text) == 1 else text, table.plan_layers)
    name, _, number = text.partition(mark)
    selector = SELECTORS.get(name)()
    if selector.method is not None:
        raise UserError(f"--plan {text}: {name} removes channels, it makes no plan")
    if mark == ":" and (not is_count(number) or not 0 <= int(number) <= n):
        raise UserError(f"--plan {text}: give a number of layers from 0 to {n}")
    percent = _percentage(text, number)
    found = selected(name) if selector.trained else None
    if found is None:
        order = list(selector.order(table, 0))
    else:
        order = list(found.order)
        if len(order) != n:
            raise UserError(
                f"--plan {text}: the network {name} looked at has {len(order)} layers to plan, "
                f"this one {n}",
                "name the data it is meant for: --dataset NAME",
            )
    if mark == ":":
        chosen = set(order[: int(number)])
        return "".join("B" if i in chosen else "F" for i in range(n))
    return selector.plan(table, order, percent) if found is None else found.plan(table, percent)


def _percentage(text: str, number: str) -> float:
    try:
        return float(number.rstrip("%"))
    except ValueError:
        raise UserError(f"--plan {text}: '{number}' is not a percentage") from None


def selected_here(args: Namespace, params: dict[str, Any]) -> Callable[[str], Selection]:
    """A function that runs a selector which trains a network, on --dataset or on the embedded
    digits, and prints what it does."""

    def selected(name: str) -> Selection:
        task = Task.model_validate(
            {
                "dataset": args.dataset or EMBEDDED,
                "model": {"name": args.model, **params},
                "epochs": args.epochs,
                "binarize": args.binarize,
                "keep_full": args.keep_full,
                "activations": args.activations,
                "data_dir": args.data_dir,
            }
        )
        spec = SelectionSpec(selector=name, task=task)
        note = (lambda _text: None) if args.json else terminal.show
        root = home(args.home)
        if not args.dataset:
            note(f"{name} looks at a trained network; without --dataset, one for {EMBEDDED}")
        for line in intentions([spec]):
            note(line)
        found = select(spec, selections_folder(root), pretrained_folder(root), gpus=1.0, note=note)
        note(found.summary() + "\n")
        return found

    return selected
