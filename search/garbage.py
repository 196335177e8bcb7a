"""Python's garbage collector, switched off where it costs time and frees nothing: while a ledger is
read, and in commands that end soon."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection while many objects are made that all stay in use: collecting would
    take as long as making them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def ending_soon() -> Iterator[None]:
    """Disable garbage collection in a process that ends soon, including the collection at its
    exit."""
    atexit.register(gc.freeze)
    with uncollected():
        yield
