"""Encoding of commits as log records and back: rows as Arrow streams, everything else as JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from millpond import registry
from millpond.contracts.remote_table import RowChange
from millpond.contracts.table import TableSpec
from millpond.schema import Check, Column, Schema
from millpond.tables.backend import Prepared
from millpond.tables.commit_log import Record
from millpond.tables.draft import Base, Draft
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import Keys, key_columns

Blob = memoryview | bytes
# An Arrow buffer, or bytes.
Piece: TypeAlias = Any

# Other options are not logged: they may contain secrets, and every start sets them again. These are needed for
# recovery: where the rows are, and how many of them may be in memory.
_KEPT = ("path",)
_KEPT_WITH_SPILL = ("spill", "max_memory")
# Smaller streams are one buffer: copying the bytes is faster than handling several buffers.
_PIECES_BYTES_MIN = 1024 * 1024
# In the entry of a table on a server: its part of the record is by key, also of a table that has none.
NEXT_ROW = "next_row"
_RANK = pa.schema([pa.field("rank", pa.int64())])


def encode_change(
    table: int, before: Base, prepared: Prepared, codec: str | None = None
) -> tuple[dict[str, Any], list[Piece | list[Piece]]]:
    """A table's part of a commit: its entry in the header, and its two streams."""
    blobs = [to_stream(_gone(before, prepared.vanished), codec) if len(prepared.vanished) else pa.py_buffer(b"")]
    blobs.append(to_stream(prepared.added, codec) if prepared.added.num_rows else pa.py_buffer(b""))
    return {"table": table}, blobs


def encode_by_key(table: int, change: RowChange) -> tuple[dict[str, Any], list[Piece | list[Piece]]]:
    """The same of a table on a server: with its mark, because the server may have the change at recovery."""
    blobs = [to_stream(rows) if rows.num_rows else pa.py_buffer(b"") for rows in (change.deletes, change.upserts)]
    return {"table": table, "version": change.mark.number, NEXT_ROW: change.mark.next_row}, blobs


def redo_by_key(rows: Any, entry: dict[str, Any], gone: Blob, added: Blob) -> None:
    """Give the rows of a table on a server a change that the server may lack."""
    deletes, upserts = (from_stream(blob) if len(blob) else None for blob in (gone, added))
    rows.redo(entry["version"], deletes, upserts, entry[NEXT_ROW])


def _gone(before: Base, vanished: Ids) -> pa.RecordBatch:
    """The removed rows by their keys, or by their ranks in a table without key."""
    if before.schema.key:
        names = pa.schema([before.schema.arrow().field(n) for n in before.schema.key])
        rows = before.table(vanished, [before.schema.position(n) for n in before.schema.key])
        return pa.RecordBatch.from_arrays([c.combine_chunks() for c in rows.columns], schema=names)
    # Row numbers change when the table is compacted; the rank of a row among the live ones does not.
    ranks = np.searchsorted(before.ids(), np.sort(vanished))
    return pa.RecordBatch.from_arrays([pa.array(ranks)], schema=_RANK)


def changes_of(record: Record) -> list[tuple[dict[str, Any], Blob, Blob]]:
    """The parts of a commit, one for each table: its entry, the removed rows, the added rows."""
    entries: Sequence[dict[str, Any]] = record.header.get("changes", ())
    return [(e, record.blobs[2 * i], record.blobs[2 * i + 1]) for i, e in enumerate(entries)]


def replayed(version: Base, gone: Blob, added: Blob) -> Draft:
    """The draft of a table's part of a commit."""
    draft = Draft(version)
    removed = _gone_rows(version, from_stream(gone)) if len(gone) else np.empty(0, dtype=np.int64)
    empty = pa.RecordBatch.from_arrays([pa.array([], c.type) for c in version.schema], schema=version.schema.arrow())
    batch = from_stream(added) if len(added) else empty
    keys = key_columns(version.schema, batch) if version.schema.key else None
    if keys is not None and batch.num_rows:
        there = version.locate(keys)
        removed = np.concatenate([removed, there[there >= 0]])
    draft.change(removed, batch, keys)
    return draft


def draft_of(version: Base, rows: pa.Table) -> Draft:
    """The draft that fills an empty table with rows of its columns."""
    draft = Draft(version)
    if rows.num_rows:
        whole = rows.select(list(version.schema.names)).cast(version.schema.arrow()).combine_chunks()
        batch = whole.to_batches()[0]
        keys = key_columns(version.schema, batch) if version.schema.key else None
        draft.change(np.empty(0, dtype=np.int64), batch, keys)
    return draft


def _gone_rows(version: Base, gone: pa.RecordBatch) -> Ids:
    if not version.schema.key:
        ranks: Ids = gone.column(0).to_numpy()
        return version.ids()[ranks]
    rows = version.locate(Keys(tuple(gone.columns)))
    return rows[rows >= 0]


def to_stream(batch: pa.RecordBatch, codec: str | None = None) -> Piece | list[Piece]:
    """A batch as an Arrow IPC stream, which contains its compression; a large one as a list of its buffers in memory,
    because copying them takes longer than anything else of a load."""
    whole = batch.nbytes < _PIECES_BYTES_MIN
    sink = pa.BufferOutputStream() if whole else _Pieces()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


class _Pieces:
    """A file object that collects the buffers that Arrow writes, without copying them."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def write(self, piece: Piece) -> int:
        self._pieces.append(piece)
        return len(piece)

    def flush(self) -> None:
        """Required by Arrow; nothing is buffered."""

    def getvalue(self) -> list[Piece]:
        return self._pieces


def from_stream(data: Blob) -> pa.RecordBatch:
    """The batch of an Arrow IPC stream, sharing its memory."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()


def spec_as_json(spec: TableSpec) -> dict[str, Any]:
    """A table's definition for the log, with only those option values that its backend needs to find the rows."""
    schema = spec.schema
    wanted = (*_KEPT, *(_KEPT_WITH_SPILL if spec.values.get("spill") else ()))
    kept = [o.name for o in registry.find("backend", spec.backend).options if o.name in wanted and not o.secret]
    return {
        "name": spec.name,
        "arrow": base64.b64encode(schema.arrow().serialize()).decode(),
        "defaults": [c.default for c in schema],
        "key": list(schema.key),
        "checks": [[c.name, c.text, *([c.written] if c.written else [])] for c in schema.checks],
        "backend": spec.backend,
        "indexes": [list(i) for i in spec.indexes],
        "null_keys": spec.null_keys,
        "hidden": spec.hidden,
        "values": {n: spec.values[n] for n in kept if spec.values.get(n) is not None},
    }


def spec_from_json(value: dict[str, Any]) -> TableSpec:
    """The definition that `spec_as_json` wrote."""
    arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["arrow"])))
    columns = [Column(f.name, f.type, f.nullable, default) for f, default in zip(arrow, value["defaults"], strict=True)]
    return TableSpec(
        name=value["name"],
        schema=Schema(tuple(columns), tuple(value["key"]), tuple(Check(*c) for c in value.get("checks", ()))),
        backend=value["backend"],
        values=value.get("values", {}),
        indexes=tuple(tuple(i) for i in value["indexes"]),
        null_keys=value["null_keys"],
        hidden=value["hidden"],
        recovered=True,
    )
