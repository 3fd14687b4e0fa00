"""A clock for tests, which advances only by assignment."""

from __future__ import annotations


class Clock:
    """Returns `now` in seconds, which a test changes: `clock.now += 5`."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
