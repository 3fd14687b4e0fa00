"""Rows picked by the values of some columns, where NULL equals NULL as it does among groups."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.table import ReadTable
from millpond.schema import Schema


def rows_with(table: ReadTable, columns: Sequence[str], values: pa.Table) -> pa.Table:
    """The rows of a table whose columns have one of these combinations of values, by index where there is one."""
    names = list(columns)
    wanted = values.rename_columns(names)
    has_null = nulls_in(wanted)
    found = table.lookup(wanted.filter(pc.invert(has_null)), by=names)
    if not pc.any(has_null).as_py():
        return found
    anywhere = " OR ".join(f"`{name.replace('`', '``')}` IS NULL" for name in names)
    others = table.find(anywhere)
    # A table whose own key may be NULL has found those already.
    known = found.filter(pc.invert(nulls_in(found.select(names))))
    return pa.concat_tables([known, among(others, names, wanted.filter(has_null))])


def nulls_in(rows: pa.Table) -> pa.ChunkedArray:
    """Where some column is NULL."""
    found = pc.is_null(rows.column(0))
    for column in rows.columns[1:]:
        found = pc.or_(found, pc.is_null(column))
    return found


def among(rows: pa.Table, columns: Sequence[str], values: pa.Table) -> pa.Table:
    """The rows whose columns have one of these combinations."""
    return rows.take(positions_among(rows, columns, values))


def positions_among(rows: pa.Table, columns: Sequence[str], values: pa.Table) -> pa.Array:
    """Which rows those are."""
    left = frame_of(rows.select(list(columns))).with_row_index("n")
    names = [c for c in left.columns if c != "n"]
    return left.join(frame_of(values), on=names, how="semi", nulls_equal=True)["n"].to_arrow()


def unique_rows(rows: pa.Table) -> pa.Table:
    """Each combination once."""
    frame = frame_of(rows).with_row_index("n")
    names = [c for c in frame.columns if c != "n"]
    return rows.take(frame.unique(subset=names, keep="first")["n"].to_arrow())


def joined_positions(left: pa.Table, right: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The pairs of rows whose columns are equal, by position, as numbers of rows; NULL equals nothing."""
    one, two = frame_of(left).with_row_index("l"), frame_of(right).with_row_index("r")
    names = [c for c in one.columns if c != "l"]
    pairs = one.join(two, on=names, how="inner", maintain_order="left_right")
    return pairs["l"].to_arrow(), pairs["r"].to_arrow()


def frame_of(rows: pa.Table) -> pl.DataFrame:
    """The same columns for polars, under names that cannot meet others."""
    numbered = rows.rename_columns([f"k{number}" for number in range(rows.num_columns)])
    frame = pl.from_arrow(numbered)
    assert isinstance(frame, pl.DataFrame)
    return frame


def conform(rows: pa.Table, schema: Schema) -> pa.Table:
    """Rows, by position, in a table's own columns and types; the values must fit."""
    return rows.rename_columns(list(schema.names)).cast(schema.arrow())
