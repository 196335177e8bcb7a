"""The command of every study."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bitfront.search.ledger.folder import home
from bitfront.trainables.errors import UserError
from studies import pages
from studies.steps import STUDIES, Place, Study

ABOUT = """\
Without options: write page and figures from the kept files, in seconds. --train does the steps of
which no file is kept; interrupted at any moment, the same command goes on. From nothing:
--train --out FOLDER."""


def parsed(study: Study, argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m studies.{study.name}", description=ABOUT)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--train", action="store_true", help="do what is left, then write the page")
    what.add_argument("--plan", action="store_true", help="what is left, and how long it takes")
    parser.add_argument("--rehearse", action="store_true", help="with made-up images, in minutes")
    parser.add_argument("--out", type=Path, help="of page, figures and kept files (studies/NAME)")
    parser.add_argument("--home", type=Path, help="of searches and checkpoints (bitfront-runs)")
    parser.add_argument("--data-dir", type=Path, help="where datasets are (BITFRONT_DATA)")
    return parser.parse_args(argv)


def place_of(study: Study, args: argparse.Namespace) -> Place:
    """A rehearsal has a home and, unless another is given, an output of its own."""
    name = study.name + ("-rehearsal" if args.rehearse else "")
    root = home(args.home) / "studies" / name
    out = args.out or (root / "out" if args.rehearse else STUDIES / study.name)
    return Place(study.name, out, root, args.rehearse)


def main(study: Study, argv: list[str] | None = None) -> int:
    args = parsed(study, argv)
    if args.data_dir is not None:
        os.environ["BITFRONT_DATA"] = str(args.data_dir.absolute())
    place = place_of(study, args)
    try:
        print(study.plan(place))
        if args.plan:
            return 0
        if args.train:
            study.train(place, lambda text: print(text, flush=True))
        print(f"wrote {pages.write(study, place)}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
        return 130
    return 0
