"""Durations counted by length, as monitoring systems need them to compute percentiles."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# Upper bounds in seconds; the last bucket has none.
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True)
class Durations:
    """How many durations were in each bucket, one more than there are bounds, and their sum."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Each upper bound with the number of durations up to it, as Prometheus reads them."""
        total = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            total += count
            yield bound, total


class Histogram:
    """Counts durations; any thread may add and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        with self._lock:
            self._counts[bisect_left(BOUNDS_S, seconds)] += 1
            self._seconds += seconds

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Count the duration of the block, unless it raises."""
        started = time.monotonic()
        yield
        self.add(time.monotonic() - started)

    def read(self) -> Durations:
        """The current counts."""
        with self._lock:
            return Durations(tuple(self._counts), self._seconds)
