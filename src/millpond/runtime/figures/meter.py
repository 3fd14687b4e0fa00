"""Counting what goes through a flow, a load or a sink: totals, and rates over the last minutes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

ONE_MINUTE_S, FIVE_MINUTES_S = 60.0, 300.0


@dataclass
class Meter:
    """Written by one thread, read by any. Rows are put together by second, so that it never holds more than five
    minutes of seconds."""

    rows: int = 0
    bad: int = 0
    batches: int = 0
    batch_ms: float = 0.0
    # When something was last counted, in seconds since the epoch.
    updated_at: float | None = None
    clock: Callable[[], float] = time.monotonic
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, rows: int, seconds: float = 0.0, *, bad: int = 0) -> None:
        """Count a batch; `bad` are those of its rows that could not be read."""
        self.rows += rows
        self.bad += bad
        self.batches += 1
        self.batch_ms = seconds * 1000
        self.updated_at = time.time()
        second = self.clock() // 1.0
        if self._recent and self._recent[-1][0] == second:
            rows += self._recent.pop()[1]
        self._recent.append((second, rows))
        while self._recent[0][0] < second - FIVE_MINUTES_S:
            self._recent.popleft()

    def rate(self, window_s: float = ONE_MINUTE_S) -> float:
        """Rows per second over the window, or since the first batch in it if that is shorter."""
        now = self.clock()
        recent = [(at, rows) for at, rows in tuple(self._recent) if at >= now - window_s]
        if not recent:
            return 0.0
        return round(sum(rows for _, rows in recent) / max(now - recent[0][0], 1.0), 1)
