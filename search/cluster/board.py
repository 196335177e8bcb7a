"""Short progress texts that workers on any node write and the driver reads, in Ray's own key-value
store, which needs no other process."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

NAMESPACE = b"bitfront"
# Seconds between two reads: the store is on the head of the cluster.
READ_SECONDS = 0.5


@dataclass
class Board:
    """The texts under one name, one per writer. Errors of the store are ignored."""

    name: str
    _read: tuple[float, list[str]] = (0.0, [])

    def key(self, who: str) -> bytes:
        return f"{self.name}/{who}".encode()

    def write(self, who: str, text: str) -> None:
        from ray.experimental.internal_kv import _internal_kv_put

        with contextlib.suppress(Exception):
            _internal_kv_put(self.key(who), text.encode(), overwrite=True, namespace=NAMESPACE)

    def erase(self, who: str) -> None:
        from ray.experimental.internal_kv import _internal_kv_del

        with contextlib.suppress(Exception):
            _internal_kv_del(self.key(who), namespace=NAMESPACE)

    def read(self) -> list[str]:
        """The texts that are there now, sorted, each once."""
        since, texts = self._read
        now = time.monotonic()
        if now - since >= READ_SECONDS:
            with contextlib.suppress(Exception):
                texts = self._look()
            self._read = now, texts
        return texts

    def _look(self) -> list[str]:
        from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list

        keys = _internal_kv_list(self.key(""), namespace=NAMESPACE)
        found = [_internal_kv_get(key, namespace=NAMESPACE) for key in keys]
        return sorted({text.decode() for text in found if text})
