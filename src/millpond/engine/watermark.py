"""The watermark of a flow: the event time it has reached. It never decreases, and is committed with its batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millpond.engine.batch import Batch
from millpond.plan.model import FlowPlan, Step
from millpond.schema import TIMESTAMP
from millpond.sql.statements import Watermark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Reached:
    """The watermark before and after a batch, in microseconds since the epoch, None before the first event. `before`
    determines which rows are late, `after` which windows are closed."""

    before: int | None = None
    after: int | None = None


NO_WATERMARK = Reached()


def moved(before: int | None, watermark: Watermark, batch: Batch) -> Reached:
    """The watermark after a batch: the newest event time minus the delay."""
    if not batch.rows:
        return Reached(before, before)
    newest = _newest(batch, watermark.column.text)
    if not newest.is_valid:
        return Reached(before, before)
    found = newest.cast(TIMESTAMP).value - watermark.delay_us
    return Reached(before, found if before is None else max(before, found))


def _newest(batch: Batch, column: str) -> pa.Scalar:
    if batch.local is not None:
        names = {name.lower(): name for name in batch.local.column_names}
        return pc.max(batch.local[names[column.lower()]])
    assert isinstance(batch.relation, DataFrame)
    return batch.relation.agg(f.max(f"`{column}`").alias("t")).toArrow()["t"][0]


def at(time_us: int) -> datetime:
    """A time as a Python datetime."""
    return EPOCH + timedelta(microseconds=time_us)


def as_scalar(time_us: int) -> pa.Scalar:
    """A time as an Arrow scalar."""
    return pa.scalar(time_us, TIMESTAMP)


# The interval at which an idle stream is checked.
LOOK_S = 0.2


def closing(flow: FlowPlan) -> tuple[Step, ...]:
    """The statements of a flow whose windows are closed, or whose groups are dropped, by the watermark."""
    return tuple(s for s in flow.steps if s.aggregate is not None and s.aggregate.time is not None)


class Idle:
    """Advances the watermark of an idle stream by the clock ('idle.timeout'). Used under the flow's lock."""

    def __init__(self, flow: FlowPlan, clock: Callable[[], float] = time.monotonic) -> None:
        asked = [s.options["idle.timeout"] for s in closing(flow) if s.options.get("idle.timeout") is not None]
        self._timeout_us: int | None = min(asked) if asked and flow.watermark is not None else None
        self._clock = clock
        self._heard_at = clock()
        self._look_at = 0.0
        self._left_at: int | None = None

    def heard(self, watermark_us: int | None) -> None:
        """Called after a batch, and when the flow starts, with the current watermark."""
        self._heard_at = self._clock()
        self._left_at = watermark_us

    def is_due(self) -> bool:
        """Whether the next check is due."""
        if self._timeout_us is None or self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + LOOK_S
        return True

    def reached(self) -> int | None:
        """The watermark advanced by the idle time; None while the stream is not idle, or has no watermark yet."""
        silent_us = int((self._clock() - self._heard_at) * 1_000_000)
        if self._timeout_us is None or self._left_at is None or silent_us < self._timeout_us:
            return None
        return self._left_at + silent_us
