"""A clock that only tests move."""

from __future__ import annotations


class Clock:
    """Seconds; stands still until it is moved: `clock.now += 5`."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
