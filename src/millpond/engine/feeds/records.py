"""Converts rows of a source to records: adds the columns that they lack, in Arrow and in Spark alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millpond.contracts.feeder import Polled, RowForm
from millpond.contracts.source import (
    BAD,
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    ORDER_MAJOR,
    ORDER_MINOR,
    RAW,
    SourceSpec,
)
from millpond.engine.spark.transfer import to_spark_type
from millpond.schema import Column

# Rows that are held to be converted together; the first limit that is reached counts.
HELD_ROWS = 65_536
HELD_BYTES = 8 << 20
ORDERED = (ORDER_MAJOR, ORDER_MINOR)


@dataclass(frozen=True)
class Shape:
    """The columns of a source's records, in order."""

    columns: tuple[Column, ...]
    shown: str

    @classmethod
    def of(cls, spec: SourceSpec, hidden: Iterable[Column]) -> Shape:
        assert spec.columns is not None, "a source is read only when its columns are known"
        marks = (Column(BAD, pa.string()), Column(RAW, pa.binary()))
        return cls((*spec.columns, *hidden, *(Column(name, pa.int64()) for name in ORDERED), *marks), spec.shown)

    def arrow(self, rows: pa.Table) -> pa.Table:
        """Rows as records."""
        return pa.Table.from_arrays([self._arrow(rows, c) for c in self.columns], names=[c.name for c in self.columns])

    def _arrow(self, rows: pa.Table, column: Column) -> Any:
        if column.name in rows.column_names:
            return rows[column.name]
        if column.name == HIDDEN_PARTITION.name and ORDER_MAJOR in rows.column_names:
            return rows[ORDER_MAJOR].cast(pa.string())
        if column.name == HIDDEN_OFFSET.name:
            return rows[ORDER_MINOR]
        return pa.repeat(pa.scalar(self._constant(column), column.type), rows.num_rows)

    def spark(self, rows: DataFrame) -> DataFrame:
        """The same in Spark."""
        return rows.select(*(self._spark(rows, column).alias(column.name) for column in self.columns))

    def _spark(self, rows: DataFrame, column: Column) -> Any:
        assert column.type is not None
        if column.name in rows.columns:
            return f.col(f"`{column.name.replace('`', '``')}`")
        if column.name == HIDDEN_PARTITION.name and ORDER_MAJOR in rows.columns:
            return f.col(ORDER_MAJOR).cast("string")
        if column.name == HIDDEN_OFFSET.name:
            return f.col(ORDER_MINOR)
        return f.lit(self._constant(column)).cast(to_spark_type(column.type))

    def _constant(self, column: Column) -> Any:
        """The value of a column in every record, if rows do not have it."""
        return {HIDDEN_SOURCE.name: self.shown, HIDDEN_PARTITION.name: "0", ORDER_MAJOR: 0}.get(column.name)


def fed_schema(form: RowForm) -> pa.Schema:
    """The columns of rows as they are stored: with their numbers."""
    if ORDER_MINOR in form.schema.names:
        return form.schema
    return form.schema.append(pa.field(ORDER_MINOR, pa.int64()))


class Numbering:
    """Numbers rows that have no number of their own, starting at `next`."""

    def __init__(self, form: RowForm, first: int = 0) -> None:
        self._schema = fed_schema(form)
        self._is_numbered = ORDER_MINOR in form.schema.names
        self.next = first

    def numbered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._is_numbered:
            return rows
        numbers = pa.array(np.arange(self.next, self.next + rows.num_rows, dtype=np.int64))
        self.next += rows.num_rows
        return pa.RecordBatch.from_arrays([*rows.columns, numbers], schema=self._schema)


class Gathering:
    """Takes parts and returns their rows in the same order, with whether they are raw; small ones are combined."""

    def __init__(self, form: RowForm) -> None:
        self._form = form
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self.rows = 0

    def add(self, part: Polled) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Take a part that has rows; returns those that are ready."""
        if not part.small:
            yield from self.all()
            yield part.rows, part.raw
            return
        self._held.append(part.rows)
        self.rows += part.rows.num_rows
        self._bytes += part.rows.nbytes
        if self.rows >= HELD_ROWS or self._bytes >= HELD_BYTES:
            yield from self.all()

    def all(self) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """The rows that are still held."""
        held, self._held, self.rows, self._bytes = self._held, [], 0, 0
        if held:
            yield from self._form.together(held)


class Decoder:
    """Converts parts of a source to records on the driver, in batches of bounded size and in stream order."""

    def __init__(self, form: RowForm, shape: Shape, to_spark: Callable[[pa.Table], DataFrame]) -> None:
        self._form, self._shape, self._to_spark = form, shape, to_spark

    def batches(self, parts: Iterable[Polled], rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
        """A batch ends with the part that reaches one of the limits, so parts should be smaller."""
        numbering, gathering = Numbering(self._form), Gathering(self._form)
        held: list[tuple[pa.RecordBatch, bool]] = []
        rows = size = 0
        for part in parts:
            if not part.rows.num_rows:
                continue
            for ready, raw in gathering.add(part):
                held.append((numbering.numbered(ready), raw))
                rows, size = rows + ready.num_rows, size + ready.nbytes
            if rows >= rows_max or size >= bytes_max:
                yield self._records(held)
                held, rows, size = [], 0, 0
        held += [(numbering.numbered(ready), raw) for ready, raw in gathering.all()]
        if held:
            yield self._records(held)

    def _records(self, held: list[tuple[pa.RecordBatch, bool]]) -> pa.Table:
        parsed, raw = ([rows for rows, is_raw in held if is_raw is wanted] for wanted in (False, True))
        found = [self._decoded(pa.Table.from_batches(rows), rows is raw) for rows in (parsed, raw) if rows]
        return found[0] if len(found) == 1 else _in_order(pa.concat_tables([found[0], found[1].cast(found[0].schema)]))

    def _decoded(self, rows: pa.Table, raw: bool) -> pa.Table:
        found = self._form.arrow_records(rows, raw=raw)
        if found is not None:
            return self._shape.arrow(found)
        return _in_order(self._shape.spark(self._form.records(self._to_spark(rows), raw=raw)).toArrow())


def _in_order(records: pa.Table) -> pa.Table:
    return records.sort_by([(name, "ascending") for name in ORDERED])
