"""generate://?rows=&rate=&seed=: numbered rows made by Spark itself, for demos and load tests.

Guarantee: exactly once; the same numbers come again after a crash. With a seed `ts` is 2026-01-01 UTC plus seq / rate
(one millisecond apart without a rate), so that a run can be repeated; without, it starts when the app first started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.contracts.source import (
    BAD,
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    ORDER_MAJOR,
    ORDER_MINOR,
    RAW,
    Found,
    Mode,
    Past,
    Progress,
    SourcePlugin,
    SourceSpec,
    SourceStatus,
    StreamReader,
    TableReader,
)
from millpond.errors import Problem, SourceError
from millpond.options import INTEGER, NUMBER, Option
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.sources.feed import FILES_MAX, Feed
from millpond.sources.limits import OPTIONS as BULK_LIMITS
from millpond.sources.limits import BulkLimits
from millpond.sources.past import given, unread_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = Schema.of([Column("seq", pa.int64()), Column("ts", TIMESTAMP)])
SEEDED_START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
STEP_US_WITHOUT_RATE = 1_000
INTERVAL_S = 0.1
# A feed file names its rows in ranges of this many, so that several cores can make them.
RANGE_ROWS = 65_536
# Rows that are made at a time where they are read again.
PAST_ROWS = 100_000
RANGES = pa.schema([("first", pa.int64()), ("behind", pa.int64())])

OPTIONS = (
    Option("rows", INTEGER, None, "How many rows there will be; without, there is no end."),
    Option("rate", NUMBER, None, "How many rows come per second; without, all that there are come at once."),
    Option("seed", INTEGER, None, "Makes `ts` the same in every run."),
    Option("max.rows.per.batch", INTEGER, "1000000", "The most rows that one batch takes."),
    *BULK_LIMITS,
)


@dataclass(frozen=True)
class Times:
    """How a row's time follows from its number."""

    start_us: int
    rate: float | None

    @classmethod
    def of(cls, values: Mapping[str, Any], started_s: float) -> Times:
        start = SEEDED_START_US if values["seed"] is not None else int(started_s * 1_000_000)
        return cls(start, values["rate"])

    def sql(self) -> str:
        """The time of row `seq`; exact where the rate is a whole number."""
        if self.rate is None:
            after = f"seq * {STEP_US_WITHOUT_RATE}"
        elif self.rate == int(self.rate):
            after = f"seq * 1000000 div {int(self.rate)}"
        else:
            after = f"cast(seq * (1000000 / cast({self.rate!r} as double)) as bigint)"
        return f"timestamp_micros({self.start_us} + {after})"

    def of_rows(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The times of rows, in microseconds, as `sql` gives them."""
        if self.rate is None:
            after = numbers * STEP_US_WITHOUT_RATE
        elif self.rate == int(self.rate):
            after = numbers * 1_000_000 // int(self.rate)
        else:
            after = (numbers * (1_000_000 / self.rate)).astype(np.int64)
        found: npt.NDArray[np.int64] = self.start_us + after
        return found


def numbered(rows: DataFrame, times: Times, shown: str) -> DataFrame:
    """Rows with a `seq`, in the shape of the contract."""
    from pyspark.sql import functions as F

    return rows.select(
        "seq",
        F.expr(times.sql()).alias("ts"),
        F.lit(shown).alias(HIDDEN_SOURCE.name),
        F.lit("0").alias(HIDDEN_PARTITION.name),
        F.col("seq").alias(HIDDEN_OFFSET.name),
        F.lit(0).cast("bigint").alias(ORDER_MAJOR),
        F.col("seq").alias(ORDER_MINOR),
        F.lit(None).cast("string").alias(BAD),
        F.lit(None).cast("binary").alias(RAW),
    )


class GenerateStream:
    """A StreamReader that makes its records; see the contract."""

    def __init__(self, spec: SourceSpec, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._values, self._shown, self._clock = spec.values, spec.shown, clock
        self._feed = Feed(folder, self._memory)
        entries = self._feed.recover()
        self._next: int = entries[-1]["next"] if entries else 0
        self._started: float = entries[0]["started"] if entries else clock()
        self._made = 0
        self._updated_at: float | None = None
        if not entries:
            self._feed.remember(self._memory())

    def _memory(self) -> dict[str, Any]:
        return {"next": self._next, "started": self._started}

    @property
    def interval_s(self) -> float:
        return INTERVAL_S

    def stream(self, spark: SparkSession) -> DataFrame:
        return self._feed.stream(spark, RANGES)

    def poll(self, *, final: bool = False) -> bool:
        rows = self._values["rows"]
        return self._show_up_to(rows if final and rows is not None else self._due())

    def _due(self) -> int:
        """How many rows there should be by now."""
        rows, rate = self._values["rows"], self._values["rate"]
        if rate is None:
            # Without rows and rate there is always one more batch.
            return int(rows) if rows is not None else self._next + self._values["max.rows.per.batch"]
        due = int((self._clock() - self._started) * rate)
        return due if rows is None else min(due, int(rows))

    def _show_up_to(self, due: int) -> bool:
        before = self._next
        unpaced = self._values["rows"] is None and self._values["rate"] is None
        while self._next < due and self._feed.waiting() < (2 if unpaced else FILES_MAX):
            behind = min(due, self._next + max(self._values["max.rows.per.batch"], 1))
            writer = self._feed.writer()
            writer.write(_ranges(self._next, behind))
            writer.close()
            self._feed.publish({"next": behind, "started": self._started}, rows=behind - self._next)
            self._made += behind - self._next
            self._updated_at = time.time()
            self._next = behind
        return self._next > before

    def records(self, batch: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        if self._feed.rows_next() > 1:
            batch = batch.repartition(batch.sparkSession.sparkContext.defaultParallelism)
        rows = batch.select(F.explode(F.expr("sequence(first, behind - 1)")).alias("seq"))
        return numbered(rows, Times.of(self._values, self._started), self._shown)

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        fed = None if files is None else self._feed.read(files, RANGES)
        if fed is None:
            return None
        bounds = zip(fed["first"].to_pylist(), fed["behind"].to_pylist(), strict=True)
        numbers = np.concatenate([np.arange(first, behind, dtype=np.int64) for first, behind in bounds])
        return numbered_rows(numbers, Times.of(self._values, self._started), self._shown)

    def all_good(self, files: Sequence[Path]) -> int | None:
        fed = self._feed.read(files, RANGES)
        return None if fed is None else sum(fed["behind"].to_pylist()) - sum(fed["first"].to_pylist())

    def size_hint(self, batch: DataFrame) -> int:
        return self._feed.rows_next() * RANGE_ROWS

    def originals(self, batch: DataFrame, records: pa.Table) -> list[bytes | None]:
        return [b"%d" % number for number in records["seq"].to_pylist()]

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        """The bytes of a generated row are its number."""
        try:
            numbers = [(int(raw or b""),) for raw in letters["raw"].to_pylist()]
        except ValueError as error:
            raise SourceError("MP512", f"A generated row is sent again by its number: {error}.") from error
        rows = spark.createDataFrame(numbers, "seq bigint")
        return numbered(rows, Times.of(self._values, self._started), self._shown)

    def committed(self, batch_id: int) -> None:
        """Spark removes the feed file itself."""
        self._feed.taken()

    def status(self) -> SourceStatus:
        lag, lag_s = self._feed.lag()
        return SourceStatus(rows=self._made, lag=lag, lag_s=lag_s, updated_at=self._updated_at)

    @property
    def given(self) -> Feed:
        return self._feed

    def problems(self) -> list[Problem]:
        return []


class GenerateTable:
    """A TableReader that makes all its rows; see the contract."""

    def __init__(self, spec: SourceSpec, clock: Callable[[], float] = time.time) -> None:
        if spec.values["rows"] is None:
            hint = "Say how many rows there are: 'generate://?rows=1000'."
            raise SourceError("MP508", f"'{spec.shown}' has no end and cannot be a table.", hint=hint)
        self._spec, self._values, self._started = spec, spec.values, clock()
        self._read = 0

    def fingerprint(self) -> str:
        return f"{self._values['rows']}-{self._values['rate']}-{self._values['seed']}"

    def read(self, spark: Callable[[], SparkSession]) -> pa.Table:
        rows = self._values["rows"]
        BulkLimits(self._spec).check(rows)
        self._read = rows
        return numbered_rows(np.arange(rows, dtype=np.int64), Times.of(self._values, self._started), self._spec.shown)

    def progress(self) -> Progress:
        return Progress(self._read, self._values["rows"], rows=self._read)

    def status(self) -> SourceStatus:
        return SourceStatus(rows=self._values["rows"])


def numbered_rows(numbers: npt.NDArray[np.int64], times: Times, shown: str) -> pa.Table:
    """The rows of some numbers, in the shape of the contract, without Spark."""
    rows, order = len(numbers), pa.array(numbers)
    return pa.table(
        {
            "seq": order,
            "ts": pa.array(times.of_rows(numbers), pa.timestamp("us")).cast(TIMESTAMP),
            HIDDEN_SOURCE.name: pa.repeat(shown, rows),
            HIDDEN_PARTITION.name: pa.repeat("0", rows),
            HIDDEN_OFFSET.name: order,
            ORDER_MAJOR: pa.array(np.zeros(rows, np.int64)),
            ORDER_MINOR: order,
            BAD: pa.nulls(rows, pa.string()),
            RAW: pa.nulls(rows, pa.binary()),
        }
    )


def _ranges(first: int, behind: int) -> pa.RecordBatch:
    starts = list(range(first, behind, RANGE_ROWS))
    ends = [min(start + RANGE_ROWS, behind) for start in starts]
    return pa.RecordBatch.from_arrays([pa.array(starts, pa.int64()), pa.array(ends, pa.int64())], schema=RANGES)


def discover(spec: SourceSpec) -> Found:
    return Found(COLUMNS)


def open_stream(spec: SourceSpec, folder: Path) -> StreamReader:
    return GenerateStream(spec, folder)


def open_table(spec: SourceSpec, folder: Path) -> TableReader:
    return GenerateTable(spec)


def validate(spec: SourceSpec) -> str | None:
    """What is wrong with the values, as a sentence."""
    if spec.uri.hosts or spec.uri.path:
        return "A generator has no host and no path: write 'generate://?rows=1000'."
    if spec.values.get("rate") is not None and spec.values["rate"] <= 0:
        return "The rate of a generator must be more than 0 rows per second."
    return None


def past(wanted: Past) -> Iterator[pa.Table]:
    """The rows of its first batches: they follow from their numbers and from when it was started."""
    entries = given(wanted)
    unread = [row for table in unread_rows(wanted, entries, RANGES.names) for row in table["first"].to_pylist()]
    behind = min(unread, default=entries[-1]["next"])
    times = Times.of(wanted.spec.values, entries[0]["started"])
    for first in range(0, behind, PAST_ROWS):
        numbers = np.arange(first, min(first + PAST_ROWS, behind), dtype=np.int64)
        yield numbered_rows(numbers, times, wanted.spec.shown)


PLUGIN = SourcePlugin(
    name="generate",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.SNAPSHOT,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET),
    local=True,
    fixed=COLUMNS,
    counts_every_record=True,
    parameters={"rows": "rows", "rate": "rate", "seed": "seed"},
    discover=discover,
    open_stream=open_stream,
    open_table=open_table,
    past=past,
    validate=validate,
)
