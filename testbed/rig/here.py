"""A Ray of the process that tests, whose workers are forked instead of importing everything."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from testbed import warm


@contextmanager
def ray_here(cpus: int = 2) -> Iterator[None]:
    """Start Ray in this process, without a dashboard, and end it."""
    import ray

    import bitfront.search.cluster.tuner  # noqa: F401 (sets what Ray reads when it starts)

    # Ray starts its workers with the Python of the process that starts it.
    with mock.patch.object(sys, "executable", warm.python()):
        ray.init(
            "local",
            num_cpus=cpus,
            object_store_memory=10**8,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        yield
    finally:
        ray.shutdown()
