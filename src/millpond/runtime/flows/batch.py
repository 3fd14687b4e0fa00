"""One micro-batch: its records read once, the good ones as a relation, the bad ones apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from millpond.contracts.source import BAD, DELETED, IDENTITY, ORDER_MAJOR, ORDER_MINOR, RAW, StreamReader
from millpond.runtime.flows.passing import Passing
from millpond.runtime.spark.access import ROWS_DIRECT_MAX, Relation

# Above this Spark's cores are the better way. Measured by bench/flows.py.
ROWS_DRIVER_MAX = 200_000
# The same where there is no feed and Spark would have to parse. Measured by bench/kafka_figures.py.
ROWS_GATHERED_MAX = 1_000_000
ORDER = [(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")]


@dataclass
class Batch:
    """`relation` has the declared, hidden and order columns of the good records: a small batch is on the driver, in
    stream order, a large one in Spark. `bad` has all columns of the bad ones. `changes` has, for a source whose
    messages have keys, the records that delete too: only tables that are kept by key see them. `rows` and `bad` of a
    batch that is read only once are known after `finish`; until then `rows` is about right."""

    id: int
    relation: Relation
    rows: int
    bad: pa.Table
    changes: Relation | None = None
    _cached: DataFrame | None = None
    _passing: Passing | None = None

    @classmethod
    def of(cls, id_: int, rows: pa.Table, bad: pa.Table) -> Batch:
        """A batch of good rows that are on the driver."""
        return cls(id_, rows, rows.num_rows, bad)

    @property
    def local(self) -> pa.Table | None:
        """The good records, if they are on the driver."""
        return self.relation if isinstance(self.relation, pa.Table) else None

    def to_arrow(self) -> pa.Table:
        """The good records, wherever they are."""
        return self.relation if isinstance(self.relation, pa.Table) else self.relation.toArrow()

    def message_keys(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all messages, those that delete too, and their order."""
        assert self.changes is not None
        wanted = [*columns, ORDER_MAJOR, ORDER_MINOR]
        if isinstance(self.changes, pa.Table):
            return self.changes.select(wanted)
        return self.changes.select(*(f"`{name}`" for name in wanted)).toArrow()

    def finish(self) -> bool:
        """Called when the statements have read the batch; whether only now its bad records are known."""
        if self._passing is None:
            return False
        self.rows, self.bad = self._passing.told(self.rows)
        self._passing = None
        return True

    def release(self) -> None:
        """Let Spark forget what it kept of the batch."""
        if self._cached is not None:
            self._cached.unpersist(blocking=False)


def read_batch(
    reader: StreamReader, raw: DataFrame, batch_id: int, files: Sequence[Path] | None, *, once: bool
) -> Batch:
    """Read a batch: on the driver where the source can and it is not too large; a small one through the driver; a large
    one stays in Spark's cache, unless its statements read it only `once`. `files` are its feed files, if known."""
    size = reader.size_hint(raw)
    rows = reader.on_driver(raw, files) if size <= (ROWS_GATHERED_MAX if files is None else ROWS_DRIVER_MAX) else None
    if rows is not None:
        return records_apart(rows, batch_id)
    count = reader.all_good(files) if files is not None and size > ROWS_DIRECT_MAX else None
    if count is not None:
        return Batch(batch_id, reader.records(raw).drop(BAD, RAW), count, pa.table({}))
    if once and size > ROWS_DIRECT_MAX:
        passing = Passing.of(reader.records(raw))
        frame, changes = _good(passing.watched)
        return Batch(batch_id, frame, size, pa.table({}), changes, _passing=passing)
    return split_records(reader.records(raw), batch_id, small=size <= ROWS_DIRECT_MAX)


def split_records(records: DataFrame, batch_id: int, *, small: bool) -> Batch:
    """Good and bad records apart."""
    if small:
        return records_apart(records.toArrow(), batch_id)
    kept = records.persist(StorageLevel.MEMORY_AND_DISK)
    bad = kept.where(f"`{BAD}` IS NOT NULL").toArrow()
    frame, changes = _good(kept)
    return Batch(batch_id, frame, frame.count(), bad, changes, kept)


def _good(records: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The good records without those that delete, and with them."""
    good = records.where(f"`{BAD}` IS NULL").drop(BAD, RAW)
    if DELETED not in records.columns:
        return good, good
    return good.where(f"NOT `{DELETED}`").drop(DELETED, IDENTITY), good


def _is_ordered(records: pa.Table) -> bool:
    """Whether records are in stream order, as those of a feed file are."""
    major, minor = (records[name].to_numpy() for name, _ in ORDER)
    rising = (major[1:] > major[:-1]) | ((major[1:] == major[:-1]) & (minor[1:] >= minor[:-1]))
    return bool(rising.all())


def records_apart(records: pa.Table, batch_id: int) -> Batch:
    """Good and bad records, which are on the driver, apart."""
    rows = records if _is_ordered(records) else records.sort_by(ORDER)
    is_bad = pc.is_valid(rows[BAD])
    bad = rows.filter(is_bad)
    good = (rows.filter(pc.invert(is_bad)) if bad.num_rows else rows).drop_columns([BAD, RAW])
    if DELETED not in good.column_names:
        return Batch.of(batch_id, good, bad)
    kept = good.filter(pc.invert(good[DELETED])).drop_columns([DELETED, IDENTITY])
    return Batch(batch_id, kept, kept.num_rows, bad, changes=good)
