"""The head of a cluster as verbs see it: `status`, `front`, `stop` and `doctor` with the address of
a dashboard run there, and what they print comes back."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from bitfront.search.cluster.jobs import Head, is_remote, secret_free
from bitfront.trainables.errors import UserError

FLAGS = ("json", "plot", "wide", "csv", "failures")
PLACES = ("tracking", "storage", "ledger")


def on_head(args: Namespace, names: Sequence[str], more: Sequence[str] = ()) -> int:
    """Run the same verb with the same options on the head and return its exit code. `names` are the
    searches it is about, `more` are further options."""
    head = head_at(args.address)
    home = args.home or head.home_of(names[0] if names else None)
    flags = [f"--{flag}" for flag in FLAGS if getattr(args, flag, False)]
    given = {place: getattr(args, place, None) for place in PLACES}
    flags += secret_free([w for k, v in given.items() if v is not None for w in (f"--{k}", v)])
    code, output = head.call([args.verb, *names, *flags, *more], home)
    (sys.stdout if code in (0, 1) else sys.stderr).write(output)
    return code


def head_at(address: str, ship: bool = True) -> Head:
    """The head whose dashboard is at this URL."""
    if not is_remote(address):
        raise UserError(
            f"--address {address}: give the dashboard's URL, for example http://HEAD:8265"
        )
    return Head(address, ship)
