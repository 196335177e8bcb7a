"""`python -m bitfront.head_service NAME`: the service on the head of a cluster that answers short
commands. How requests come and answers go is in `search/cluster/remote/`."""

from __future__ import annotations

import importlib
import json
import sys

from bitfront import cli
from bitfront.search.cluster.jobs import WHERE
from bitfront.search.cluster.remote.service import Service
from bitfront.search.homes import home_for, owner_of
from bitfront.search.ledger.folder import find
from bitfront.trainables.errors import UserError

# Imported before the first request, so that none waits for it.
IMPORTED = (
    "sqlalchemy.dialects.sqlite",
    "optuna",
    "rich.console",
    "bitfront.verbs.searching.status",
    "bitfront.verbs.searching.stop",
    "bitfront.verbs.results.front",
    "bitfront.verbs.final.export",
)
VERBS = ("status", "stop", "front", "export")


def run(words: list[str]) -> int:
    """Run one of the commands the service is for; return its exit code."""
    verb = words[0] if words else ""
    if verb == WHERE:
        return where(*words[1:])
    if verb not in VERBS:
        print(f"error: the service on the head does not run '{verb[:40]}'", file=sys.stderr)
        return 2
    return cli.main(words)


def where(name: str, _option: str = "", home: str | None = None) -> int:
    """Print the folder of a search, who submitted it, and the job of its last turn."""
    try:
        folder = find(home_for(name, home), name)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    told = {"folder": str(folder.path), "owner": owner_of(folder), "job": folder.job}
    print(json.dumps(told))
    return 0


def main() -> int:
    """Answer until nobody needs the service any more."""
    service = Service(sys.argv[1], run)
    for module in IMPORTED:
        importlib.import_module(module)
    return service.serve()


if __name__ == "__main__":
    sys.exit(main())
