"""The mailbox between a short command and the service on a head that answers it. A request is put
into Ray's key-value store, as a package; the answer is a file among Ray's logs. Both go through the
dashboard, so that whoever reaches its port and has the cluster's token is answered, and nobody
else; no other port is opened."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    from bitfront.search.cluster.remote.http import Dashboard

# How long the answer to a command may take: a driver that is asked to end finishes its epochs.
ANSWER_SECONDS = 300.0
LOOK_SECONDS = 0.05
SLOWEST_LOOK_SECONDS = 0.5
# How often the client looks whether the service is still there.
SERVICE_LOOK_SECONDS = 5.0
RUNNING = "RUNNING"


@dataclass(frozen=True)
class Request:
    """A bitfront command that is to be run on the head."""

    words: list[str]
    submission: str
    """the text of the sender's `Submission`"""
    columns: int = 80
    """of the sender's terminal; 0 where there is none"""
    id: str = field(default_factory=lambda: secrets.token_hex(16))


@dataclass(frozen=True)
class Answer:
    """What a command printed, its exit code, and the files it wrote into its folder."""

    code: int
    out: str = ""
    err: str = ""
    files: dict[str, str] = field(default_factory=dict)


class ServiceGoneError(Exception):
    """The service ended before it answered."""


def prefix(service: str) -> str:
    """The beginning of the names of all requests to a service."""
    return f"{service}-ask-"


def answer_file(request: str) -> str:
    """The name of the log file with the answer to a request."""
    return f"bitfront-answer-{request}.json"


def packed(content: Request | Answer) -> bytes:
    """A request or an answer, as it is sent."""
    return json.dumps(asdict(content)).encode()


def request_of(content: bytes) -> Request | None:
    """The request in these bytes; None where they are none."""
    try:
        data: dict[str, Any] = json.loads(content)
        request = Request(**data)
    except (ValueError, TypeError):
        return None
    texts = [request.submission, request.id, *request.words]
    fine = all(isinstance(text, str) for text in texts) and type(request.columns) is int
    return request if fine and request.id.isalnum() else None


def ask(dashboard: Dashboard, service: dict[str, Any], request: Request) -> Answer:
    """Send a request to the service, which is a job of this head, and wait for the answer."""
    job, node = service["submission_id"], service["driver_node_id"]
    dashboard.put_package(prefix(job) + request.id, packed(request))
    name = answer_file(request.id)
    began = time.monotonic()
    looked, pause = began, LOOK_SECONDS
    while not dashboard.has_log_file(node, name):
        now = time.monotonic()
        if now - began > ANSWER_SECONDS:
            raise UserError(f"bitfront {request.words[0]} took too long on {dashboard.address}")
        if now - looked > SERVICE_LOOK_SECONDS:
            looked, there = now, dashboard.job(job)
            if there is None or there["status"] != RUNNING:
                raise ServiceGoneError
        time.sleep(pause)
        pause = min(SLOWEST_LOOK_SECONDS, pause * 1.1)
    return Answer(**json.loads(dashboard.log_file(node, name)))
