"""The meta device, on which networks have shapes and no numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# What fills a tensor in place with numbers. On the meta device torch runs some of them through its
# compiler, whose import takes longer than all else that a search does before its first trial.
_FILLS = {
    getattr(torch.Tensor, name)
    for name in (
        "cauchy_", "erfinv_", "exponential_", "geometric_", "log_normal_", "normal_", "random_",
        "uniform_",
    )
}  # fmt: skip


class _WithoutNumbers(TorchFunctionMode):
    """Leaves out what would fill a tensor of the meta device with numbers."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _FILLS and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


@contextmanager
def on_meta() -> Iterator[None]:
    """What is made meanwhile is on the meta device, as with `torch.device("meta")`, and is not
    initialised."""
    with torch.device("meta"), _WithoutNumbers():
        yield
