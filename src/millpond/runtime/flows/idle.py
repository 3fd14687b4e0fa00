"""A silent stream: after 'idle.timeout' without records its watermark goes on by the clock, so that windows close."""

from __future__ import annotations

import time
from collections.abc import Callable

from millpond.plan.model import FlowPlan, Step

# How often a silent stream is looked at.
LOOK_S = 0.2


def closing(flow: FlowPlan) -> tuple[Step, ...]:
    """The statements of a flow whose windows are closed, or whose groups are dropped, by the watermark."""
    return tuple(s for s in flow.steps if s.aggregate is not None and s.aggregate.time is not None)


class Idle:
    """Told of every batch; answers how far the watermark has come by itself. Used under the flow's own lock."""

    def __init__(self, flow: FlowPlan, clock: Callable[[], float] = time.monotonic) -> None:
        asked = [s.options["idle.timeout"] for s in closing(flow) if s.options.get("idle.timeout") is not None]
        self._timeout_us: int | None = min(asked) if asked and flow.watermark is not None else None
        self._clock = clock
        self._heard_at = clock()
        self._look_at = 0.0
        self._left_at: int | None = None

    def heard(self, watermark_us: int | None) -> None:
        """A batch came, or the flow starts, with the watermark there."""
        self._heard_at = self._clock()
        self._left_at = watermark_us

    def is_due(self) -> bool:
        """Whether it is time to look again."""
        if self._timeout_us is None or self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + LOOK_S
        return True

    def reached(self) -> int | None:
        """Where the watermark is by now; None while the stream is not idle, or never had one."""
        silent_us = int((self._clock() - self._heard_at) * 1_000_000)
        if self._timeout_us is None or self._left_at is None or silent_us < self._timeout_us:
            return None
        return self._left_at + silent_us
