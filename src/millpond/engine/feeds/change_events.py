"""Converts changes of a table to events: rows with their operation and the row before, or Debezium's envelope."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.change_stream import (
    BEFORE,
    LETTERS,
    OPERATION,
    ORIGIN,
    WORDS,
    is_enveloped,
    row_type,
    table_columns,
)
from millpond.contracts.changes import Changes, Operation
from millpond.contracts.source import BAD, HIDDEN_TIMESTAMP, RAW, SourceSpec
from millpond.schema import TIMESTAMP, Schema, fitted

Mask = npt.NDArray[np.bool_]


class ChangeEvents:
    """The events of one stream. `columns` are those of the table, `schema` those of the rows of its feed."""

    def __init__(self, spec: SourceSpec, connector: str) -> None:
        assert spec.columns is not None, "a source is read only when its columns are known"
        self._spec, self._connector = spec, connector
        self._is_enveloped = is_enveloped(spec.values)
        self.columns: Schema = table_columns(spec.columns, spec.values)
        self._row = row_type(self.columns)
        names = spec.columns.names
        made = {OPERATION: pa.string(), BEFORE: self._row, HIDDEN_TIMESTAMP.name: TIMESTAMP}
        hidden = [pa.field(name, type_) for name, type_ in made.items() if name not in names]
        if self._is_enveloped:
            hidden = [pa.field(HIDDEN_TIMESTAMP.name, TIMESTAMP)]
        own = [pa.field(column.name, column.type) for column in spec.columns]
        self.schema = pa.schema([*own, *hidden, pa.field(BAD, pa.string()), pa.field(RAW, pa.binary())])

    def of_snapshot(self, rows: pa.Table, at_us: int) -> pa.RecordBatch:
        """Rows of a snapshot that was taken at this time."""
        count = rows.num_rows
        operations = np.full(count, Operation.SNAPSHOT, np.int8)
        times = pa.repeat(pa.scalar(at_us, pa.int64()), count).cast(TIMESTAMP)
        nothing = pa.nulls(count, self._row)
        return self._made(rows, operations, nothing, times, pa.nulls(count, pa.int64()))

    def of_changes(self, changes: Changes) -> pa.RecordBatch:
        """Changes of the table, in their order."""
        operations = changes.operations.to_numpy(zero_copy_only=False)
        rows = fitted(pa.Table.from_batches([changes.rows]), self.columns, self._spec.shown)
        were, has_before = self._were(changes)
        rows = _with_kept(rows, were, changes.kept)
        deleted = pa.array(operations == Operation.DELETE)
        merged = {name: pc.if_else(deleted, rows[name], were[name]) for name in self.columns.names}
        before = self._struct(pa.table(merged), has_before | (operations == Operation.DELETE))
        times = pa.nulls(len(operations), TIMESTAMP) if changes.times is None else changes.times
        offsets = pa.nulls(len(operations), pa.int64()) if changes.offsets is None else changes.offsets
        marks = {name: pa.chunked_array([changes.rows.column(name)]) for name in _marks(changes.rows)}
        for name, values in marks.items():
            rows = rows.append_column(name, values)
        return self._made(rows, operations, before, times, offsets)

    def _were(self, changes: Changes) -> tuple[pa.Table, Mask]:
        """The rows before the changes, as far as they were sent, and for which changes there are any."""
        count = changes.rows.num_rows
        if changes.before is None:
            empty = {column.name: pa.nulls(count, column.type) for column in self.columns}
            return pa.table(empty), np.zeros(count, dtype=np.bool_)
        names = [field.name for field in changes.before.type]
        sent = pa.table(dict(zip(names, changes.before.flatten(), strict=True)))
        there = pc.is_valid(changes.before).to_numpy(zero_copy_only=False)
        return fitted(sent, self.columns, self._spec.shown), there

    def _struct(self, rows: pa.Table, there: Mask) -> pa.Array:
        arrays = [_whole(rows[name]) for name in self.columns.names]
        if not arrays:
            return pa.nulls(len(there), self._row)
        return pa.StructArray.from_arrays(arrays, fields=list(self._row or ()), mask=pa.array(~there))

    def _made(
        self,
        rows: pa.Table,
        operations: npt.NDArray[np.int8],
        before: pa.Array,
        times: pa.Array,
        offsets: pa.Array,
    ) -> pa.RecordBatch:
        found: dict[str, pa.Array] = {OPERATION: _words(operations, WORDS), BEFORE: before}
        if self._is_enveloped:
            found = self._envelope(rows, operations, before, times, offsets)
        else:
            found |= {name: _whole(rows[name]) for name in self.columns.names}
        if HIDDEN_TIMESTAMP.name not in found:
            found[HIDDEN_TIMESTAMP.name] = times
        for name in _marks(rows):
            found[name] = _whole(rows[name])
        count = len(operations)
        arrays = [found[f.name] if f.name in found else pa.nulls(count, f.type) for f in self.schema]
        if BAD in rows.column_names:
            arrays = self._without_values(arrays, pc.is_valid(_whole(rows[BAD])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _without_values(self, arrays: list[pa.Array], bad: pa.Array) -> list[pa.Array]:
        """In a bad record every column is NULL."""
        if not pc.any(bad).as_py():
            return arrays
        good = pc.invert(bad)
        columns = self._spec.columns
        assert columns is not None
        return [
            pc.if_else(good, array, pa.scalar(None, array.type)) if field.name in columns else array
            for array, field in zip(arrays, self.schema, strict=True)
        ]

    def _envelope(
        self,
        rows: pa.Table,
        operations: npt.NDArray[np.int8],
        before: pa.Array,
        times: pa.Array,
        offsets: pa.Array,
    ) -> dict[str, pa.Array]:
        count, values = len(operations), self._spec.values
        ts_ms = times.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        snapshot = pa.array(np.where(operations == Operation.SNAPSHOT, "true", "false"), pa.string())
        texts = (self._connector, values.get("database"), values.get("schema"), values.get("table"))
        origin = [*(pa.repeat(pa.scalar(text, pa.string()), count) for text in texts), ts_ms, snapshot, offsets]
        assert self._spec.columns is not None
        source = pa.StructArray.from_arrays(origin, fields=list(ORIGIN))
        made = {
            "before": before,
            "after": self._struct(rows, operations != Operation.DELETE),
            "op": _words(operations, LETTERS),
            "ts_ms": ts_ms,
            "source": source,
        }
        return {name: made[name].cast(c.type) for name in made if (c := self._spec.columns.get(name)) is not None}


def _marks(rows: pa.Table | pa.RecordBatch) -> list[str]:
    return [name for name in (BAD, RAW) if name in rows.schema.names]


def _words(operations: npt.NDArray[np.int8], words: Mapping[Operation, str]) -> pa.Array:
    listed = pa.array([words[operation] for operation in sorted(words)], pa.string())
    return listed.take(pa.array(operations))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _with_kept(rows: pa.Table, were: pa.Table, kept: Mapping[str, pa.Array]) -> pa.Table:
    """Values that were not sent because they are unchanged are those of the row before, as far as it was sent."""
    for name, mask in kept.items():
        place = rows.schema.get_field_index(name)
        if place >= 0:
            rows = rows.set_column(place, name, pc.if_else(mask, were[name], rows[name]))
    return rows
