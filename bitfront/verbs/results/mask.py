"""The former name of figure --kind masks, and a table of what layers keep."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bitfront.dashboards.figures.networks.masks import draw_masks, empty_channels
from bitfront.search.recipes.masks import layer_masks
from bitfront.terminal import tables as terminal
from bitfront.verbs import options as shared


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("checkpoint", help="a packed checkpoint of `bitfront train`")
    parser.add_argument("--layer", help="its name, or two, A,B (default: list what layers keep)")
    parser.add_argument("-o", "--output", metavar="PNG", help="default: LAYER.png")
    shared.trust(parser)


def action(args: Namespace) -> int:
    masks, title = layer_masks(Path(args.checkpoint))
    if args.layer is not None:
        path = Path(args.output or f"{args.layer}.png")
        draw_masks(masks, title, args.layer, path)
        if args.json:
            terminal.show_json({"picture": str(path)})
        else:
            terminal.show(f"wrote {path}")
        return 0
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
