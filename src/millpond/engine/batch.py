"""One micro-batch: its records are read once; valid ones become a relation, invalid ones are separated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel
from sqlglot import exp

from millpond.contracts.change_stream import OPERATION
from millpond.contracts.evaluator import Limits
from millpond.contracts.source import BAD, DELETED, IDENTITY, ORDER_MAJOR, ORDER_MINOR, RAW
from millpond.engine.spark.transfer import Dataset
from millpond.engine.stream_reader import StreamReader
from millpond.observations import observed
from millpond.plan.model import BATCH, FlowPlan, StepKind

# Statements that read a batch exactly once if their query does.
ONE_PASS = (StepKind.SINK, StepKind.INSERT, StepKind.APPEND, StepKind.UPSERT, StepKind.LATEST)


def reads_once(flow: FlowPlan) -> bool:
    """Whether the only statement of a flow reads the batch once and completely, so that caching would cost more than it
    saves."""
    if len(flow.steps) != 1 or flow.watermark is not None or flow.join is not None:
        return False
    if any(not group.by_key for group in flow.groups):
        return False
    step = flow.steps[0]
    if step.kind not in ONE_PASS or step.aggregate or step.condition or step.message_key or step.waiting or step.over:
        return False
    if step.options.get("on.error") == "dead-letter" or step.options.get("on.bad.record") == "fail":
        return False
    mentions = sum(1 for table in step.query.find_all(exp.Table) if table.name == BATCH)
    return mentions == 1 and step.query.find(exp.Limit) is None


@dataclass(frozen=True)
class Observed:
    """Records of a batch that is read only once: Spark counts them while a statement reads `rows`."""

    records: DataFrame
    rows: DataFrame
    seen: Observation

    @classmethod
    def of(cls, records: DataFrame) -> Observed:
        seen = Observation()
        counts = [f.count(f.lit(1)).alias("rows"), f.count(BAD).alias("bad")]
        return cls(records, records.observe(seen, *counts), seen)

    def counts(self, guess: int) -> tuple[int, pa.Table]:
        """The number of good records, and the bad ones, which are read again if there were any."""
        known = observed(self.seen)
        if known is not None and not known["bad"]:
            return int(known["rows"]), pa.table({})
        bad = self.records.where(f"`{BAD}` IS NOT NULL").toArrow()
        return (guess if known is None else int(known["rows"]) - bad.num_rows), bad


ORDER = [(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")]


@dataclass
class Batch:
    """The records of one micro-batch. `relation` has the declared, hidden and order columns of the good records: a
    small batch is on the driver, in stream order, a large one in Spark. `bad` has all columns of the bad records.
    `changes` includes, for a source whose messages have keys, the records that delete: only tables that are kept by key
    read them. If a batch is read only once, `rows` and `bad` are known after `finish`; until then `rows` is an
    estimate."""

    id: int
    relation: Dataset
    rows: int
    bad: pa.Table
    changes: Dataset | None = None
    _cached: DataFrame | None = None
    _observed: Observed | None = None

    @classmethod
    def of(cls, id_: int, rows: pa.Table, bad: pa.Table) -> Batch:
        """A batch of good rows on the driver."""
        return cls(id_, rows, rows.num_rows, bad)

    @property
    def local(self) -> pa.Table | None:
        """The good records, if they are on the driver."""
        return self.relation if isinstance(self.relation, pa.Table) else None

    def to_arrow(self) -> pa.Table:
        """The good records, wherever they are."""
        return self.relation if isinstance(self.relation, pa.Table) else self.relation.toArrow()

    def message_keys(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all messages, including those that delete, and their order."""
        assert self.changes is not None
        wanted = [*columns, ORDER_MAJOR, ORDER_MINOR]
        if isinstance(self.changes, pa.Table):
            return self.changes.select(wanted)
        return self.changes.select(*(f"`{name}`" for name in wanted)).toArrow()

    def finish(self) -> bool:
        """Called when the statements have read the batch; returns whether its bad records became known only now."""
        if self._observed is None:
            return False
        self.rows, self.bad = self._observed.counts(self.rows)
        self._observed = None
        return True

    def release(self) -> None:
        """Remove the batch from Spark's cache."""
        if self._cached is not None:
            self._cached.unpersist(blocking=False)


def read_batch(
    reader: StreamReader, raw: DataFrame, batch_id: int, files: Sequence[Path] | None, limits: Limits, *, once: bool
) -> Batch:
    """Read a batch: on the driver if the source can and it is not too large, or if it is small; a large one is cached
    by Spark, unless its statements read it only `once`. `files` are its feed files, if known."""
    size = reader.size_hint(raw)
    rows_max = limits.parsed_rows if files is None else limits.driver_rows
    rows = reader.on_driver(raw, files) if size <= rows_max else None
    if rows is not None:
        return records_apart(rows, batch_id)
    # Spark's functions can be called only after its session has started, which a first use of `raw` ensures.
    raw = raw.select("*")
    small = size <= limits.collected_rows
    count = reader.all_good(files) if files is not None and not small else None
    if count is not None:
        return Batch(batch_id, reader.records(raw).drop(BAD, RAW), count, pa.table({}))
    if once and not small:
        observed_once = Observed.of(reader.records(raw))
        frame, changes = _good(observed_once.rows)
        return Batch(batch_id, frame, size, pa.table({}), changes, _observed=observed_once)
    return split_records(reader.records(raw), batch_id, small=small)


def split_records(records: DataFrame, batch_id: int, *, small: bool) -> Batch:
    """Separate good and bad records."""
    if small:
        return records_apart(records.toArrow(), batch_id)
    kept = records.persist(StorageLevel.MEMORY_AND_DISK)
    bad = kept.where(f"`{BAD}` IS NOT NULL").toArrow()
    frame, changes = _good(kept)
    return Batch(batch_id, frame, frame.count(), bad, changes, kept)


def _good(records: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The good records without those that only delete, and all of them; a change that deletes a row is an event too."""
    good = records.where(f"`{BAD}` IS NULL").drop(BAD, RAW)
    if DELETED not in records.columns:
        return good, good
    stays = f"NOT `{DELETED}`"
    if OPERATION in records.columns:
        stays += f" OR `{OPERATION}` = 'delete'"
    return good.where(stays).drop(DELETED, IDENTITY), good


def _is_ordered(records: pa.Table) -> bool:
    """Whether records are in stream order, as in a feed file."""
    major, minor = (records[name].to_numpy() for name, _ in ORDER)
    rising = (major[1:] > major[:-1]) | ((major[1:] == major[:-1]) & (minor[1:] >= minor[:-1]))
    return bool(rising.all())


def records_apart(records: pa.Table, batch_id: int) -> Batch:
    """Separate good and bad records that are on the driver."""
    rows = records if _is_ordered(records) else records.sort_by(ORDER)
    is_bad = pc.is_valid(rows[BAD])
    bad = rows.filter(is_bad)
    good = (rows.filter(pc.invert(is_bad)) if bad.num_rows else rows).drop_columns([BAD, RAW])
    if DELETED not in good.column_names:
        return Batch.of(batch_id, good, bad)
    stays = pc.invert(good[DELETED])
    if OPERATION in good.column_names:
        stays = pc.or_(stays, pc.fill_null(pc.equal(good[OPERATION], "delete"), False))
    kept = good.filter(stays).drop_columns([DELETED, IDENTITY])
    return Batch(batch_id, kept, kept.num_rows, bad, changes=good)
