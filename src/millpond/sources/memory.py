"""memory://name: records that Python hands over with `app.feed("memory://name").send(rows)`.

Guarantee: exactly once. A record that was sent is on disk when `send` returns, and it is read once, in the order of
sending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
    SourcePlugin,
    SourceSpec,
    SourceStatus,
    StreamReader,
)
from millpond.contracts.table import Rows
from millpond.errors import Problem, Severity
from millpond.options import INTEGER, Option, choice
from millpond.schema import Schema
from millpond.sources.feed import Feed
from millpond.sources.files.formats import FileFormat
from millpond.sources.files.quick import quick_parser
from millpond.sources.handed import columns_of, json_records, known_names, unknown_names
from millpond.sources.raw import PROBLEM, SUSPECT, VALUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERVAL_S = 0.02
KEPT = (HIDDEN_SOURCE.name, HIDDEN_PARTITION.name, HIDDEN_OFFSET.name, ORDER_MAJOR, ORDER_MINOR)
RECORDS = pa.schema([(VALUE, pa.binary()), (HIDDEN_OFFSET.name, pa.int64())])

UNFED = "nobody has fed it yet"

OPTIONS = (
    Option("sample.rows", INTEGER, "1000", "Rows that are looked at to find the columns."),
    Option("max.rows.per.batch", INTEGER, "1000000", "The most rows that one batch takes."),
    Option(
        "on.unknown.field",
        choice("reject", "ignore"),
        "reject",
        "What `send` does with records that have a name which the stream has not: raises MP202, or leaves it out.",
    ),
)


class MemoryStream:
    """A StreamReader that is fed from Python; `send` may be called from any thread."""

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        # Without columns it takes records, and is read when they are known.
        self._spec, self._columns = spec, spec.columns or Schema(())
        self._lock = threading.Lock()
        self._feed = Feed(folder, lambda: {"next": self._next})
        entries = self._feed.recover()
        self._next: int = entries[-1]["next"] if entries else 0
        self._sent = False
        self._warned = False
        self._rows = self._bytes = 0
        self._updated_at: float | None = None

    def send(self, rows: Rows) -> int:
        """Hand records over; returns how many."""
        lines = json_records(rows)
        limit = max(self._spec.values["max.rows.per.batch"], 1)
        with self._lock:
            for first in range(0, len(lines), limit):
                self._write(lines[first : first + limit])
        return len(lines)

    def unknown_names(self, rows: Rows) -> list[str]:
        """The names in records that this stream has no column for, unless it ignores them; before its columns are
        known every name may become one."""
        if not len(self._columns) or self._spec.values["on.unknown.field"] == "ignore":
            return []
        return unknown_names(rows, self._columns)

    @property
    def shown(self) -> str:
        """How messages name it."""
        return self._spec.shown

    @property
    def names(self) -> list[str]:
        """The names that records may have, for a hint."""
        return known_names(self._columns)

    def _write(self, lines: list[bytes]) -> None:
        numbers = pa.array(range(self._next, self._next + len(lines)), pa.int64())
        writer = self._feed.writer()
        writer.write(pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()), numbers], schema=RECORDS))
        writer.close()
        self._feed.publish({"next": self._next + len(lines)})
        self._next += len(lines)
        self._rows += len(lines)
        self._bytes += sum(map(len, lines))
        self._updated_at = time.time()
        self._sent = True

    def found(self) -> Found:
        """The columns of the first records that it was handed."""
        lines = self._feed.first(RECORDS, self._spec.values["sample.rows"])[VALUE].to_pylist()
        columns = columns_of(lines)
        return Found(columns, detail="" if columns else UNFED)

    def know(self, spec: SourceSpec) -> None:
        """Its columns were found, or its options changed, after it was opened."""
        self._spec, self._columns = spec, spec.columns or self._columns

    @property
    def interval_s(self) -> float:
        return INTERVAL_S

    def stream(self, spark: SparkSession) -> DataFrame:
        return self._feed.stream(spark, RECORDS)

    def poll(self, *, final: bool = False) -> bool:
        with self._lock:
            sent, self._sent = self._sent, False
        return sent

    def records(self, batch: DataFrame, *, repaired: bool = False) -> DataFrame:
        from pyspark.sql import functions as F

        from millpond.sources.parsing import parse_json

        raw = batch.select(
            VALUE,
            # A line that was repaired by hand may hold anything; one that was sent is one object.
            F.lit(repaired).alias(SUSPECT),
            F.lit(None).cast("string").alias(PROBLEM),
            F.lit(self._spec.shown).alias(HIDDEN_SOURCE.name),
            F.lit("0").alias(HIDDEN_PARTITION.name),
            HIDDEN_OFFSET.name,
            F.lit(0).cast("bigint").alias(ORDER_MAJOR),
            F.col(HIDDEN_OFFSET.name).alias(ORDER_MINOR),
        )
        return parse_json(raw, self._columns, KEPT)

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        fed = None if files is None else self._feed.read(files, RECORDS)
        parse = quick_parser(FileFormat("jsonl"), "lines", self._columns, ())
        parsed = None if fed is None or parse is None else parse(fed[VALUE].combine_chunks())
        if fed is None or parsed is None:
            return None
        rows, numbers = fed.num_rows, fed[HIDDEN_OFFSET.name]
        found = dict(zip(self._columns.names, parsed.columns, strict=True))
        found |= {
            HIDDEN_SOURCE.name: pa.repeat(self._spec.shown, rows),
            HIDDEN_PARTITION.name: pa.repeat("0", rows),
            HIDDEN_OFFSET.name: numbers,
            ORDER_MAJOR: pa.repeat(pa.scalar(0, pa.int64()), rows),
            ORDER_MINOR: numbers,
            BAD: pa.nulls(rows, pa.string()),
            RAW: pa.nulls(rows, pa.binary()),
        }
        return pa.table(found)

    def all_good(self, files: Sequence[Path]) -> int | None:
        """Python may hand over anything."""
        return None

    def size_hint(self, batch: DataFrame) -> int:
        return self._feed.rows_next()

    def originals(self, batch: DataFrame, records: pa.Table) -> list[bytes | None]:
        from pyspark.sql import functions as F

        numbers = records[HIDDEN_OFFSET.name].to_pylist()
        rows = batch.where(F.col(HIDDEN_OFFSET.name).isin(numbers)).select(HIDDEN_OFFSET.name, VALUE).toArrow()
        lines = [line.rstrip(b"\n") for line in rows[VALUE].to_pylist()]
        found = dict(zip(rows[HIDDEN_OFFSET.name].to_pylist(), lines, strict=True))
        return [found.get(number) for number in numbers]

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        from millpond.sources.ddl import table_ddl

        rows = list(zip(letters["raw"].to_pylist(), map(int, letters["position"].to_pylist()), strict=True))
        return self.records(spark.createDataFrame(rows, table_ddl(RECORDS)), repaired=True)

    def committed(self, batch_id: int) -> None:
        """Spark removes the feed file itself."""
        self._feed.taken()

    def status(self) -> SourceStatus:
        if not self._next:
            return SourceStatus("missing", "not_found", detail=UNFED)
        lag, lag_s = self._feed.lag()
        return SourceStatus(rows=self._rows, bytes=self._bytes, lag=lag, lag_s=lag_s, updated_at=self._updated_at)

    @property
    def given(self) -> Feed:
        return self._feed

    def problems(self) -> list[Problem]:
        if self._next or self._warned:
            return []
        self._warned = True
        hint = f'Feed it from Python: app.feed("{self._spec.shown}").send(rows).'
        return [Problem("MP707", f"Nobody feeds '{self._spec.shown}'.", None, hint, Severity.WARNING)]


def validate(spec: SourceSpec) -> str | None:
    """What is wrong with a URI, as a sentence."""
    return None if spec.uri.hosts or spec.uri.path else "A memory URI needs a name, such as memory://ticks."


def found_in(reader: StreamReader) -> Found:
    assert isinstance(reader, MemoryStream)
    return reader.found()


def make_known(reader: StreamReader, spec: SourceSpec) -> None:
    assert isinstance(reader, MemoryStream)
    reader.know(spec)


def open_stream(spec: SourceSpec, folder: Path) -> StreamReader:
    return MemoryStream(spec, folder)


PLUGIN = SourcePlugin(
    name="memory",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.APPEND,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET),
    local=True,
    counts_every_record=True,
    discover=lambda spec: Found(detail=UNFED),
    validate=validate,
    open_stream=open_stream,
    pace=("sample.rows", "max.rows.per.batch", "on.unknown.field"),
    found_in=found_in,
    make_known=make_known,
)
