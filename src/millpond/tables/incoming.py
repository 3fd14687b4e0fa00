"""Rows as a caller gives them, dicts or Arrow, as arrays of the table's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from millpond.contracts.table import ROWS_HINT, Rows, frame_as_arrow
from millpond.errors import BindError, TableError
from millpond.schema import Schema
from millpond.suggest import did_you_mean
from millpond.tables.casting import cast_array
from millpond.tables.coercion import to_array
from millpond.tables.index import Ids


@dataclass(frozen=True)
class Incoming:
    """Some columns of new rows, by their declared names."""

    columns: Mapping[str, pa.Array]
    rows: int

    def take(self, positions: Ids) -> Incoming:
        taken = pa.array(positions)
        return Incoming({name: c.take(taken) for name, c in self.columns.items()}, len(positions))

    def batch(self, schema: Schema, others: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """All columns: the given ones and others for the rest."""
        columns = {**others, **self.columns}
        # Whether NOT NULL holds is checked apart, with a message of its own.
        return pa.RecordBatch.from_arrays([columns[c.name] for c in schema], schema=schema.arrow())


def incoming(table: str, schema: Schema, rows: Rows) -> list[Incoming]:
    """The columns that rows have, in groups of rows with the same columns, in the order of the rows; MP202 for a
    column that the table has not, MP404 for a value that does not fit."""
    rows = frame_as_arrow(rows)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        names = _declared(table, schema, rows.schema.names)
        columns = {name: cast_array(rows.column(i), schema[name]) for i, name in enumerate(names)}
        return [Incoming(columns, rows.num_rows)]
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Sequence):
        raise TableError("MP409", f"Rows cannot be {type(rows).__name__}.", hint=ROWS_HINT)
    alike = _columns(rows)
    if alike is not None:
        return [_from_columns(table, schema, *alike, len(rows))]
    return [_from_dicts(table, schema, group) for group in _groups(rows)]


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[Sequence[Any]]] | None:
    """The names that all rows have and no others, and the values of each; None when they are no such dicts."""
    if set(map(type, rows)) != {dict} or len(set(map(len, rows))) > 1 or len(rows[0]) < 2:
        return None
    names = list(rows[0])
    try:
        return names, list(zip(*map(itemgetter(*names), rows), strict=True))
    except KeyError:
        return None


def _groups(rows: Sequence[Mapping[str, Any]]) -> list[Sequence[Mapping[str, Any]]]:
    """Rows that follow each other and have the same columns, together."""
    if not rows:
        return []
    for row in rows:
        if not isinstance(row, Mapping):
            raise TableError("MP409", f"A row cannot be {type(row).__name__}.", hint="Give each row as a dict.")
    first = rows[0].keys()
    if all(row.keys() == first for row in rows):
        return [rows]
    return [list(group) for _, group in groupby(rows, key=lambda row: frozenset(row))]


def _from_dicts(table: str, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> Incoming:
    given = list(rows[0])
    return _from_columns(table, schema, given, [[row[name] for row in rows] for name in given], len(rows))


def _from_columns(
    table: str, schema: Schema, given: Sequence[str], values: Sequence[Sequence[Any]], rows: int
) -> Incoming:
    names = _declared(table, schema, given)
    return Incoming({n: to_array(v, schema[n]) for n, v in zip(names, values, strict=True)}, rows)


def _declared(table: str, schema: Schema, given: Sequence[str]) -> list[str]:
    names = []
    for name in given:
        column = schema.get(name) if isinstance(name, str) else None
        if column is None:
            hint = did_you_mean(str(name), schema.names) or f"It has: {', '.join(schema.names)}."
            raise BindError("MP202", f"'{table}' has no column '{name}'.", hint=hint)
        if column.name in names:
            raise BindError("MP205", f"Column '{name}' of '{table}' is given twice.", hint="Keep one of them.")
        names.append(column.name)
    return names
