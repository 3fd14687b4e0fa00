"""Rows of a table put in the place of others."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.table import WriteTable

# The number of a row in a table's content, for queries that must say which rows they mean.
ROW_NUMBER = "__mp_row"


def numbered(rows: pa.Table) -> pa.Table:
    """The rows with their numbers as one more column."""
    return rows.append_column(ROW_NUMBER, pa.array(range(rows.num_rows), pa.int64()))


def with_columns(rows: pa.Table, new: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of `new` in the place of their own, in the table's types."""
    for name in new.column_names:
        field = schema.field(name)
        rows = rows.set_column(schema.get_field_index(name), field, new[name].cast(field.type))
    return rows


def swap_rows(table: WriteTable, rows: pa.Table, positions: pa.ChunkedArray, new: pa.Table) -> int:
    """Put `new` in the place of the rows at `positions` of the content `rows`; a collision of keys is an error."""
    count = len(positions)
    key = [table.schema[name].name for name in table.schema.key]
    if key:
        table.delete(keys=rows.take(positions).select(key))
        if new.num_rows:
            table.insert(new)
        return count
    everywhere = pa.array(range(rows.num_rows), pa.int64())
    keep = pc.invert(pc.is_in(everywhere, value_set=positions.combine_chunks()))
    table.replace(pa.concat_tables([rows.filter(keep), new]))
    return count
