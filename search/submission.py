"""What a command knows that was sent to the head of a cluster from outside: who sent it, under
which address they reach the head, and the job it runs in. It comes in an environment variable, and
is shown by Ray's dashboard: nothing in it is secret."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import socket
from dataclasses import asdict, dataclass

VARIABLE = "BITFRONT_SUBMISSION"
# What a submitted driver prints when nothing keeps its trials from starting: `submit` waits for it.
PASSED = "all checks passed: trials start"
# What it prints before that where its first trial has to wait: no node can take one yet, or the
# trials of others have all places.
FOR_NODES = "waiting for the autoscaler"
FOR_MACHINES = "waiting for machines that are being set up"
FOR_PLACE = "waiting for a place"
WAITING = (FOR_NODES, FOR_MACHINES, FOR_PLACE)


@dataclass(frozen=True)
class Submission:
    """Where a command on the head came from."""

    address: str
    """of the head, as the sender reaches it"""
    owner: str
    """who sent it: user@machine"""
    job: str = ""
    """Ray's id of the job, where the command is one of its own"""
    home: str = ""
    """the home that the sender named; empty where it is to be looked up"""
    homes: tuple[str, ...] = ()
    """homes that other jobs of this head were sent with"""

    def text(self) -> str:
        """The value of the environment variable."""
        return json.dumps(asdict(self))


def here() -> Submission | None:
    """The submission of this command; None where it was typed on this machine."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        content = json.loads(text)
        return Submission(**{**content, "homes": tuple(content.get("homes", ()))})
    except (ValueError, TypeError, AttributeError):  # of another version
        return None


def back() -> str:
    """The options that lead a command back to the head it is printed on; nothing elsewhere."""
    sent = here()
    if sent is None:
        return ""
    return (f" --home {shlex.quote(sent.home)}" if sent.home else "") + f" --address {sent.address}"


def sender() -> str:
    """The user of this machine, as others see them."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container without an account for its user
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
