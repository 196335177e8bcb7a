"""The process beside the service of a head that fetches requests from Ray's key-value store: a line
of JSON on its output for each. It is a process of its own, so that the service forks commands
without Ray's threads."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict

import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined]

from bitfront.search.cluster.remote.mailbox import prefix, request_of

POLL_SECONDS = 0.1


def main(service: str) -> int:
    """Fetch requests until the service or Ray is gone."""
    client = GcsClient(address=os.environ["RAY_ADDRESS"])
    parent = os.getppid()
    start = f"gcs://{prefix(service)}".encode()
    while os.getppid() == parent:
        for key in client.internal_kv_keys(start, None):
            content = client.internal_kv_get(key, None)
            client.internal_kv_del(key, False, None)
            request = request_of(content) if content is not None else None
            if request is not None:
                print(json.dumps(asdict(request)), flush=True)
        time.sleep(POLL_SECONDS)
    return 0


if __name__ == "__main__":
    assert ray.__version__
    sys.exit(main(sys.argv[1]))
