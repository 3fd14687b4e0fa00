"""One micro-batch: its records read once, the good ones as a relation, the bad ones apart."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from millpond.contracts.source import BAD, DELETED, IDENTITY, ORDER_MAJOR, ORDER_MINOR, RAW, StreamReader
from millpond.runtime.access import ROWS_DIRECT_MAX, arrow_frame


@dataclass(frozen=True)
class Batch:
    """`frame` has the declared, hidden and order columns of the good records; `bad` all columns of the bad ones.
    `local` are the good ones on the driver, where a small batch is anyway. `changes` has, for a source whose messages
    have keys, the records that delete too: only tables that are kept by key see them."""

    id: int
    frame: DataFrame
    rows: int
    bad: pa.Table
    _cached: DataFrame | None = None
    local: pa.Table | None = None
    changes: DataFrame | None = None

    def release(self) -> None:
        """Let Spark forget what it kept of the batch."""
        if self._cached is not None:
            self._cached.unpersist(blocking=False)


def read_batch(reader: StreamReader, raw: DataFrame, batch_id: int) -> Batch:
    """Read a batch once: a small one through the driver, in stream order; a large one stays in Spark's cache."""
    small = reader.size_hint(raw) <= ROWS_DIRECT_MAX
    return split_records(reader.records(raw), batch_id, small=small)


def _in_order(records: DataFrame, rows: pa.Table) -> DataFrame:
    """A small relation in one piece: two pieces would reach a sink side by side, in any order."""
    return arrow_frame(records.sparkSession, rows).coalesce(1)


def split_records(records: DataFrame, batch_id: int, *, small: bool) -> Batch:
    """Good and bad records apart."""
    if small:
        rows = records.toArrow().sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")])
        is_bad = pc.is_valid(rows[BAD])
        good = rows.filter(pc.invert(is_bad)).drop_columns([BAD, RAW])
        bad = rows.filter(is_bad)
        if DELETED not in good.column_names:
            return Batch(batch_id, _in_order(records, good), good.num_rows, bad, local=good)
        kept = good.filter(pc.invert(good[DELETED])).drop_columns([DELETED, IDENTITY])
        changes = _in_order(records, good)
        return Batch(batch_id, _in_order(records, kept), kept.num_rows, bad, local=kept, changes=changes)
    kept = records.persist(StorageLevel.MEMORY_AND_DISK)
    bad = kept.where(f"`{BAD}` IS NOT NULL").toArrow()
    frame = changes = kept.where(f"`{BAD}` IS NULL").drop(BAD, RAW)
    if DELETED in kept.columns:
        frame = changes.where(f"NOT `{DELETED}`").drop(DELETED, IDENTITY)
    return Batch(batch_id, frame, frame.count(), bad, kept, changes=changes)
