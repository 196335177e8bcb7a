"""Plain HTTP to the dashboard of a head. Ray's own client for it would have to be imported, which
takes longer than all a short command does."""

from __future__ import annotations

import json
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from bitfront.search.cluster.remote import tokens
from bitfront.search.urls import redacted
from bitfront.trainables.errors import UserError, first_line

SECONDS = 30.0
NOT_THERE = 404


class _Stay(HTTPRedirectHandler):
    """Follows no redirection: the token would go with it."""

    def redirect_request(self, *_args: Any) -> None:
        return None


class Dashboard:
    """The dashboard of a head, by its address."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._opener = build_opener(_Stay)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that were submitted to this head."""
        jobs = json.loads(self._call("GET", "/api/jobs/") or b"[]")
        return [job for job in jobs if job.get("submission_id")]

    def job(self, job: str) -> dict[str, Any] | None:
        """One job; None where the head does not know it."""
        found = self._call("GET", f"/api/jobs/{quote(job)}")
        return None if found is None else dict(json.loads(found))

    def log(self, job: str) -> str:
        """What a job has printed so far."""
        found = self._call("GET", f"/api/jobs/{quote(job)}/logs")
        return "" if found is None else str(json.loads(found)["logs"])

    def delete(self, job: str) -> None:
        """Take an ended job off Ray's list."""
        self._call("DELETE", f"/api/jobs/{quote(job)}")

    def put_package(self, name: str, content: bytes) -> None:
        """Store bytes at the head under a name."""
        self._call("PUT", f"/api/packages/gcs/{quote(name)}", content)

    def has_log_file(self, node: str, name: str) -> bool:
        """Whether a node has a log file of this name."""
        query = urlencode({"node_id": node, "glob": name})
        found = json.loads(self._call("GET", f"/api/v0/logs?{query}") or b"{}")
        listed = ((found.get("data") or {}).get("result") or {}).values()
        return any(name in names for names in listed)

    def log_file(self, node: str, name: str) -> bytes:
        """The content of a log file of a node."""
        query = urlencode({"node_id": node, "filename": name, "lines": -1})
        return self._call("GET", f"/api/v0/logs/file?{query}") or b""

    def _call(self, method: str, path: str, content: bytes | None = None) -> bytes | None:
        """What the dashboard answers; None where it does not know what was asked for."""
        headers = {"Content-Type": "application/octet-stream"} if content is not None else {}
        token = tokens.token()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            request = Request(self.address + path, content, headers, method=method)
            with self._opener.open(request, timeout=SECONDS) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            if error.code == NOT_THERE:
                return None
            self._refused(error)
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise UserError(
                f"no Ray dashboard answers at {redacted(self.address)}: {first_line(reason)}",
                "is the head up (ray start --head), is the port right (8265), is there a tunnel "
                "(ray dashboard cluster.yaml)?",
            ) from None

    def _refused(self, error: HTTPError) -> NoReturn:
        address = redacted(self.address)
        if error.code in (tokens.MISSING, tokens.WRONG):
            raise tokens.refused(address, error.code) from None
        lines = error.read(20_000).decode(errors="replace").strip().splitlines()
        raise UserError(f"{address} answers {error.code}: {lines[-1] if lines else ''}") from None
