"""Joins of two streams by Spark: events are passed to Spark as files, exactly once; late ones are reported."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as f

from millpond.contracts.sink import Sink, SinkSpec
from millpond.contracts.source import BAD, ORDER_MAJOR, ORDER_MINOR, RAW, SourceStatus
from millpond.disk import make_folder
from millpond.engine.app_context import Context
from millpond.engine.batch_run import BatchRun, Output
from millpond.engine.emit import emit
from millpond.engine.late_rows import LATE
from millpond.engine.rejected_rows import add_dead_letters
from millpond.engine.spark.evaluate import spark_text, tables_of
from millpond.engine.spark.transfer import arrow_frame, from_spark_schema, to_spark_schema
from millpond.engine.watermark import as_scalar, at
from millpond.errors import Problem, Severity, SourceError
from millpond.plan.model import BATCH, FlowPlan, Step, StreamJoin, StreamSide
from millpond.plan.source_catalog import record_schema
from millpond.plan.statement_groups import ORDER, carry_order
from millpond.plan.stream_joins import PREFIXES
from millpond.registry import find
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.sql.spark import render
from millpond.uris import parse_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The additional columns of every record, and those of records with keys.


# Spark stores the progress of its last hundred batches, so that none is missed at this interval.
LOOK_S = 1.0


class Dropped:
    """Counts the events that Spark's join drops. `look` is called by the poller, repeatedly."""

    def __init__(self, flow: FlowPlan) -> None:
        self.spark: SparkSession | None = None
        self._flow = flow
        self._seen: dict[str, int] = {}
        self._next = 0.0

    def look(self) -> list[Problem]:
        """A warning about the events that were dropped since the last call."""
        if self.spark is None or time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + LOOK_S
        queries = [q for q in self.spark.streams.active if q.name == f"millpond {self._flow.id}"]
        count = sum(_rows(batch) for q in queries for batch in self._new_batches(q))
        if not count:
            return []
        message = f"The join '{self._flow.name}' dropped {count} event{'s' * (count > 1)} behind its watermark."
        hint = "They arrived while the other stream was ahead: increase the delay of the watermarks of both streams."
        return [Problem(LATE, message, self._flow.steps[0].place, hint, Severity.WARNING)]

    def _new_batches(self, query: Any) -> list[dict[str, Any]]:
        """Spark's progress of the batches since the last call, as JSON, because its Python form calls the JVM for each
        field."""
        found: list[dict[str, Any]] = []
        recent, run = query._jsq.recentProgress(), str(query.runId)
        for progress in reversed(list(recent)):
            if progress.batchId() <= self._seen.get(run, -1):
                break
            found.append(json.loads(progress.json()))
        self._seen = {run: max([self._seen.get(run, -1), *(batch["batchId"] for batch in found)])}
        return found


def _rows(batch: dict[str, Any]) -> int:
    return sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in batch.get("stateOperators", ()))


# The RocksDB provider requires Hadoop's checksummed local file system, but small batches are fast only with the raw
# one. So the state is in the JVM's memory, with a log in the checkpoint. Batches without data are necessary because
# Spark emits events without a match in them. No other flow has state in Spark, so the settings do not affect them.
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
}
POLL_S = 0.1
# Spark has no ANTI JOIN of streams: it is a LEFT JOIN whose pairs are left out.
KINDS = {"inner": "inner", "left": "left_outer", "semi": "left_semi", "anti": "left_outer"}


def relay_sinks(context: Context) -> dict[str, Sink]:
    """The folders through which events are passed to joins, by the targets of their steps."""
    sinks: dict[str, Sink] = {}
    for flow in context.plan.flows:
        for number in (0, 1) if flow.join is not None else ():
            plugin = find("sink", "file")
            uri = parse_uri(f"file://{_folder(context, flow, number)}")
            values = {o.name: None if o.default is None else o.read(o.default) for o in plugin.options}
            spec = SinkSpec(f"{flow.id}:{number}", uri, {**values, "format": "parquet"}, Path("/"), private=True)
            assert plugin.open is not None, "the file sink can run"
            sinks[spec.id] = plugin.open(spec)
    return sinks


