"""A flow's watermark: how far its time has come. It never goes back, and is committed with the batch that moved it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millpond.runtime.flows.batch import Batch
from millpond.schema import TIMESTAMP
from millpond.sql.statements import Watermark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Reached:
    """In microseconds since the epoch, None while nothing was seen: where a batch found the watermark and where it
    left it. What is late is told by the first, what closes by the second."""

    before: int | None = None
    after: int | None = None


NO_WATERMARK = Reached()


def moved(before: int | None, watermark: Watermark, batch: Batch) -> Reached:
    """The watermark with a batch in it: the newest time seen, less the delay."""
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
    """A moment as Python has it."""
    return EPOCH + timedelta(microseconds=time_us)


def as_scalar(time_us: int) -> pa.Scalar:
    """A moment as Arrow has it."""
    return pa.scalar(time_us, TIMESTAMP)
