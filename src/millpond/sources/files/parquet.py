"""Parquet files: their columns are cast to the declared ones, value by value only if a whole column cannot be cast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.contracts.source import BAD, RAW, SourceSpec
from millpond.errors import SourceError
from millpond.rendering import json_lines
from millpond.schema import Schema, type_name
from millpond.sources.files.contents import Chunk, Contents, Opening, TextContents
from millpond.sources.files.feed_records import PLACE, place_columns
from millpond.sources.files.listing import UNDETERMINED, Where, form_of
from millpond.sources.records.formats import check_header
from millpond.sources.records.text_reader import Tail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


BATCH_ROWS = 65_536
# The number of characters of an invalid value in a reason.
SHOWN_CHARACTERS = 100


class ParquetContents:
    """Parquet files; a feed has their records with the declared columns."""

    format = "parquet"
    separates_bad = False

    def __init__(self, columns: Schema, *, declared: bool = True) -> None:
        self._columns, self._declared = columns, declared
        self.headers: list[tuple[str, ...]] = []
        fields = [pa.field(c.name, c.type) for c in columns]
        self.schema = pa.schema([*fields, *PLACE, (BAD, pa.string()), (RAW, pa.binary())])

    def is_whole(self, path: Path) -> bool:
        return True

    def opening(self, path: Path, tail: Tail) -> Opening | None:
        names = footer(path, tail)
        if names is None:
            return None
        check_header(names.names, self._columns, path, declared=self._declared)
        return Opening("parquet", 0)

    def chunks(self, path: Path, opening: Opening, tail: Tail, major: int) -> Iterator[Chunk]:
        with pq.ParquetFile(path) as file:
            names = [_matching(c.name, file.schema_arrow.names) for c in self._columns]
            row = 0
            for batch in file.iter_batches(BATCH_ROWS, columns=[name for name in names if name is not None]):
                skipped = min(max(opening.start - row, 0), batch.num_rows)
                row += batch.num_rows
                if skipped < batch.num_rows:
                    rows = _all_of(names, batch.slice(skipped))
                    yield Chunk(self._fitted(rows, opening.source or str(path), major, row), row)

    def _fitted(self, batch: pa.RecordBatch, source: str, major: int, end: int) -> pa.RecordBatch:
        rows = batch.num_rows
        # Few rows, if any, are invalid: their reasons are kept by row number.
        reasons: dict[int, str] = {}
        columns = [
            fitted(array, column.type, column.name, reasons)
            for array, column in zip(batch.columns, self._columns, strict=True)
        ]
        tail: list[pa.Array] = [pa.nulls(rows, pa.string()), pa.nulls(rows, pa.binary())]
        if reasons:
            columns = [_null_where(array, reasons) for array in columns]
            raw = [_row_text(batch, i) if i in reasons else None for i in range(rows)]
            tail = [pa.array([reasons.get(i) for i in range(rows)], pa.string()), pa.array(raw, pa.binary())]
        places = place_columns(source, major, pa.array(np.arange(end - rows, end)))
        return pa.RecordBatch.from_arrays([*columns, *places, *tail], schema=self.schema)

    def parsed_together(self, small: Sequence[pa.RecordBatch]) -> Iterator[Chunk]:
        assert not small, "Parquet files bring their columns"
        yield from ()

    def records(self, fed: DataFrame, text: bool) -> DataFrame:
        return fed

    def arrow_records(self, fed: pa.Table, text: bool) -> pa.Table | None:
        return fed


def footer(path: Path, tail: Tail) -> pa.Schema | None:
    """The schema at the end of a Parquet file; None while it may still be written. MP502 if it is not Parquet."""
    try:
        return pq.read_schema(path)
    except pa.ArrowInvalid as error:
        if tail is Tail.LEAVE:
            return None
        message = f"'{path}' is not a Parquet file: {str(error).splitlines()[0]}"
        raise SourceError("MP502", message, hint="Write it again, or set the format WITH ('format' = ...).") from error


def _matching(name: str, names: list[str]) -> str | None:
    return name if name in names else next((other for other in names if other.lower() == name.lower()), None)


def _all_of(names: list[str | None], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of these names, in this order; NULLs if the file has none."""
    absent = pa.nulls(batch.num_rows)
    arrays = [absent if name is None else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=[name or f"_{place}" for place, name in enumerate(names)])


def fitted(array: pa.Array, type_: pa.DataType, name: str, reasons: dict[int, str]) -> pa.Array:
    """A column in the declared type; a value that cannot be cast adds a reason to its row."""
    if array.type == type_:
        return array
    try:
        return array.cast(type_, safe=not (pa.types.is_timestamp(array.type) and pa.types.is_timestamp(type_)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = array.to_pylist()
    found = []
    for row, value in enumerate(values):
        scalar = None if value is None else _fitted_value(value, type_)
        if value is not None and scalar is None:
            article = "an" if type_name(type_)[0] in "AEIOU" else "a"
            shown = str(value)[:SHOWN_CHARACTERS]
            reasons.setdefault(row, f"column '{name}': '{shown}' is not {article} {type_name(type_)}")
        found.append(scalar)
    return pa.array(found, type_)


def _fitted_value(value: Any, type_: pa.DataType) -> Any:
    """One value in a type, decimals rounded half up; None if it cannot be cast."""
    try:
        if pa.types.is_decimal(type_):
            value = Decimal(str(value)).quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP)
            return pa.scalar(value, type_).as_py()
        return pa.scalar(value).cast(type_).as_py()
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        return None


def _null_where(array: pa.Array, reasons: Mapping[int, str]) -> pa.Array:
    return pa.array([None if i in reasons else value for i, value in enumerate(array.to_pylist())], array.type)


def _row_text(batch: pa.RecordBatch, row: int) -> bytes:
    return next(json_lines(batch.slice(row, 1))).encode()


def contents_of(spec: SourceSpec, where: Where, known: str | None = None) -> Contents:
    """The contents of a source; `known` is its previous format, which is used if its files were removed. A source whose
    columns are not known yet may be opened, to check whether it exists, but not read."""
    form, columns = form_of(spec, where, known), spec.columns or Schema(())
    kind = {"declared": spec.declared}
    return ParquetContents(columns, **kind) if form.name == "parquet" else TextContents(form, columns, **kind)


def settled(contents: Contents, spec: SourceSpec, where: Where) -> Contents:
    """The contents, once files exist that show their format."""
    if contents.format != UNDETERMINED or not isinstance(contents, TextContents):
        return contents
    form = form_of(spec, where)
    if form.name == "parquet":
        message = f"The first file of '{spec.shown}' is Parquet, which could not be determined at the start."
        raise SourceError("MP508", message, hint="Set the format: WITH ('format' = 'parquet').")
    contents.form = form
    return contents
