"""The verbs that tell what bitfront has and what this machine can do: methods, selectors, models,
datasets, cost, mask, doctor."""

from __future__ import annotations

import math
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bitfront.terminal import tables as terminal
from bitfront.trainables.errors import UserError, did_you_mean, quoted
from bitfront.trainables.registry import is_count

# What a selector is shown when the user names no data.
EMBEDDED = "digits"
MOST_CLASSES = 1_000_000_000
MOST_NUMBERS = 1_000_000_000


def methods(args: Namespace) -> int:
    from bitfront.trainables.methods import METHODS

    found = [METHODS.get(name).describe() for name in METHODS.names(args.pattern)]
    if args.json:
        terminal.show_json(found)
        return 0
    rows = [[m["name"], "".join(m["levels"]), m["doc"], _defaults(m["params"])] for m in found]
    terminal.show(terminal.table(["method", "levels", "what", "parameters"], rows, prose=(2, 3)))
    terminal.show("\nall parameters, ranges and papers: bitfront methods --json")
    return 0


def _defaults(params: dict[str, dict[str, Any]]) -> str:
    return ", ".join(f"{name}={told['default']}" for name, told in params.items())


def selectors(args: Namespace) -> int:
    from bitfront.trainables.selectors import SELECTORS

    found = [SELECTORS.get(name).describe() for name in SELECTORS.names(args.pattern)]
    if args.json:
        terminal.show_json(found)
        return 0
    rows = [[s["name"], "yes" if s["trained"] else "no", s["doc"]] for s in found]
    terminal.show(terminal.table(["selector", "trains", "what"], rows, prose=(2,)))
    terminal.show("\nall parameters and ranges: bitfront selectors --json")
    return 0


def models(args: Namespace) -> int:
    from bitfront.trainables.models import MODELS

    found: list[dict[str, Any]] = [
        {
            "name": name,
            "doc": MODELS.get(name).doc,
            "params": {k: p.describe() for k, p in MODELS.get(name).params.items()},
        }
        for name in MODELS.names(args.pattern)
    ]
    if args.json:
        terminal.show_json(found)
        return 0
    rows = [[m["name"], _defaults(m["params"]), m["doc"]] for m in found]
    terminal.show(terminal.table(["model", "parameters", "what"], rows, prose=(1, 2)))
    return 0


def datasets(args: Namespace) -> int:
    from bitfront.trainables.data import DATASETS

    data_dir = args.data_dir or os.environ.get("BITFRONT_DATA")
    found: list[dict[str, Any]] = []
    for name in DATASETS.names(args.pattern):
        info = DATASETS.get(name)
        found.append(
            {
                "name": name,
                "shape": list(info.shape),
                "classes": info.classes,
                "train": info.train_size,
                "test": info.test_size,
                "embedded": info.embedded,
                "available": info.is_there(data_dir),
                "source": info.source,
                "get": info.how_to_get(Path(data_dir) if data_dir else None),
            }
        )
    if args.json:
        terminal.show_json(found)
        return 0
    rows = [
        [
            d["name"],
            "x".join(map(str, d["shape"])),
            str(d["classes"]),
            f"{d['train']:,}",
            f"{d['test']:,}",
            "yes" if d["available"] else "no",
            d["source"],
        ]
        for d in found
    ]
    headers = ["dataset", "shape", "classes", "train", "test", "here", "what"]
    terminal.show(terminal.table(headers, rows, prose=(6,)))
    if not all(d["available"] for d in found):
        where = data_dir or "--data-dir DIR or BITFRONT_DATA"
        terminal.say(f"\nothers are read from {where}; to get one: bitfront datasets --json")
    return 0


