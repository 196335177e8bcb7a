"""The verbs that reach a cluster from outside: submit, logs, and status, front and stop given an
address. They run on its head; what they print comes back."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from bitfront.search.cluster.jobs import Head, is_remote, run_words, secret_free
from bitfront.terminal import tables as terminal
from bitfront.trainables.errors import UserError


def submit(args: Namespace) -> int:
    """`bitfront run` on the head, as a job that needs us no longer."""
    words, file = run_words(args)
    assert file is not None
    name = _checked(args, file)
    head = _head(args.address, ship=not args.installed)
    job = head.submit(file, name, words, args.home)
    if args.json:
        terminal.show_json({"search": name, "job": job, "address": args.address})
        return 0
    terminal.show(f"search '{name}' runs at {args.address} as job {job}; you may leave. Next:")
    for verb in ("status", "logs", "front", "stop"):
        terminal.show(f"  bitfront {verb} {name} --address {args.address}")
    return 0


def _checked(args: Namespace, file: Path) -> str:
    """The name of the search. Its YAML is checked here, before anything is sent; where it names
    files or data of the cluster, only the head can."""
    from bitfront.search.config import source as yaml_source
    from bitfront.search.config.load import load

    source = yaml_source.read(file)
    name = args.name or source.data.get("name") or file.stem
    task = source.data.get("task") or {}
    pretrain, loss = task.get("pretrain"), task.get("loss") or {}
    elsewhere = isinstance(pretrain, str) or "teacher" in str(loss) or "checkpoint" in str(pretrain)
    if elsewhere or ":" in str(task.get("dataset")):
        terminal.show("the YAML names files of the cluster: it is checked there")
        return str(name)
    assignments = list(args.set or [])
    if args.trials is not None:
        assignments.append(f"search.trials={args.trials}")
    return load(file, assignments, args.name)[0].name


def logs(args: Namespace) -> int:
    _head(args.address).log(args.search, args.follow)
    return 0


def there(args: Namespace) -> int:
    """The same verb with the same options, on the head."""
    head = _head(args.address)
    names: list[str] = []
    if args.verb != "doctor":
        names = args.searches if args.verb == "status" else [args.search]
    home = args.home or head.home_of(names[0] if names else None)
    flags = [f"--{flag}" for flag in ("json", "plot", "wide", "csv") if getattr(args, flag, False)]
    given = {k: getattr(args, k, None) for k in ("tracking", "storage", "ledger")}
    flags += secret_free([w for k, v in given.items() if v is not None for w in (f"--{k}", v)])
    if args.verb == "doctor":
        flags += ["--address", "auto"]
    code, output = head.call([args.verb, *names, *flags], home)
    (sys.stdout if code in (0, 1) else sys.stderr).write(output)
    return code


def _head(address: str, ship: bool = True) -> Head:
    if not is_remote(address):
        raise UserError(
            f"--address {address}: give the dashboard's URL, for example http://HEAD:8265"
        )
    return Head(address, ship)
