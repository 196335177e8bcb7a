"""Which callbacks a browser may ask the live page for. Dash itself answers a callback that the page
does not have with status 500 and a traceback in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dash import Dash

CALLBACK = "/_dash-update-component"


def refuse_unknown_callbacks(app: Dash) -> None:
    """Answer 400 to a request for a callback that the app does not have as requested."""
    from flask import Response, request

    def checked() -> Response | None:
        if request.path != CALLBACK or request.method != "POST":
            return None
        fault = _fault(request.get_json(silent=True), app.callback_map)
        return None if fault is None else Response(f"{fault}\n", 400, mimetype="text/plain")

    app.server.before_request(checked)


def _fault(body: Any, callbacks: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What is wrong with the body of a request, in one line."""
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return "a request names its output"
    if body["output"] not in callbacks:
        return "this page has no such output"
    if _named(body.get("outputs")) != body["output"].strip(".").split("..."):
        return "the outputs are not those of their name"
    callback = callbacks[body["output"]]
    for part in ("inputs", "state"):
        if not _matches(body.get(part) or [], callback.get(part) or []):
            return f"this output has other {part}"
    changed = body.get("changedPropIds") or []
    if not isinstance(changed, list) or not all(isinstance(name, str) for name in changed):
        return "changedPropIds is a list of names"
    return None


def _named(outputs: Any) -> list[str]:
    """`ID.PROPERTY` of every output of a request; of one alone Dash sends no list."""
    parts = outputs if isinstance(outputs, list) else [outputs]
    return [f"{p.get('id')}.{p.get('property')}" for p in parts if isinstance(p, dict)]


def _matches(given: Any, declared: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a request has the components that a callback declares. Those of a pattern such as
    `{"row": ALL}` are sent as one list."""
    if not isinstance(given, list) or len(given) != len(declared):
        return False
    for one, own in zip(given, declared, strict=True):
        parts = one if isinstance(one, list) else [one]
        if not all(isinstance(p, dict) and p.get("property") == own["property"] for p in parts):
            return False
        if str(own["id"]).startswith("{") is not isinstance(one, list):
            return False
    return True