def cost(args: Namespace) -> int:
    from bitfront.trainables.cost import cost_table
    from bitfront.trainables.costs import summed
    from bitfront.trainables.data import DATASETS
    from bitfront.trainables.models import MODELS

    info = DATASETS.get(args.dataset) if args.dataset else None
    shape = _shape(args.shape) if args.shape else (info.shape if info else (3, 32, 32))
    classes = args.classes if args.classes is not None else (info.classes if info else 100)
    if not 1 <= classes <= MOST_CLASSES:
        given = quoted(str(args.classes))
        raise UserError(f"--classes {given}: give a number from 1 to {MOST_CLASSES:,}")
    params = _assignments(args.set or [], args.model)
    MODELS.get(args.model)
    table = cost_table(args.model, params, shape, classes, args.binarize)
    plan = parse_plan(args.plan, table, _finder(args, params))
    kept = None
    if args.prune is not None:
        from bitfront.trainables.methods import build_method

        method = build_method("edge-popup", {"rate": args.prune, "p": args.exponent})
        kept = method.kept(table.sizes(plan))
    rows = table.rows(plan, args.scale, kept=kept)
    totals = table.totals(plan, args.scale, kept=kept)
    full = table.totals("F" * len(plan), args.scale)
    if args.json:
        report = {
            "model": args.model,
            "params": params,
            "shape": list(shape),
            "classes": classes,
            "plan": plan,
            "scale": args.scale,
            "layers": [row.describe() for row in rows],
            "totals": {**totals, "parameters": table.parameters},
            "training": vars(table.training_cost(plan, kept)),
            "full_precision": full,
        }
        terminal.show_json(report)
        return 0
    lines = [
        [
            row.name,
            row.level if row.planned else f"{row.level} fixed",
            *([] if kept is None else [f"{row.kept:,}"]),
            f"{row.macs:,}",
            f"{row.costs['flops']:,.0f}",
            f"{100 * row.costs['flops'] / full['flops']:.4f}",
            f"{row.costs['bytes']:,}",
        ]
        for row in rows
    ]
    shown = "x".join(map(str, shape))
    terminal.show(f"{args.model} at {shown}, {classes} classes, plan {plan}\n")
    pruned = [] if kept is None else ["weights kept"]
    headers = ["layer", "level", *pruned, "MACs", "flops", "% of FP", "bytes"]
    terminal.show(terminal.table(headers, lines, flexible=0))
    totals_rows = [
        [c, f"{totals[c]:,.0f}", f"{full[c]:,.0f}", f"{100 * totals[c] / full[c]:.2f}"]
        for c in (cost.name for cost in summed())
    ]
    terminal.show("")
    terminal.show(terminal.table(["total", "this plan", "full precision", "%"], totals_rows))
    if kept is not None:
        left, all_of_them = sum(row.kept for row in rows), sum(row.weights for row in rows)
        spent = table.training_cost(plan, kept)
        terminal.say(
            f"\n{left:,} of {all_of_them:,} weights kept; operations an image as the paper of "
            f"robust pruning counts them (its Table 6):\nforward {spent.training_forward:,.0f} in "
            f"training and {spent.evaluation_forward:,.0f} in evaluation, backward "
            f"{spent.backward:,.0f}"
        )
    terminal.say(
        "\nflops: MixBin convention, MACs + 3 an output element; B 1/64, W 1/2 of the MACs; "
        "the classifier is not counted\n"
        "ops64: Bi-Real convention, binary MACs / 64 + the rest; bops: MACs x weight bits x "
        "activation bits\nbytes: what the packed checkpoint's tensors take"
    )
    return 0


def mask(args: Namespace) -> int:
    """What the layers of a packed pruned network keep; with --layer a picture of one."""
    from bitfront.dashboards.figures.pruning import empty_channels, mask_image
    from bitfront.search.recipes.masks import layer_masks

    masks, title = layer_masks(Path(args.checkpoint))
    if args.layer is None:
        found = [
            {
                "layer": name,
                "weights": int(m.size),
                "kept": int(m.sum()),
                "empty_outputs": int(empty_channels(m)[0].sum()),
                "empty_inputs": int(empty_channels(m)[1].sum()),
            }
            for name, m in masks.items()
        ]
        if args.json:
            terminal.show_json(found)
            return 0
        headers = ["layer", "weights", "kept", "empty outputs", "empty inputs"]
        rows = [[str(v) for v in row.values()] for row in found]
        terminal.show(terminal.table(headers, rows, flexible=0))
        return 0
    if args.layer not in masks:
        hint = did_you_mean(args.layer, masks)
        raise UserError(f"--layer {args.layer}: no such planned layer, {hint}")
    path = Path(args.output or f"{args.layer}.png")
    mask_image(masks[args.layer], f"{title}, {args.layer}", path)
    if args.json:
        terminal.show_json({"picture": str(path)})
    else:
        terminal.show(f"wrote {path}")
    return 0