def _folder(context: Context, flow: FlowPlan, number: int) -> Path:
    context.state.share(context.state.flow(flow.id), ("events",))
    return make_folder(context.state.flow(flow.id) / "events" / str(number))


def side_schema(spark: SparkSession, side: StreamSide, relations: Mapping[str, Schema]) -> Schema:
    """The columns that one stream passes to the join, including the order; `relations` are the records of its source
    and the tables that are joined with them."""
    views = {name: f"mp_join_side_{number}" for number, name in enumerate(relations)}
    for name, schema in relations.items():
        arrow_frame(spark, schema.arrow().empty_table()).createOrReplaceTempView(views[name])
    found = spark.sql(spark_text(carry_order(side.query) or side.query, views)).schema
    for view in views.values():
        spark.catalog.dropTempView(view)
    return Schema.of({c.name: c for c in from_spark_schema(found)}.values())


def joined_schema(sides: tuple[Schema, Schema]) -> Schema:
    """The columns of the joined rows: those of both sides with their prefixes, and an order of their own."""
    columns = [Column(f"{prefix}{c.name}", c.type) for prefix, side in zip(PREFIXES, sides, strict=True) for c in side]
    return Schema.of([*columns, Column(ORDER_MAJOR, pa.int64()), Column(ORDER_MINOR, pa.int64())])


class JoinReader:
    """A StreamReader whose records are the joined rows."""

    def __init__(self, context: Context, flow: FlowPlan, sides: tuple[Schema, Schema]) -> None:
        assert flow.join is not None
        self._join: StreamJoin = flow.join
        self._folders = [_folder(context, flow, number) for number in (0, 1)]
        self._sides = sides
        self._dropped = Dropped(flow)

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """The flows of its streams see to their sources."""

    def stream(self, spark: SparkSession) -> DataFrame:
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        self._dropped.spark = spark
        left, right = (self._events(spark, number) for number in (0, 1))
        condition, kind = f.expr(render(self._join.condition)), self._join.kind
        joined = left.join(right, condition, KINDS[kind])
        if kind == "anti":
            return joined.where(f.col(f"`{PREFIXES[1]}{ORDER_MAJOR}`").isNull())
        if kind == "semi":
            nothing = [f.lit(None).cast(field.dataType).alias(field.name) for field in right.schema]
            return joined.select("*", *nothing)
        return joined

    def _events(self, spark: SparkSession, number: int) -> DataFrame:
        """One stream's events with its prefix and watermark."""
        side = (self._join.left, self._join.right)[number]
        prefix, schema = PREFIXES[number], self._sides[number]
        reader = spark.readStream.schema(to_spark_schema(schema.arrow())).format("parquet")
        events = reader.option("cleanSource", "delete").load(f"file://{self._folders[number].resolve()}")
        events = events.toDF(*(f"{prefix}{name}" for name in schema.names))
        if side.time is None:
            return events
        return events.withWatermark(f"{prefix}{schema[side.time].name}", f"{side.delay_us} microseconds")

    def records(self, batch: DataFrame) -> DataFrame:
        """The joined rows, ordered by the left event, then the right one."""
        order = [f.col(f"`{prefix}{name}`") for prefix in PREFIXES for name in ORDER]
        number = f.row_number().over(SparkWindow.orderBy(*order)).cast("bigint")
        nothing = f.lit(None)
        return batch.select(
            "*",
            f.lit(0).cast("bigint").alias(ORDER_MAJOR),
            number.alias(ORDER_MINOR),
            nothing.cast("string").alias(BAD),
            nothing.cast("binary").alias(RAW),
        )

    def fed(self, spark: SparkSession, files: Sequence[Path]) -> DataFrame:
        """None, because there are no feed files."""
        raise NotImplementedError

    def poll(self, *, final: bool = False) -> bool:
        """Nothing to do: Spark finds the files itself."""
        return False

    @property
    def interval_s(self) -> float:
        return POLL_S

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        """None: Spark must read the events, because it maintains the state of the join."""
        return None

    def all_good(self, files: Sequence[Path]) -> int | None:
        """None, because there are no feed files."""
        return None

    def size_hint(self, batch: DataFrame) -> int:
        """0, so that the rows are fetched to the driver once: otherwise the join would run several times."""
        return 0

    def originals(self, batch: DataFrame, records: pa.Table, files: Sequence[Path] | None = None) -> list[bytes | None]:
        return [None] * records.num_rows

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        raise SourceError("MP512", "A row of a join of two streams cannot be replayed.")

    def handed_over(self) -> list[tuple[int, str]]:
        """The current files of events, each with its side; Spark may have read some of them."""
        return [(side, file.name) for side, folder in enumerate(self._folders) for file in folder.glob("*.parquet")]

    def committed(self, batch_id: int) -> None:
        """Nothing to do: Spark removes the files that it has read."""

    def status(self) -> SourceStatus:
        return SourceStatus()

    @property
    def given(self) -> None:
        return None

    def problems(self) -> list[Problem]:
        return self._dropped.look()

    def close(self) -> None:
        """Nothing to do: the flows of its streams close their sources."""


