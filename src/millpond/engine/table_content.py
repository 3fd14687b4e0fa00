"""The content of a table's source during a load: read in parts and converted to rows, never held as a whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.feeder import Polled, RowForm
from millpond.contracts.source import BAD, RAW, SourceSpec
from millpond.contracts.table import Transaction
from millpond.disk import disk_errors, make_folder, open_private
from millpond.engine.app_context import Context
from millpond.engine.dead_letters import Letters
from millpond.engine.feeds.records import Decoder, Shape
from millpond.engine.rejected_rows import as_text
from millpond.engine.row_sets import conform, last_of_keys
from millpond.engine.spark.transfer import Views
from millpond.engine.work import Work
from millpond.errors import SourceError
from millpond.plan.model import SourcePlan, TablePlan
from millpond.plan.plain_queries import plain_columns
from millpond.schema import Schema

# The size of a batch of rows that is written to a table at a time; the first limit that is reached counts.
ROWS_MAX = 250_000
BYTES_MAX = 64 << 20


@dataclass(frozen=True)
class LoadedRows:
    """Rows of a table with distinct keys, and the rest: records that could not be read, and rows without a key."""

    good: pa.Table
    bad: pa.Table
    keyless: pa.Table

    @property
    def count(self) -> int:
        return int(self.good.num_rows + self.bad.num_rows + self.keyless.num_rows)

    def reject(self, tx: Transaction, letters: Letters) -> None:
        """Store the records and rows that are left over as dead letters."""
        letters.add_bad_records(tx, self.bad)
        if self.keyless.num_rows:
            reasons = ["a key column is NULL"] * self.keyless.num_rows
            letters.add(tx, self.keyless, ["MP403"] * self.keyless.num_rows, reasons, as_text(self.keyless))


@dataclass
class LoadLimits:
    """The limits of one load, 'bulk.max.rows' and 'bulk.timeout'; MP509 if one is exceeded."""

    spec: SourceSpec
    clock: Callable[[], float] = time.monotonic
    rows: int = 0
    began: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def passed(self, parts: Iterator[Polled]) -> Iterator[Polled]:
        """The parts, checked against the limits as they are read."""
        for part in parts:
            self.rows += part.count
            most = self.spec.values.get("bulk.max.rows")
            if most is not None and self.rows > most:
                self._stop(f"'bulk.max.rows' is {most}", "bulk.max.rows")
            self.check_time()
            yield part

    def check_time(self) -> None:
        limit_us = self.spec.values.get("bulk.timeout")
        if limit_us is not None and self.clock() - self.began > limit_us / 1e6:
            self._stop(f"'bulk.timeout' is {limit_us / 1e6:g} s", "bulk.timeout")

    def _stop(self, why: str, option: str) -> None:
        message = f"Loading '{self.spec.shown}' was stopped after {self.rows} rows: {why}."
        raise SourceError("MP509", message, hint=f"Increase '{option}', or load fewer rows. The table was not changed.")


class ContentReader:
    """Converts the parts of a source to rows of one table."""

    def __init__(self, context: Context, plan: TablePlan, source: SourcePlan, views: Views) -> None:
        assert plan.query is not None
        self._context, self._query, self._views = context, plan.query, views
        self._schema: Schema = context.store.table(plan.name).schema
        self._shape = Shape.of(source.spec, source.hidden)
        self._rows_max: int = source.spec.values.get("batch.size") or ROWS_MAX

    def rows(self, form: RowForm, parts: Iterator[Polled]) -> Iterator[LoadedRows]:
        """The rows of the parts, in batches of bounded size."""
        decoder = Decoder(form, self._shape, self._context.in_spark)
        for records in decoder.batches(parts, self._rows_max, BYTES_MAX):
            is_bad = pc.is_valid(records[BAD])
            bad = records.filter(is_bad)
            good = records.filter(pc.invert(is_bad)) if bad.num_rows else records
            yield self._with_keys(LoadedRows(self._evaluated(good.drop_columns([BAD, RAW])), bad, pa.table({})))

    def _evaluated(self, records: pa.Table) -> pa.Table:
        """The result of the table's query over records in stream order: by Arrow if its result is the same, else by
        Spark. It reads nothing else, so no lock is held."""
        plain = plain_columns(self._query)
        if plain:
            return conform(records.select(list(plain.values())), self._schema)
        with self._context.store.begin() as tx:
            work = Work(self._context, tx, self._views)
            rows = work.on_driver(self._query, records)
            if rows is None:
                rows = work.ordered_rows(self._query, self._context.in_spark(records))
            tx.rollback()
        return conform(rows, self._schema)

    def _with_keys(self, rows: LoadedRows) -> LoadedRows:
        """The rows whose key has no NULL, the last one of each key."""
        key = [self._schema[name].name for name in self._schema.key]
        good = rows.good
        if not key or not good.num_rows:
            return rows
        null = pc.is_null(good[key[0]])
        for name in key[1:]:
            null = pc.or_(null, pc.is_null(good[name]))
        keyless = good.filter(null)
        if keyless.num_rows:
            good = good.filter(pc.invert(null))
        return replace(rows, good=last_of_keys(good, key), keyless=keyless)


class Spool:
    """Rows that are stored on disk, so that a table is not locked while its source is read; only the first batch stays
    in memory. Rejected records are kept beside them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._file = folder, folder / f"load-{name}.arrow"
        self._first: list[pa.Table] = []
        self.left_over: list[LoadedRows] = []

    def fill(self, batches: Iterator[LoadedRows]) -> None:
        """Store all rows."""
        for batch in batches:
            if self._first:
                self._write(self._passed(batches, batch))
            else:
                self._first.append(self._kept(batch))

    def _passed(self, batches: Iterator[LoadedRows], first: LoadedRows) -> Iterator[pa.Table]:
        yield self._kept(first)
        yield from map(self._kept, batches)

    def _kept(self, batch: LoadedRows) -> pa.Table:
        self.left_over.append(replace(batch, good=batch.good.slice(0, 0)))
        return batch.good

    def _write(self, rows: Iterator[pa.Table]) -> None:
        make_folder(self._folder)
        schema = self._first[0].schema
        with os.fdopen(open_private(self._file), "wb") as out, pa.ipc.new_stream(out, schema) as writer:
            for batch in rows:
                with disk_errors(self._file):
                    writer.write_table(batch)

    def rows(self) -> Iterator[pa.Table]:
        """All rows, one batch at a time."""
        yield from self._first
        if self._file.exists():
            with pa.OSFile(str(self._file)) as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch])

    def close(self) -> None:
        self._file.unlink(missing_ok=True)
