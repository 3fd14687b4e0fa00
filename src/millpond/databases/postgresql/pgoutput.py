"""The messages of pgoutput, PostgreSQL's decoder of changes, made into rows of Arrow."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.contracts.changes import Changes, Operation
from millpond.contracts.source import BAD, RAW
from millpond.databases.driver_values import Reasons
from millpond.databases.postgresql.types import PgType, from_texts
from millpond.schema import TIMESTAMP, Column, Schema

EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_SHORT, _INT, _LONG = struct.Struct(">H").unpack_from, struct.Struct(">i").unpack_from, struct.Struct(">Q").unpack_from
_NULL, _UNCHANGED = ord("n"), ord("u")


class Unchanged:
    """In place of a value that is not sent, because it is stored apart and has not changed."""


UNCHANGED = Unchanged()
Value = bytes | None | Unchanged


@dataclass(frozen=True)
class Relation:
    """A table as the server describes it before its changes; `key` are the columns of its replica identity."""

    schema: str
    table: str
    columns: tuple[tuple[str, int, int], ...]
    key: tuple[str, ...]
    is_full: bool


def relation(message: memoryview) -> tuple[int, Relation]:
    """The number and the description of a table."""
    (number,) = _INT(message, 1)
    schema, at = _text(message, 5)
    table, at = _text(message, at)
    is_full = message[at] == ord("f")
    (count,) = _SHORT(message, at + 1)
    at += 3
    columns, key = [], []
    for _ in range(count):
        is_key = message[at] & 1
        name, at = _text(message, at + 1)
        oid, modifier = struct.unpack_from(">Ii", message, at)
        at += 8
        columns.append((name, oid, modifier))
        if is_key:
            key.append(name)
    return number, Relation(schema, table, tuple(columns), tuple(key), is_full)


def _text(message: memoryview, at: int) -> tuple[str, int]:
    end = at
    while message[end]:
        end += 1
    return bytes(message[at:end]).decode(), end + 1


def _tuple(message: memoryview, at: int) -> tuple[list[Value], int]:
    (count,) = _SHORT(message, at)
    at += 2
    found: list[Value] = []
    for _ in range(count):
        kind = message[at]
        if kind == _NULL:
            found.append(None)
            at += 1
        elif kind == _UNCHANGED:
            found.append(UNCHANGED)
            at += 1
        else:
            (size,) = _INT(message, at + 1)
            at += 5
            found.append(bytes(message[at : at + size]))
            at += size
    return found, at


@dataclass
class RelationRows:
    """Changes of one table that were decoded and are not returned yet."""

    relation: Relation
    types: dict[str, PgType]
    operations: list[int] = field(default_factory=list)
    rows: list[list[Value]] = field(default_factory=list)
    before: list[list[Value] | None] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, message: memoryview, committed_us: int, lsn: int) -> None:
        """An insert, update or delete of a transaction."""
        kind, at, old = message[0], 5, None
        if kind == ord("I"):
            new, _ = _tuple(message, at + 1)
            operation = Operation.INSERT
        elif kind == ord("D"):
            new, _ = _tuple(message, at + 1)
            operation = Operation.DELETE
        else:
            if message[at] != ord("N"):
                old, at = _tuple(message, at + 1)
            new, _ = _tuple(message, at + 1)
            operation = Operation.UPDATE
        self.operations.append(operation)
        self.rows.append(new)
        self.before.append(old)
        self.times.append(committed_us)
        self.offsets.append(lsn)

    def changes(self, table: str, zone: str) -> Changes:
        """What was decoded, in the columns of the server's table."""
        reasons: Reasons = {}
        columns = self._columns(self.rows, zone, reasons)
        deleted = {row for row, operation in enumerate(self.operations) if operation == Operation.DELETE}
        # A row that is gone is known by its key; its other values need not fit.
        key = set(self.relation.key)
        reasons = {row: why for row, why in reasons.items() if row not in deleted or self._names_key(why, key)}
        bad = pa.array([reasons.get(row) for row in range(len(self.rows))], pa.string())
        raw = pa.array([self._raw(row) if row in reasons else None for row in range(len(self.rows))], pa.binary())
        rows = pa.RecordBatch.from_arrays([*columns, bad, raw], names=[*self.types, BAD, RAW])
        return Changes(
            table,
            rows,
            pa.array(self.operations, pa.int8()),
            self._before(zone),
            dict(self._kept()),
            pa.array(self.times, pa.int64()).cast(TIMESTAMP),
            pa.array(self.offsets, pa.int64()),
        )

    def _names_key(self, why: str, key: set[str]) -> bool:
        return any(f"'{name}'" in why for name in key)

    def _raw(self, row: int) -> bytes:
        values = zip(self.types, self.rows[row], strict=True)
        shown = (f"{n}={v.decode('utf-8', 'replace') if isinstance(v, bytes) else ''}" for n, v in values)
        return ", ".join(shown).encode()

    def _columns(self, rows: Sequence[Sequence[Value]], zone: str, reasons: Reasons) -> list[pa.Array]:
        found = []
        for n, (name, type_) in enumerate(self.types.items()):
            values = [v if isinstance((v := row[n]), bytes) else None for row in rows]
            found.append(from_texts(pa.array(values, pa.binary()).cast(pa.string()), type_, name, reasons, zone))
        return found

    def _before(self, zone: str) -> pa.StructArray | None:
        """Rows as they were, where the server has sent them."""
        there = [row for row, old in enumerate(self.before) if old is not None]
        if not there:
            return None
        columns = self._columns([old for old in self.before if old is not None], zone, {})
        names = list(self.types)
        if not self.relation.is_full:
            chosen = [n for n, name in enumerate(names) if name in self.relation.key]
            columns, names = [columns[n] for n in chosen], [names[n] for n in chosen]
        were = pa.StructArray.from_arrays(columns, names=names)
        places = [None] * len(self.rows)
        indices: list[int | None] = list(places)
        for position, row in enumerate(there):
            indices[row] = position
        return were.take(pa.array(indices, pa.int64()))

    def _kept(self) -> Iterator[tuple[str, pa.Array]]:
        for n, name in enumerate(self.types):
            mask = [isinstance(row[n], Unchanged) for row in self.rows]
            if any(mask):
                yield name, pa.array(mask)

    def clear(self) -> None:
        self.operations, self.rows, self.before, self.times, self.offsets = [], [], [], [], []


def commit_end(message: memoryview) -> int:
    """Where the log goes on behind a transaction."""
    (end,) = _LONG(message, 10)
    return int(end)


def commit_lsn(message: memoryview) -> int:
    """Where the transaction that begins is committed in the log."""
    (lsn,) = _LONG(message, 1)
    return int(lsn)


def committed_us(message: memoryview) -> int:
    """When the transaction that begins was committed, in microseconds since 1970."""
    (since_us,) = struct.unpack_from(">q", message, 9)
    return int(since_us) + int(EPOCH.timestamp()) * 1_000_000


def truncated(message: memoryview) -> list[int]:
    """The numbers of the tables that were emptied."""
    (count,) = _INT(message, 1)
    return [_INT(message, 6 + 4 * n)[0] for n in range(count)]


def columns_of(types: dict[str, PgType], key: Sequence[str]) -> Schema:
    """The columns of a table as Arrow has them."""
    return Schema.of([Column(name, type_.arrow) for name, type_ in types.items()], key)


# The types of a relation; types that are not known yet are read from the server.
Typed = Callable[[Relation], dict[str, PgType]]