# Ledger key prefix, followed by a side of a join: the newest time that it passed to the join, in microseconds.
NEWEST = "newest:"


def relay(run: BatchRun, step: Step) -> None:
    """Pass a batch's events to a join, with their order."""
    rows = run.work.result(run.work.ordered(step.query) or step.query, run.batch.relation)
    rows = rows.select(list(dict.fromkeys(rows.schema.names)))
    id_, _, number = step.target.rpartition(":")
    join = next(flow.join for flow in run.work.context.plan.flows if flow.id == id_)
    assert join is not None
    time = (join.left, join.right)[int(number)].time
    if time is not None:
        arrow = rows if isinstance(rows, pa.Table) else rows.toArrow()
        rows = _on_time(run, step, arrow, time, _reached(run, id_, join))
    emit(run, step, Output(step.target, rows, run.mark(step)))


def _reached(run: BatchRun, id_: str, join: StreamJoin) -> int | None:
    """The watermark of a join, the minimum of its sides; None until both sides have passed an event."""
    sides = [(number, side) for number, side in enumerate((join.left, join.right)) if side.time is not None]
    newest = [run.work.context.store.get(f"{NEWEST}{id_}:{number}") for number, _ in sides]
    if None in newest:
        return None
    return min(int(time) - side.delay_us for time, (_, side) in zip(newest, sides, strict=True))


def _on_time(run: BatchRun, step: Step, rows: pa.Table, time: str, reached: int | None) -> pa.Table:
    """The events that are not late for the join; late ones are handled by 'late.rows'."""
    times = rows[next(name for name in rows.column_names if name.lower() == time.lower())].cast(TIMESTAMP)
    newest = pc.max(times)
    known = run.work.context.store.get(NEWEST + step.target)
    if newest.is_valid:
        run.work.tx.put(NEWEST + step.target, newest.value if known is None else max(known, newest.value))
    if reached is None:
        return rows
    late = pc.fill_null(pc.less_equal(times, as_scalar(reached)), False)
    refused = rows.filter(late)
    if refused.num_rows and step.options.get("late.rows") != "drop":
        reason = f"column '{time}': the watermark of the join is {at(reached)}"
        codes = [LATE] * refused.num_rows
        add_dead_letters(run, refused, codes, [reason] * refused.num_rows, applied=refused.slice(0, 0))
    return rows.filter(pc.invert(late))


def join_sides(context: Context, join: StreamJoin) -> tuple[Schema, Schema]:
    """The columns that each stream of a join passes."""
    left, right = (
        side_schema(context.spark(), side, _side_relations(context, side)) for side in (join.left, join.right)
    )
    return left, right


def _side_relations(context: Context, side: StreamSide) -> dict[str, Schema]:
    """The input of one side: records of a source or rows of another join, and the tables that they are joined with."""
    inner = next((flow.join for flow in context.plan.flows if flow.id == side.source), None)
    if inner is not None:
        batch = joined_schema(join_sides(context, inner))
    else:
        batch = record_schema(context.plan.source(side.source))
    tables = {n: context.store.table(n).schema for n in tables_of(side.query) if n != BATCH}
    return {BATCH: batch, **tables}
