"""Rows of a table whose definition has got more columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.contracts.table import Store, TableSpec
from millpond.schema import Schema


def reshaped(rows: pa.Table, schema: Schema, values: Mapping[str, Any] | None = None) -> pa.Table:
    """Rows in the columns of a schema: those that they have by name, others with their value for old rows, or NULL."""
    there = {name.lower(): name for name in rows.column_names}
    columns = []
    for column in schema:
        if column.name.lower() in there:
            columns.append(rows[there[column.name.lower()]])
        else:
            value = (values or {}).get(column.name)
            columns.append(pa.repeat(pa.scalar(value, column.type), rows.num_rows))
    return pa.table(columns, schema=schema.arrow())


def ensure_columns(store: Store, spec: TableSpec) -> None:
    """Make a table, or give the one that is there the columns that it does not have yet."""
    there = {name.lower() for name in store.names()}
    if spec.name.lower() in there and store.table(spec.name).schema.names != spec.schema.names:
        store.reshape([(spec, reshaped(store.table(spec.name).to_arrow(), spec.schema))], {})
    store.create(spec)