def parse_plan(text: str, table: Any, find: Callable[[str], Any]) -> str:
    """Letters, one letter for all layers, `front:7`, `rear:7` (a number of layers), or
    `SELECTOR@40%` (a budget). `find` does a trained selector's work."""
    from bitfront.trainables.plan import check_plan
    from bitfront.trainables.selectors import SELECTORS

    n = len(table.plan_layers)
    mark = next((m for m in (":", "@") if m in text), None)
    if mark is None:
        return check_plan(text * n if len(text) == 1 else text, table.plan_layers)
    name, _, number = text.partition(mark)
    selector = SELECTORS.get(name)()
    if mark == ":" and (not is_count(number) or not 0 <= int(number) <= n):
        raise UserError(f"--plan {text}: give a number of layers from 0 to {n}")
    percent = _percentage(text, number)
    if not selector.trained:
        order = list(selector.order(table, 0))
    else:
        order = find(name).order
        if len(order) != n:
            raise UserError(
                f"--plan {text}: the network {name} looked at has {len(order)} layers to plan, "
                f"this one {n}",
                "name the data it is meant for: --dataset NAME",
            )
    if mark == ":":
        chosen = set(order[: int(number)])
        return "".join("B" if i in chosen else "F" for i in range(n))
    return selector.plan(table, order, percent)


def _percentage(text: str, number: str) -> float:
    try:
        return float(number.rstrip("%"))
    except ValueError:
        raise UserError(f"--plan {text}: '{number}' is not a percentage") from None


def _finder(args: Namespace, params: dict[str, Any]) -> Callable[[str], Any]:
    """Does a trained selector's work on --dataset, or on the embedded digits, saying so."""
    from bitfront.search.ledger.folder import home, selections_folder, stages_folder
    from bitfront.search.session.selection import intentions
    from bitfront.trainables.selectors import SelectionSpec, select
    from bitfront.trainables.task import Task

    def find(name: str) -> Any:
        task = Task.model_validate(
            {
                "dataset": args.dataset or EMBEDDED,
                "model": {"name": args.model, **params},
                "epochs": args.epochs,
                "binarize": args.binarize,
                "data_dir": args.data_dir,
            }
        )
        spec = SelectionSpec(selector=name, task=task)
        note = (lambda text: None) if args.json else terminal.show
        root = home(args.home)
        if not args.dataset:
            note(f"{name} looks at a trained network; without --dataset, one for {EMBEDDED}")
        for line in intentions([spec]):
            note(line)
        found = select(spec, selections_folder(root), stages_folder(root), gpus=1.0, note=note)
        note(found.told() + "\n")
        return found

    return find


def _shape(text: str) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if not all(is_count(part) and int(part) > 0 for part in parts):
        raise UserError(f"--shape {text}: write it as 3x32x32")
    shape = tuple(int(part) for part in parts)
    if math.prod(shape) > MOST_NUMBERS:
        raise UserError(f"--shape {text}: more than {MOST_NUMBERS:,} numbers an input")
    return shape


def _assignments(items: list[str], model: str) -> dict[str, Any]:
    from bitfront.search.config.source import value
    from bitfront.trainables.models import MODELS

    params = {}
    known = MODELS.get(model).params
    for item in items:
        key, _, text = item.partition("=")
        if key not in known:
            raise UserError(f"--set {item}: {model} has no '{key}', {did_you_mean(key, known)}")
        params[key] = value(text)
    return params


def doctor(args: Namespace) -> int:
    from bitfront.search.cluster.doctor import check_all

    checks = check_all(args.home, args.address, args.tracking, args.storage, args.ledger)
    if args.json:
        terminal.show_json([vars(check) for check in checks])
    else:
        for check in checks:
            told = f"{check.verdict:4}  {check.name}: {check.found}"
            terminal.show(terminal.filled(told, " " * 6))
            if check.advice:
                terminal.show(terminal.filled(f"      {check.advice}", ""))
    return 1 if any(check.verdict == "FAIL" for check in checks) else 0
