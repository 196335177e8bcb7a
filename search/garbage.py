"""Collections of garbage, and when they are in the way."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection of garbage while much is made of which all stays: it takes half the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def ending_soon() -> Iterator[None]:
    """The same for a process that ends when it has answered: Python would look through everything
    once more before it goes."""
    atexit.register(gc.freeze)
    with uncollected():
        yield
