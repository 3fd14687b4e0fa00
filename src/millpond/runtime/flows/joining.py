"""Two streams joined by Spark: their own flows hand events over as files, exactly once, and the join drives a flow.

Spark keeps the state of the join beside the flow's checkpoint. An event that came too late for the watermark is not
joined any more: that is Spark's rule, and those who hand events over tell of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as f

from millpond.contracts.sink import Sink, SinkSpec
from millpond.contracts.source import BAD, ORDER_MAJOR, ORDER_MINOR, RAW, SourceStatus
from millpond.disk import make_folder
from millpond.errors import Problem, SourceError
from millpond.plan.model import FlowPlan, StreamJoin, StreamSide
from millpond.plan.stream_joins import PREFIXES
from millpond.plan.stream_order import ORDER, carry_order
from millpond.registry import find
from millpond.runtime.context import Context
from millpond.runtime.flows.dropping import Dropped
from millpond.runtime.spark.access import arrow_frame
from millpond.runtime.spark.relations import spark_text
from millpond.runtime.spark.types import from_spark_schema, to_spark_schema
from millpond.schema import Column, Schema
from millpond.sql.spark import render
from millpond.uris import parse_uri

# The RocksDB provider copies its files through Hadoop's checksummed local file system, and the raw one that makes small
# batches quick cannot stand in for it. So the state is in the JVM's memory, with a log of it in the checkpoint.
# A batch without data is how Spark tells events that found no partner. No other flow keeps state in Spark, so nothing
# changes for them.
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
}
POLL_S = 0.1


def relay_sinks(context: Context) -> dict[str, Sink]:
    """The folders through which events are handed over, by the targets of the steps that do it."""
    sinks: dict[str, Sink] = {}
    for flow in context.plan.flows:
        for number in (0, 1) if flow.join is not None else ():
            plugin = find("sink", "file")
            uri = parse_uri(f"file://{_folder(context, flow, number)}")
            values = {o.name: None if o.default is None else o.read(o.default) for o in plugin.options}
            spec = SinkSpec(f"{flow.id}:{number}", uri, {**values, "format": "parquet"}, Path("/"), private=True)
            sinks[spec.id] = plugin.open(spec)
    return sinks


def _folder(context: Context, flow: FlowPlan, number: int) -> Path:
    return make_folder(context.state.flow(flow.id) / "events" / str(number))


def side_schema(spark: SparkSession, side: StreamSide, relations: Mapping[str, Schema]) -> Schema:
    """What one stream hands over: its columns and its order; `relations` are the records of its source and the tables
    that are joined with them."""
    views = {name: f"mp_join_side_{number}" for number, name in enumerate(relations)}
    for name, schema in relations.items():
        arrow_frame(spark, schema.arrow().empty_table()).createOrReplaceTempView(views[name])
    found = spark.sql(spark_text(carry_order(side.query) or side.query, views)).schema
    for view in views.values():
        spark.catalog.dropTempView(view)
    return Schema.of({c.name: c for c in from_spark_schema(found)}.values())


def joined_schema(sides: tuple[Schema, Schema]) -> Schema:
    """What the join yields: the columns of both under their prefixes, and an order of its own."""
    columns = [Column(f"{prefix}{c.name}", c.type) for prefix, side in zip(PREFIXES, sides, strict=True) for c in side]
    return Schema.of([*columns, Column(ORDER_MAJOR, pa.int64()), Column(ORDER_MINOR, pa.int64())])


class JoinReader:
    """A StreamReader whose records are the pairs that the join finds."""

    def __init__(self, context: Context, flow: FlowPlan, sides: tuple[Schema, Schema]) -> None:
        assert flow.join is not None
        self._join: StreamJoin = flow.join
        self._folders = [_folder(context, flow, number) for number in (0, 1)]
        self._sides = sides
        self._dropped = Dropped(flow)

    def stream(self, spark: SparkSession) -> DataFrame:
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        self._dropped.spark = spark
        left, right = (self._events(spark, number) for number in (0, 1))
        condition = f.expr(render(self._join.condition))
        return left.join(right, condition, "left_outer" if self._join.kind == "left" else "inner")

    def _events(self, spark: SparkSession, number: int) -> DataFrame:
        """One stream's events under its prefix, with its watermark."""
        side = (self._join.left, self._join.right)[number]
        prefix, schema = PREFIXES[number], self._sides[number]
        reader = spark.readStream.schema(to_spark_schema(schema.arrow())).format("parquet")
        events = reader.option("cleanSource", "delete").load(f"file://{self._folders[number]}")
        events = events.toDF(*(f"{prefix}{name}" for name in schema.names))
        if side.time is None:
            return events
        return events.withWatermark(f"{prefix}{schema[side.time].name}", f"{side.delay_us} microseconds")

    def records(self, batch: DataFrame) -> DataFrame:
        """The pairs, ordered by the left event, then the right one."""
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

    def poll(self, *, final: bool = False) -> bool:
        """Spark finds the files by itself."""
        return False

    @property
    def interval_s(self) -> float:
        return POLL_S

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        """Spark's state of the join goes on only where Spark reads."""
        return None

    def all_good(self, files: Sequence[Path]) -> int | None:
        """There is no feed."""
        return None

    def size_hint(self, batch: DataFrame) -> int:
        """Read through the driver: every other way would run the join more than once."""
        return 0

    def originals(self, batch: DataFrame, records: pa.Table) -> list[bytes | None]:
        return [None] * records.num_rows

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        raise SourceError("MP512", "A pair of a join of two streams cannot be sent again.")

    def handed_over(self) -> list[tuple[int, str]]:
        """The files of events that are there now, each with its side; Spark may have read some of them."""
        return [(side, file.name) for side, folder in enumerate(self._folders) for file in folder.glob("*.parquet")]

    def committed(self, batch_id: int) -> None:
        """Spark removes what it has read."""

    def status(self) -> SourceStatus:
        return SourceStatus()

    @property
    def given(self) -> None:
        return None

    def problems(self) -> list[Problem]:
        return self._dropped.look()
