"""Python's garbage collector, switched off where it costs time and frees nothing."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection, for code that makes many objects which all stay in use: it would
    take half of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def ending_soon() -> Iterator[None]:
    """Disable garbage collection in a process that ends soon, also the last one at exit."""
    atexit.register(gc.freeze)
    with uncollected():
        yield
