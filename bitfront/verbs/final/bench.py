"""How fast a packed network runs on this machine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bitfront.terminal import tables as terminal
from bitfront.terminal.costs import bench_text
from bitfront.verbs import options as shared


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("file", type=Path, help="a packed network: seed0.safetensors")
    parser.add_argument("--batch", type=shared.positive, default=1, help="examples per call (1)")
    parser.add_argument("--threads", type=shared.positive, default=1, help="threads per call (1)")
    parser.add_argument(
        "--seconds", type=shared.positive, default=3, help="how long to measure (3)"
    )
    shared.trust(parser)


def action(args: Namespace) -> int:
    from bitfront.trainables import packed
    from bitfront.trainables.runtime.bench import bench

    network, spec, _ = packed.load(args.file)
    if not args.json:
        terminal.show(f"{args.file}: measuring for {args.seconds} s ...")
    found = bench(network, spec, args.batch, args.threads, args.seconds)
    if args.json:
        terminal.show_json(found.describe())
    else:
        terminal.show(bench_text(found))
    return 0
