"""The head of a cluster as verbs see it. With the address of a dashboard, `status`, `front`, `stop`
and `export` are run there by the service and what they print comes back; `submit`, `resume` and
`extend` start a driver there that needs us no more."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from bitfront.search.cluster.jobs import Begun, Head
from bitfront.search.cluster.remote.mailbox import Answer
from bitfront.search.cluster.remote.words import is_remote, run_words, secret_free
from bitfront.terminal import tables as terminal
from bitfront.terminal.next_commands import after_submit
from bitfront.terminal.status_line import StatusLine
from bitfront.trainables.errors import UserError

FLAGS = ("json", "plot", "wide", "csv", "failures", "knee", "all")
VALUES = ("tracking", "storage", "ledger", "budget", "min_accuracy", "trial", "epochs", "seeds")


def on_head(args: Namespace, names: Sequence[str]) -> int:
    """Run the same verb with the same options on the head and return its exit code. `names` are the
    searches it is about."""
    return shown(answer_of(args, names))


def answer_of(args: Namespace, names: Sequence[str], more: Sequence[str] = ()) -> Answer:
    """What the head answers to a verb with the same options; `more` are further ones."""
    words = [args.verb, *names, *options_there(args), *more]
    return head_at(args.address).ask(words, args.home)


def options_there(args: Namespace) -> list[str]:
    """The options of a verb that mean the same on the head."""
    flags = [f"--{flag}" for flag in FLAGS if getattr(args, flag, False)]
    for name in VALUES:
        value = getattr(args, name, None)
        flags += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    return secret_free(flags)


def shown(answer: Answer) -> int:
    """Print what a command printed on the head; its exit code."""
    sys.stdout.write(answer.out)
    sys.stderr.write(answer.err)
    return answer.code


def send(args: Namespace, name: str, file: Path | None = None, ship: bool = True) -> int:
    """Start a driver on the head, wait until it has passed its checks unless the user does not want
    to, say what became of it, and return the exit code."""
    words, _ = run_words(args)
    head = head_at(args.address, ship)
    job = head.submit(words, name, args.home, file)
    begun = None
    if not args.no_wait:
        try:
            with StatusLine(args.quiet, sys.stderr) as line:
                line.wait("waiting for its checks on the head")
                begun = head.begun(job, lambda last: line.watch(lambda: f"on the head: {last}"))
        except KeyboardInterrupt:
            print(f"job {job} goes on without you", file=sys.stderr)
            raise
    if getattr(args, "json", False):
        told = {"search": name, "job": job, "address": args.address, "state": "sent"}
        if begun is not None:
            told["state"] = begun.state
            told |= {"message": "\n".join(begun.lines)} if begun.state == "refused" else {}
        terminal.show_json(told)
    else:
        _tell(name, job, args.address, begun)
    return begun.code if begun is not None and begun.state in ("refused", "ended") else 0


def _tell(name: str, job: str, address: str, begun: Begun | None) -> None:
    """Print what became of a driver that was sent to a head."""
    if begun is not None and begun.state == "refused":
        print("\n".join(begun.lines), file=sys.stderr)
        print(f"search '{name}' did not begin at {address} (job {job})", file=sys.stderr)
        return
    for line in begun.lines if begun is not None else ():
        if line.startswith("warning: "):
            print(line, file=sys.stderr)
    state = begun.state if begun is not None else "sent"
    last = begun.lines[-1] if begun is not None and begun.lines else ""
    terminal.show(
        {
            "sent": f"search '{name}' was sent to {address} as job {job}; whether it passes its "
            "checks, its log will say",
            "running": f"search '{name}' runs at {address} as job {job}; you may leave.",
            "waiting": f"search '{name}' waits at {address} as job {job}: {last}",
            "preparing": f"search '{name}' is still being prepared at {address} as job {job}: "
            f"{last}",
            "ended": f"search '{name}' has ended at {address} (job {job})",
        }[state]
    )
    terminal.show(after_submit(name, address))


def head_at(address: str, ship: bool = True) -> Head:
    """The head whose dashboard is at this URL."""
    if not is_remote(address):
        raise UserError(
            f"--address {address}: give the dashboard's URL, for example http://HEAD:8265"
        )
    return Head(address, ship)
