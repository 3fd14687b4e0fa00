"""What a source tells about the messages of a batch: counted by Spark along the way, or by Arrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from millpond.contracts.source import BAD
from millpond.kafka.counting import counted


@dataclass(frozen=True)
class Tally:
    """`newest_us`: when the newest of them was written, in microseconds since the epoch; 0 where that is not known."""

    rows: int
    skipped: int
    bytes: int
    newest_us: int
    bad: int


def observed(batch: DataFrame, parse: Callable[[DataFrame], DataFrame]) -> tuple[DataFrame, Callable[[], Tally]]:
    """A batch's records, and how to ask what was counted when they were read."""
    raw, parsed = Observation(), Observation()
    messages = batch.observe(
        raw,
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col("value").isNull()).alias("skipped"),
        F.coalesce(F.sum(F.octet_length("value")), F.lit(0)).alias("bytes"),
        F.coalesce(F.unix_micros(F.max("timestamp")), F.lit(0)).alias("newest"),
    )
    records = parse(messages).observe(parsed, F.count(BAD).alias("bad"))
    return records, lambda: Tally(*counted(raw, "rows", "skipped", "bytes", "newest"), *counted(parsed, "bad"))


def tally(messages: pa.Table, records: pa.Table) -> Tally:
    """The same of a batch that is on the driver."""
    values = messages["value"]
    newest = pc.max(messages["timestamp"]).cast(pa.int64()).as_py()
    bad = records.num_rows - records[BAD].null_count
    return Tally(len(values), values.null_count, pc.sum(pc.binary_length(values)).as_py() or 0, newest or 0, bad)
