"""Start a search on a cluster and leave it there.

It is `bitfront run` on the head, as a job that does not need this process any more. The command
ends when the driver there has passed its checks: exit code 0 for a search that runs or waits for
nodes, else that of the driver."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bitfront.search.cluster.remote.words import run_words
from bitfront.search.config import source as yaml_source
from bitfront.search.config.load import load
from bitfront.terminal import tables as terminal
from bitfront.verbs import options as shared
from bitfront.verbs.on_head import head_at, send


def options(parser: ArgumentParser) -> None:
    shared.json_output(parser)
    shared.search_yaml(parser)
    shared.head_address(parser, required=True)
    parser.add_argument("--ledger", metavar="URL", help="SQLAlchemy URL, reachable from the head")
    parser.add_argument(
        "--warm-start", metavar="NAME", help="begin with the front of another search on the head"
    )
    shared.rows(parser)
    shared.waiting(parser)
    parser.set_defaults(quiet=False)
    parser.add_argument(
        "--installed", action="store_true", help="run what the cluster has, do not send this code"
    )


def action(args: Namespace) -> int:
    head_at(args.address)  # an address of another kind is a mistake that is said first
    _, file = run_words(args)
    assert file is not None
    return send(args, _checked(args, file), file, ship=not args.installed)


def _checked(args: Namespace, file: Path) -> str:
    """The name of the search. Its YAML is checked here, before anything is sent; one that names
    files or data of the cluster can be checked only on the head."""
    source = yaml_source.read(file)
    name = args.name or source.data.get("name") or file.stem
    task = source.data.get("task") or {}
    pretrain, loss = task.get("pretrain"), task.get("loss") or {}
    elsewhere = isinstance(pretrain, str) or "teacher" in str(loss) or "checkpoint" in str(pretrain)
    dataset = str(task.get("dataset"))
    if elsewhere or (":" in dataset and ".py:" not in dataset):
        terminal.show("the YAML names files of the cluster: it is checked there")
        return str(name)
    assignments = list(args.set or [])
    if args.trials is not None:
        assignments.append(f"search.trials={args.trials}")
    return load(file, assignments, args.name)[0].name
