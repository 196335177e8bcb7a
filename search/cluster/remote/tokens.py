"""Ray's token: where this machine has one, and what to say where a cluster does not take it. It is
found as Ray finds it (docs.ray.io, token authentication), without importing Ray."""

from __future__ import annotations

import os
from pathlib import Path

from bitfront.trainables.errors import UserError

MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
USUAL_FILE = "~/.ray/auth_token"
MISSING, WRONG = 401, 403


def is_used() -> bool:
    """Whether Ray sends a token from here."""
    return os.environ.get(MODE, "").lower() == "token"


def token() -> str | None:
    """The token of this machine; None where it has none, or Ray is not to send one."""
    return _found()[0] if is_used() else None


def _found() -> tuple[str | None, str]:
    """The token and the place it comes from, as a user would name it."""
    given = os.environ.get(TOKEN, "").strip()
    if given:
        return given, f"the variable {TOKEN}"
    path = os.environ.get(TOKEN_FILE) or USUAL_FILE
    place = f"the file {path}" + (f" ({TOKEN_FILE})" if os.environ.get(TOKEN_FILE) else "")
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip() or None, place
    except (OSError, RuntimeError, ValueError):
        return None, place


def refused(address: str, status: int | None = None) -> UserError:
    """The error for a cluster that wants a token and did not get the right one. `status` is that
    of HTTP, where it is known."""
    found, place = _found()
    if not is_used():
        more = f"{place} has one" if found else f"and {TOKEN}, or the token in {USUAL_FILE}"
        return UserError(f"{address} wants a token and none was sent: set {MODE}=token ({more})")
    if found is None or status == MISSING:
        return UserError(
            f"{address} wants a token and there is none: set {TOKEN}, or put it into {place}"
        )
    return UserError(
        f"{address} refuses the token of {place}: it is not the one the cluster was started with"
    )


def is_refusal(error: BaseException) -> bool:
    """Whether an error of Ray's is about a token."""
    text = f"{type(error).__name__}: {error}".lower()
    return any(word in text for word in ("authenticat", "unauthorized", "the token is refused"))
