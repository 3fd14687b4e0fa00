"""The generate:// source: numbered rows for demos and load tests, generate://?rows=&rate=&seed=.

Guarantee: exactly once; the same numbers are generated again after a crash. With a seed, `ts` is 2026-01-01 UTC plus
seq / rate (one millisecond per row without a rate), so that a run can be repeated; else it starts at the first start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.contracts.feeder import Content, Feeder, Polled, Position, RowForm, TableReader, Take
from millpond.contracts.source import (
    BULK_LIMITS,
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    ORDER_MINOR,
    Found,
    Mode,
    Past,
    Progress,
    SourcePlugin,
    SourceSpec,
)
from millpond.errors import SourceError
from millpond.options import INTEGER, NUMBER, POSITIVE, Option
from millpond.schema import TIMESTAMP, Column, Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = Schema.of([Column("seq", pa.int64()), Column("ts", TIMESTAMP)])
SEEDED_START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
STEP_US_WITHOUT_RATE = 1_000
INTERVAL_S = 0.1
# A feed file lists ranges of this many rows, so that several cores can generate them.
RANGE_ROWS = 65_536
# Rows that are made at a time where all of them are read, or read again.
PART_ROWS = 100_000
RANGES = pa.schema([("first", pa.int64()), ("behind", pa.int64())])

OPTIONS = (
    Option("rows", INTEGER, None, "The number of rows; without it, the stream does not end."),
    Option("rate", NUMBER, None, "Rows per second; without it, rows are generated as fast as possible."),
    Option("seed", INTEGER, None, "Makes `ts` the same in every run."),
    Option("max.rows.per.batch", POSITIVE, "1000000", "The maximal number of rows of a batch."),
    *BULK_LIMITS,
)


@dataclass(frozen=True)
class Times:
    """Computes a row's time from its number."""

    start_us: int
    rate: float | None

    @classmethod
    def of(cls, values: Mapping[str, Any], started_s: float) -> Times:
        start = SEEDED_START_US if values["seed"] is not None else int(started_s * 1_000_000)
        return cls(start, values["rate"])

    def sql(self) -> str:
        """The time of row `seq` in SQL; exact if the rate is a whole number."""
        if self.rate is None:
            after = f"seq * {STEP_US_WITHOUT_RATE}"
        elif self.rate == int(self.rate):
            after = f"seq * 1000000 div {int(self.rate)}"
        else:
            after = f"cast(seq * (1000000 / cast({self.rate!r} as double)) as bigint)"
        return f"timestamp_micros({self.start_us} + {after})"

    def of_rows(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The times of rows in microseconds, equal to those of `sql`."""
        if self.rate is None:
            after = numbers * STEP_US_WITHOUT_RATE
        elif self.rate == int(self.rate):
            after = numbers * 1_000_000 // int(self.rate)
        else:
            after = (numbers * (1_000_000 / self.rate)).astype(np.int64)
        found: npt.NDArray[np.int64] = self.start_us + after
        return found


class Ranges(RowForm):
    """Rows that name ranges of numbers; records follow from their numbers."""

    schema = RANGES
    bundle_max = RANGE_ROWS

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.times = Times.of(values, 0.0)

    def records(self, rows: DataFrame, *, raw: bool) -> DataFrame:
        from pyspark.sql import functions as F

        if not raw:
            rows = rows.repartition(rows.sparkSession.sparkContext.defaultParallelism)
        found = rows.select(F.explode(F.expr("sequence(first, behind - 1)")).alias("seq"))
        return found.select("seq", F.expr(self.times.sql()).alias("ts"), F.col("seq").alias(ORDER_MINOR))

    def arrow_records(self, rows: pa.Table, *, raw: bool) -> pa.Table:
        bounds = zip(rows["first"].to_pylist(), rows["behind"].to_pylist(), strict=True)
        numbers = np.concatenate([np.arange(first, behind, dtype=np.int64) for first, behind in bounds])
        order = pa.array(numbers)
        times = pa.array(self.times.of_rows(numbers), pa.timestamp("us")).cast(TIMESTAMP)
        return pa.table({"seq": order, "ts": times, ORDER_MINOR: order})

    def count(self, rows: pa.Table) -> int:
        return int(sum(rows["behind"].to_pylist()) - sum(rows["first"].to_pylist()))


class GenerateFeeder(Ranges, Feeder):
    """Rows as they are due; a position has the next number and when the first start was."""

    interval_s = INTERVAL_S
    rows_live = None

    def __init__(self, spec: SourceSpec, clock: Callable[[], float] = time.time) -> None:
        super().__init__(spec.values)
        self._clock = clock
        self._started = 0.0
        if spec.values["rows"] is None and spec.values["rate"] is None:
            # There is always one more batch, and it is of no use to be far ahead.
            self.files_max = 2

    def begin(self, known: Sequence[Position], take: Take) -> Position | None:
        self._started = known[-1]["started"] if known else self._clock()
        self.times = Times.of(self._values, self._started)
        return None if known else {"next": 0, "started": self._started}

    def poll(self, position: Position | None, *, final: bool = False) -> Iterator[Polled]:
        assert position is not None
        rows, limit = self._values["rows"], max(self._values["max.rows.per.batch"], 1)
        due = rows if final and rows is not None else self._due(position["next"])
        for first in range(position["next"], due, limit):
            behind = min(due, first + limit)
            yield Polled(ranges(first, behind), {"next": behind, "started": self._started}, records=behind - first)

    def _due(self, next_: int) -> int:
        """The number of rows that are due now."""
        rows, rate = self._values["rows"], self._values["rate"]
        if rate is None:
            return int(rows) if rows is not None else next_ + max(self._values["max.rows.per.batch"], 1)
        due = int((self._clock() - self._started) * rate)
        return due if rows is None else min(due, int(rows))

    def originals(self, records: pa.Table, fed: Callable[[], pa.Table]) -> list[bytes | None]:
        return [b"%d" % number for number in records["seq"].to_pylist()]

    def again(self, letters: pa.Table) -> pa.Table:
        """Dead letters by the number of the row, which is their raw value."""
        try:
            numbers = [int(raw or b"") for raw in letters["raw"].to_pylist()]
        except ValueError as error:
            raise SourceError("MP512", f"The raw value of a generated row must be its number: {error}.") from error
        return pa.table({"first": numbers, "behind": [number + 1 for number in numbers]}, schema=RANGES)


class GenerateTable(Ranges, TableReader):
    """All rows of a generator that has an end."""

    def __init__(self, spec: SourceSpec, clock: Callable[[], float] = time.time) -> None:
        if spec.values["rows"] is None:
            hint = "Set the number of rows: 'generate://?rows=1000'."
            raise SourceError("MP508", f"'{spec.shown}' is infinite and cannot be a table.", hint=hint)
        super().__init__(spec.values)
        self.times = Times.of(spec.values, clock())
        self._read = 0

    def fingerprint(self) -> str:
        return f"{self._values['rows']}-{self._values['rate']}-{self._values['seed']}"

    def read(self, mark: Any) -> Content:
        return Content(self._parts())

    def _parts(self) -> Iterator[Polled]:
        rows = self._values["rows"]
        for first in range(0, rows, PART_ROWS):
            self._read = min(first + PART_ROWS, rows)
            yield Polled(ranges(first, self._read), records=self._read - first)

    def progress(self) -> Progress:
        return Progress(self._read, self._values["rows"])


def ranges(first: int, behind: int) -> pa.RecordBatch:
    starts = list(range(first, behind, RANGE_ROWS))
    ends = [min(start + RANGE_ROWS, behind) for start in starts]
    return pa.RecordBatch.from_arrays([pa.array(starts, pa.int64()), pa.array(ends, pa.int64())], schema=RANGES)


def discover(spec: SourceSpec) -> Found:
    return Found(COLUMNS)


def validate(spec: SourceSpec) -> str | None:
    """The error of the values as a sentence, or None."""
    if spec.uri.hosts or spec.uri.path:
        return "A generator URI has no host or path: write 'generate://?rows=1000'."
    if spec.values.get("rate") is not None and spec.values["rate"] <= 0:
        return "The rate of a generator must be more than 0 rows per second."
    return None


def past(wanted: Past) -> tuple[RowForm, Iterable[Polled]]:
    """The rows of the first batches, generated again from their numbers and the time of the first start."""
    unread = [row for table in wanted.unread(RANGES.names) for row in table["first"].to_pylist()]
    behind = min(unread, default=wanted.positions[-1]["next"])
    form = Ranges(wanted.spec.values)
    form.times = Times.of(wanted.spec.values, wanted.positions[-1]["started"])
    starts = range(0, behind, PART_ROWS)
    return form, (Polled(ranges(first, min(first + PART_ROWS, behind))) for first in starts)


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
    open_feeder=GenerateFeeder,
    open_table=GenerateTable,
    past=past,
    validate=validate,
)
