"""Operations on sets of rows: numbering, lookup by values, replacement, and equality of rows as codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.table import ReadTable, WriteTable
from millpond.expressions.failures import NotCompilable
from millpond.relational.codes import Numbers, group_codes, places_in
from millpond.schema import Schema
from millpond.tables.lookup_keys import Keys, last_of_each

# The number of a row in a table's content, for queries that return which rows they matched.
ROW_NUMBER = "__mp_row"


def numbered(rows: pa.Table) -> pa.Table:
    """The rows with their numbers as one more column."""
    return rows.append_column(ROW_NUMBER, pa.array(range(rows.num_rows), pa.int64()))


def with_columns(rows: pa.Table, new: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with some columns replaced by those of `new`, in the table's types."""
    for name in new.column_names:
        field = schema.field(name)
        rows = rows.set_column(schema.get_field_index(name), field, new[name].cast(field.type))
    return rows


def swap_rows(table: WriteTable, rows: pa.Table, positions: pa.ChunkedArray, new: pa.Table) -> int:
    """Replace the rows at `positions` of the content `rows` by `new`; a duplicate key is an error."""
    count = len(positions)
    key = [table.schema[name].name for name in table.schema.key]
    if key:
        table.delete(keys=rows.take(positions).select(key))
        if new.num_rows:
            table.insert(new)
        return count
    # Without a key rows can only be identified by position, so the whole content is replaced.
    everywhere = pa.array(range(rows.num_rows), pa.int64())
    keep = pc.invert(pc.is_in(everywhere, value_set=positions.combine_chunks()))
    table.replace(pa.concat_tables([rows.filter(keep), new]))
    return count


def rows_with(table: ReadTable, columns: Sequence[str], values: pa.Table) -> pa.Table:
    """The rows of a table whose columns have one of these combinations of values, by index if there is one."""
    names = list(columns)
    wanted = values.rename_columns(names)
    has_null = nulls_in(wanted)
    found = table.lookup(wanted.filter(pc.invert(has_null)), by=names)
    if not pc.any(has_null).as_py():
        return found
    # `lookup` finds no NULLs, but groups with NULL are equal here.
    anywhere = " OR ".join(f"`{name.replace('`', '``')}` IS NULL" for name in names)
    others = table.find(anywhere)
    # A table whose key may be NULL has found those already.
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
    """The positions of the rows whose columns have one of these combinations."""
    ours, theirs = shared_codes(rows.select(list(columns)), values)
    return pa.array(np.flatnonzero(np.isin(ours, theirs)))


def unique_rows(rows: pa.Table) -> pa.Table:
    """The distinct rows."""
    return rows.take(pa.array(key_codes(rows.columns, rows.num_rows)[1]))


def last_of_keys(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The last row of each combination of values, in order."""
    last = last_of_each(Keys(tuple(rows[name].combine_chunks() for name in names)))
    return rows if last is None else rows.take(pa.array(last))


def nth_of_keys(rows: pa.Table, names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows in parts: the first row of each combination of values, then the second of each, and so on."""
    codes, _ = key_codes([rows[name] for name in names], rows.num_rows)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    number = np.empty(len(codes), np.int64)
    number[order] = np.arange(len(codes)) - np.repeat(starts, np.diff(starts, append=len(codes)))
    for n in range(int(number.max(initial=-1)) + 1):
        yield rows.filter(pa.array(number == n))


def joined_positions(left: pa.Table, right: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The pairs of rows whose columns, by position, are equal, as row numbers; NULL equals nothing."""
    ours, theirs = shared_codes(left, right)
    known = np.flatnonzero(~nulls_in(right).to_numpy())
    order = known[np.argsort(theirs[known], kind="stable")]
    sorted_theirs = theirs[order]
    starts = np.searchsorted(sorted_theirs, ours, "left")
    counts = np.searchsorted(sorted_theirs, ours, "right") - starts
    lefts = np.repeat(np.arange(len(ours)), counts)
    within = np.arange(len(lefts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return pa.array(lefts), pa.array(order[np.repeat(starts, counts) + within])


def positions(wanted: pa.Table, held: pa.Table) -> pa.Array:
    """For each wanted row the number of the row of `held` with the same values, or NULL; `held` has each combination at
    most once, and NULL equals NULL."""
    if wanted.num_columns == 1:
        alone = places_in(wanted.column(0), held[wanted.column_names[0]])
        if alone is not None:
            return alone
    ours, theirs = shared_codes(wanted, held.select(wanted.column_names))
    places = np.full(int(max(ours.max(initial=-1), theirs.max(initial=-1))) + 1, -1, np.int64)
    places[theirs] = np.arange(len(theirs))
    found = places[ours]
    return pa.array(found, pa.int64(), mask=found < 0)


def shared_codes(left: pa.Table, right: pa.Table) -> tuple[Numbers, Numbers]:
    """The rows of two tables as codes, with columns by position: equal rows have equal codes, NULL equals NULL."""
    pairs = zip(left.columns, right.columns, strict=True)
    both = [pa.chunked_array([*ours.chunks, *theirs.chunks], ours.type) for ours, theirs in pairs]
    codes, _ = key_codes(both, left.num_rows + right.num_rows)
    return codes[: left.num_rows], codes[left.num_rows :]


def key_codes(columns: Sequence[pa.ChunkedArray], count: int) -> tuple[Numbers, Numbers]:
    """Rows of values as codes, and the first row of each code."""
    try:
        return group_codes(columns, count)
    except NotCompilable:
        # A type whose equality is not that of its bits, such as DOUBLE.
        known: dict[str, int] = {}
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        codes = np.array([known.setdefault(repr(_plain(row)), len(known)) for row in rows], np.int64)
        return codes, np.unique(codes, return_index=True)[1].astype(np.int64)


def _plain(row: tuple[object, ...]) -> tuple[object, ...]:
    """The row with -0.0 as 0.0, which are equal."""
    return tuple(value + 0.0 if isinstance(value, float) else value for value in row)


def conform(rows: pa.Table, schema: Schema) -> pa.Table:
    """Rows with, by position, a table's columns and types; all values must be castable. A NULL where none is allowed is
    left to the code that writes the rows."""
    types = pa.schema([field.with_nullable(True) for field in schema.arrow()])
    return rows.rename_columns(list(schema.names)).cast(types)
