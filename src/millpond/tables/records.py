"""Commits as log records and back: rows as Arrow streams, everything else as JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from millpond import registry
from millpond.contracts.table import TableSpec
from millpond.schema import Check, Column, Schema
from millpond.tables.draft import Base, Draft
from millpond.tables.index import Ids
from millpond.tables.keys import Keys, key_columns
from millpond.tables.log import Record
from millpond.tables.rows import Prepared

Blob = memoryview | bytes
# A buffer of Arrow's, or bytes.
Piece: TypeAlias = Any

# Other options stay out of the log: they may hold secrets, and every start gives them anew. These are needed before:
# where the rows are, and how many of them recovery may have in memory.
_KEPT = ("path",)
_KEPT_WITH_SPILL = ("spill", "max_memory")
# Below this a stream is one piece: its bytes are copied faster than pieces are counted.
_PIECES_BYTES_MIN = 1024 * 1024
_RANK = pa.schema([pa.field("rank", pa.int64())])


def encode_change(
    table: int, before: Base, prepared: Prepared, codec: str | None = None
) -> tuple[dict[str, Any], list[Piece | list[Piece]]]:
    """A table's part of a commit: its entry in the header, and its two streams."""
    blobs = [to_stream(_gone(before, prepared.vanished), codec) if len(prepared.vanished) else pa.py_buffer(b"")]
    blobs.append(to_stream(prepared.added, codec) if prepared.added.num_rows else pa.py_buffer(b""))
    return {"table": table}, blobs


def _gone(before: Base, vanished: Ids) -> pa.RecordBatch:
    """Rows by their keys, or by their ranks in a table that has none."""
    if before.schema.key:
        names = pa.schema([before.schema.arrow().field(n) for n in before.schema.key])
        rows = before.table(vanished, [before.schema.position(n) for n in before.schema.key])
        return pa.RecordBatch.from_arrays([c.combine_chunks() for c in rows.columns], schema=names)
    # Row numbers change when the table is compacted; how many live rows come before a row does not.
    ranks = np.searchsorted(before.ids(), np.sort(vanished))
    return pa.RecordBatch.from_arrays([pa.array(ranks)], schema=_RANK)


def changes_of(record: Record) -> list[tuple[dict[str, Any], Blob, Blob]]:
    """The tables' parts of a commit: its entry, what is gone, what is new."""
    entries: Sequence[dict[str, Any]] = record.header.get("changes", ())
    return [(e, record.blobs[2 * i], record.blobs[2 * i + 1]) for i, e in enumerate(entries)]


def replayed(version: Base, gone: Blob, added: Blob) -> Draft:
    """The draft that a table's part of a commit stands for."""
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
    """A batch as an Arrow IPC stream, which says itself how it is compressed; a large one in the pieces in which it
    lies in memory, as copying them takes longer than anything else of a load."""
    whole = batch.nbytes < _PIECES_BYTES_MIN
    sink = pa.BufferOutputStream() if whole else _Pieces()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


class _Pieces:
    """What Arrow writes, piece by piece; buffers are taken as they are."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def write(self, piece: Piece) -> int:
        self._pieces.append(piece)
        return len(piece)

    def flush(self) -> None:
        """Nothing is held back."""

    def getvalue(self) -> list[Piece]:
        return self._pieces


def from_stream(data: Blob) -> pa.RecordBatch:
    """The batch of an Arrow IPC stream, sharing its memory."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()


def spec_as_json(spec: TableSpec) -> dict[str, Any]:
    """A table's definition for the log; of the options' values only those that its backend needs to find the rows."""
    schema = spec.schema
    wanted = (*_KEPT, *(_KEPT_WITH_SPILL if spec.values.get("spill") else ()))
    kept = [o.name for o in registry.find("backend", spec.backend).options if o.name in wanted and not o.secret]
    return {
        "name": spec.name,
        "arrow": base64.b64encode(schema.arrow().serialize()).decode(),
        "defaults": [c.default for c in schema],
        "key": list(schema.key),
        "checks": [[check.name, check.text] for check in schema.checks],
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
    )
