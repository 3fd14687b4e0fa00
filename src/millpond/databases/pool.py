"""Connections that are kept open between two reads: 'pool.size', 'pool.max.idle' and 'pool.validation.query'."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

Opened = TypeVar("Opened")
# How many connections may be open without an option.
CONNECTIONS = 4


class Pool:
    """Connections of one reader, of several kinds. Each has a method `close`; `validate(connection, query)` raises for
    one that is lost. A connection is given back only after use without an error."""

    def __init__(self, values: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._idle: dict[str, list[tuple[Any, float]]] = {}
        self._lock, self._clock = threading.Lock(), clock
        self._query: str | None = values.get("pool.validation.query")
        self._idle_s = values.get("pool.max.idle", 0) / 1e6
        # How many connections may be open at a time.
        self.size: int = values.get("pool.size", 1) or max(CONNECTIONS, values.get("parallel.readers", 1) + 1)

    def take(self, kind: str, open_: Callable[[], Opened], validate: Callable[[Opened, str], None]) -> Opened:
        """A connection that is free and still works, else a new one."""
        self._drop_idle()
        while (found := self._free(kind)) is not None:
            try:
                if self._query is not None:
                    validate(found, self._query)
            except Exception:
                _closed(found)
                continue
            return found  # type: ignore[no-any-return]
        return open_()

    def _free(self, kind: str) -> Any:
        with self._lock:
            free = self._idle.get(kind)
            return free.pop()[0] if free else None

    def give(self, kind: str, connection: Any) -> None:
        """It is not used any more."""
        with self._lock:
            free = self._idle.setdefault(kind, [])
            if sum(map(len, self._idle.values())) < self.size:
                free.append((connection, self._clock()))
                return
        _closed(connection)

    def _drop_idle(self) -> None:
        with self._lock:
            least = self._clock() - self._idle_s
            old = [c for free in self._idle.values() for c, since in free if since < least]
            for kind, free in self._idle.items():
                self._idle[kind] = [entry for entry in free if entry[1] >= least]
        for connection in old:
            _closed(connection)

    def close(self) -> None:
        """Close those that are free."""
        with self._lock:
            all_ = [connection for free in self._idle.values() for connection, _ in free]
            self._idle.clear()
        for connection in all_:
            _closed(connection)


def _closed(connection: Any) -> None:
    with suppress(Exception):
        connection.close()
