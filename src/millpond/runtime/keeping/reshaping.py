"""Rows of a table whose definition has got more columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.table import Store, TableSpec
from millpond.plan.aggregate_shape import AggregateShape
from millpond.runtime.aggregates.aggregate import positions
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


def reshaped_groups(rows: pa.Table, schema: Schema, before: AggregateShape, now: AggregateShape) -> pa.Table:
    """The groups of an aggregate in the columns of an edited one: what both keep, and nothing yet of what is new."""
    names = {text: name for name, text in before.accumulators.items()}
    columns = []
    for column in schema:
        text = now.accumulators.get(column.name)
        old = (column.name if column.name in rows.column_names else None) if text is None else names.get(text)
        columns.append(pa.nulls(rows.num_rows, column.type) if old is None else rows[old])
    return pa.table(columns, schema=schema.arrow())


def with_rows(rows: pa.Table, newer: pa.Table, schema: Schema) -> pa.Table:
    """Rows, those of them of which there is a newer one with the same key replaced."""
    if not schema.key:
        return newer
    found = positions(rows.select(list(schema.key)), newer)
    return pa.concat_tables([rows.filter(pc.is_null(found)), newer.take(found.drop_null())])


def ensure_columns(store: Store, spec: TableSpec) -> None:
    """Make a table, or give the one that is there the columns that it does not have yet."""
    there = {name.lower() for name in store.names()}
    if spec.name.lower() in there and store.table(spec.name).schema.names != spec.schema.names:
        store.reshape([(spec, reshaped(store.table(spec.name).to_arrow(), spec.schema))], {})
    store.create(spec)
