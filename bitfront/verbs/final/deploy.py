"""Write a trained network as a file that runs elsewhere."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bitfront.terminal import tables as terminal
from bitfront.terminal.final_training import deployed_text, examples_text
from bitfront.trainables.errors import UserError
from bitfront.trainables.runtime.exports.base import FORMATS, target_of
from bitfront.verbs import options as shared

EXAMPLES = 100


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    parser.add_argument("file", type=Path, help="a packed network: seed0.safetensors")
    for name, each in FORMATS.items():
        parser.add_argument(
            f"--{name}",
            nargs="?",
            const="",
            dest=name,
            metavar="DIR" if each.folder else "OUT",
            help=f"{each.doc} (default: FILE with {each.ending})",
        )
    parser.add_argument(
        "--examples",
        type=shared.positive,
        default=EXAMPLES,
        metavar="N",
        help=f"on how many examples each file is compared with torch ({EXAMPLES})",
    )
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    shared.data_dir(parser)
    shared.trust(parser)


def action(args: Namespace) -> int:
    given = {name: getattr(args, name) for name in FORMATS.names()}
    wanted = {name: out for name, out in given.items() if out is not None}
    if not wanted:
        raise UserError("which file? " + ", ".join(f"--{name}" for name in FORMATS.names()))
    from bitfront.api.deploying import Opened

    opened = Opened.of(args.file, args.examples, args.data_dir)
    targets = {name: target_of(name, args.file, out) for name, out in wanted.items()}
    if args.json:
        made = opened.deploy(targets, args.force)
        terminal.show_json(opened.describe() | {"files": [one.describe() for one in made]})
        return 0
    terminal.show(examples_text(opened.examples, opened.description.dataset))
    opened.deploy(targets, args.force, lambda one: terminal.show(deployed_text(one)))
    return 0
