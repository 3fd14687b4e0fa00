"""Names for transactions of users that tell changes at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Writers:
    """Under one name at most one transaction is between its commit and the publishing of what it told: a crash in
    between is made good by name at the next start. So there are as many names as transactions ever told at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[str] = set()

    @contextmanager
    def name(self) -> Iterator[str]:
        """A name for as long as the block lasts."""
        name = self.take()
        try:
            yield name
        finally:
            self.give_back(name)

    def take(self) -> str:
        """A name that nobody has."""
        with self._lock:
            names = (f"user {number}" for number in range(len(self._taken) + 1))
            free = next(name for name in names if name not in self._taken)
            self._taken.add(free)
            return free

    def give_back(self, name: str) -> None:
        """Let others have it."""
        with self._lock:
            self._taken.discard(name)
