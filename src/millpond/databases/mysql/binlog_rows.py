"""Rows of the binary log: the description of a table before its rows, and the rows decoded column by column."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.contracts.changes import POSITION_GONE, Changes, Operation
from millpond.contracts.source import BAD, RAW
from millpond.databases.driver_values import Reasons
from millpond.databases.mysql.binlog import COMPRESSED, DELETES, INSERTS, SECOND_FORM, Event, inflated, not_possible
from millpond.databases.mysql.binlog_columns import (
    BLOB,
    CHARACTERS,
    CHARACTERS_OF_MARIADB,
    DATETIME2,
    ENUM,
    GEOMETRY,
    NUMBERS,
    SET,
    STAMP2,
    STRING,
    TIME2,
    VAR_STRING,
    VARCHAR,
    BinlogColumn,
    Reader,
    array_of,
    reader_of,
)
from millpond.databases.mysql.connection import BINARY, BIT, DOUBLE, FLOAT, JSON, NEWDECIMAL
from millpond.errors import SourceError
from millpond.schema import TIMESTAMP, Column, Schema

TWO_BYTES, ONE_BYTE = (
    (VARCHAR, VAR_STRING, BIT, NEWDECIMAL, STRING, ENUM, SET),
    (FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, STAMP2, DATETIME2, TIME2),
)
# What MySQL and MariaDB add behind the types of the columns, if 'binlog_row_metadata' is FULL.
SIGNS, CHARSET, CHARSETS, NAMES, SET_VALUES, ENUM_VALUES = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class CatalogColumn:
    """A column as the catalog has it now."""

    name: str
    kind: str
    text: str
    charset: str | None

    @property
    def values(self) -> tuple[str, ...]:
        """The values of an ENUM or SET."""
        return tuple(found.replace("''", "'") for found in re.findall(r"'((?:[^']|'')*)'", self.text))


@dataclass(frozen=True)
class TableMap:
    """A table as the log describes it before its rows: its name, the types of its columns and what is added to them."""

    database: str
    table: str
    types: tuple[tuple[int, int], ...]
    extras: Mapping[int, bytes]

    def columns(
        self, catalog: Sequence[CatalogColumn], charsets: Mapping[int, str], *, is_mariadb: bool
    ) -> list[BinlogColumn] | None:
        """Its columns; None if the log has no names and the catalog has other columns."""
        names = self._names()
        if names is None and len(catalog) != len(self.types):
            return None
        known = {column.name: column for column in catalog}
        listed = CHARACTERS_OF_MARIADB if is_mariadb else CHARACTERS
        signs, sets = iter(self._signs()), iter(self._charsets(listed))
        values = {ENUM: iter(self._values(ENUM_VALUES)), SET: iter(self._values(SET_VALUES))}
        found = []
        for n, (code, meta) in enumerate(self.types):
            now = known.get(names[n]) if names is not None else catalog[n]
            unsigned = next(signs, None) if code in NUMBERS else None
            collation = next(sets, None) if code in listed else None
            charset = charsets.get(collation, "utf8mb4") if collation is not None else now.charset if now else None
            given = next(values[code], None) if code in values else None
            found.append(
                BinlogColumn(
                    names[n] if names is not None else catalog[n].name,
                    code,
                    meta,
                    "unsigned" in now.text if unsigned is None and now else bool(unsigned),
                    None if collation == BINARY or charset == "binary" else charset,
                    given if given is not None else now.values if now else (),
                    now.kind if now else "",
                )
            )
        return found

    def _names(self) -> list[str] | None:
        data = self.extras.get(NAMES)
        return None if data is None else [name.decode() for name in _texts(data)]

    def _signs(self) -> list[bool]:
        """Whether each column of numbers is unsigned."""
        return [bool(byte >> bit & 1) for byte in self.extras.get(SIGNS, b"") for bit in range(7, -1, -1)]

    def _charsets(self, listed: Collection[int]) -> list[int]:
        """The number of the collation of each column whose type is `listed`."""
        if CHARSETS in self.extras:
            return _numbers(self.extras[CHARSETS])
        if CHARSET not in self.extras:
            return []
        default, *others = _numbers(self.extras[CHARSET])
        given = dict(zip(others[::2], others[1::2], strict=True))
        return [given.get(n, default) for n in range(sum(code in listed for code, _ in self.types))]

    def _values(self, kind: int) -> list[tuple[str, ...]]:
        data, at, found = self.extras.get(kind, b""), 0, []
        while at < len(data):
            count, at = _number(data, at)
            texts = []
            for _ in range(count):
                size, at = _number(data, at)
                texts.append(data[at : at + size].decode("utf-8", "replace"))
                at += size
            found.append(tuple(texts))
        return found


def table_map(body: memoryview) -> tuple[int, TableMap]:
    """The number and the description of a table."""
    data = bytes(body)
    number = int.from_bytes(data[:6], "little")
    at = 9 + data[8]
    database = data[9:at].decode()
    table = data[at + 2 : at + 2 + data[at + 1]].decode()
    count, at = _number(data, at + 3 + data[at + 1])
    codes = data[at : at + count]
    size, at = _number(data, at + count)
    types = _types(codes, data[at : at + size])
    at += size + (count + 7) // 8
    extras = {}
    while at < len(data):
        kind = data[at]
        size, at = _number(data, at + 1)
        extras[kind] = data[at : at + size]
        at += size
    return number, TableMap(database, table, types, extras)


def _types(codes: bytes, meta: bytes) -> tuple[tuple[int, int], ...]:
    """The type of each column and what belongs to it: a length, the digits, or the bytes of a length."""
    found, at = [], 0
    for code in codes:
        size = 2 if code in TWO_BYTES else 1 if code in ONE_BYTE else 0
        value = int.from_bytes(meta[at : at + size], "little")
        at += size
        if code == STRING:
            # The first byte is the real type, with two bits of a long length inverted in it; the second the length.
            high, low = value & 0xFF, value >> 8
            long = high & 0x30 != 0x30
            code, value = (high | 0x30, low | ((high & 0x30) ^ 0x30) << 4) if long else (high, low)
        found.append((code, value))
    return tuple(found)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _numbers(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = _number(data, at)
        found.append(number)
    return found


def _texts(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size, at = _number(data, at)
        found.append(data[at : at + size])
        at += size
    return found


# Reads one value, and where it is put.
Slot = tuple[Reader, Callable[[Any], None]]


@dataclass
class TableRows:
    """Changes of one table that were decoded and are not returned yet."""

    map: TableMap
    columns: list[BinlogColumn]
    operations: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    rows: list[list[Any]] = field(init=False)
    before: list[list[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self._readers = [self._reader(column) for column in self.columns]
        self._mask = (len(self.columns) + 7) // 8
        self.clear()

    def _reader(self, column: BinlogColumn) -> Reader:
        found = reader_of(column)
        if found is None:
            message = f"Changes of the table '{self.map.table}' cannot be captured: the type of its column"
            hint = "Poll the table instead, with 'poll.interval'."
            raise not_possible(f"{message} '{column.name}' is not supported.", hint)
        return found

    def clear(self) -> None:
        self.operations, self.times = [], []
        self.rows, self.before = ([[] for _ in self.columns] for _ in range(2))
        self._after_slots = self._slots(self.rows)
        self._before_slots = self._slots(self.before)

    def _slots(self, columns: list[list[Any]]) -> list[Slot]:
        return [(read, values.append) for read, values in zip(self._readers, columns, strict=True)]

    def add(self, event: Event, committed_us: int) -> int:
        """The rows of an event; returns how many."""
        data, at = bytes(event.body), 8
        if event.kind in SECOND_FORM:
            at += int.from_bytes(data[8:10], "little")
        count, at = _number(data, at)
        is_update = event.kind not in INSERTS and event.kind not in DELETES
        for _ in range(2 if is_update else 1):
            self._require_all(data[at : at + self._mask], count)
            at += self._mask
        if event.kind in COMPRESSED:
            data, at = inflated(memoryview(data)[at:]), 0
        known = len(self.operations)
        operation = Operation.INSERT if event.kind in INSERTS else Operation.DELETE
        while at < len(data):
            if is_update:
                operation = Operation.UPDATE
                at = self._decode(data, at, self._before_slots)
            at = self._decode(data, at, self._after_slots)
            self.operations.append(operation)
        found = len(self.operations) - known
        self.times.extend([committed_us] * found)
        return found

    def _require_all(self, present: bytes, count: int) -> None:
        """MP513 where the log has only a part of the rows, which a session can choose."""
        if count != len(self.columns) or int.from_bytes(present, "little").bit_count() < count:
            message = f"Changes of the table '{self.map.table}' are not whole in the log: a session has written them"
            raise SourceError(POSITION_GONE, f"{message} with another binlog_row_image than FULL.")

    def _decode(self, data: bytes, at: int, slots: list[Slot]) -> int:
        end = at + self._mask
        nulls = int.from_bytes(data[at:end], "little")
        at = end
        if not nulls:
            for read, put in slots:
                value, at = read(data, at)
                put(value)
            return at
        for read, put in slots:
            if nulls & 1:
                put(None)
            else:
                value, at = read(data, at)
                put(value)
            nulls >>= 1
        return at

    def changes(self, table: str, zone: str, first_offset: int, key: Sequence[str]) -> Changes:
        """What was decoded, in the columns of the server's table."""
        reasons: Reasons = {}
        arrays = [array_of(c, values, zone, reasons) for c, values in zip(self.columns, self.rows, strict=True)]
        count = len(self.operations)
        # A row that is gone is identified by its key; its other values need not fit.
        whys = [None if why is not None and self._is_gone(row, why, key) else why for row, why in self._each(reasons)]
        raw = [self._raw(row) if why is not None else None for row, why in enumerate(whys)]
        names = [column.name for column in self.columns]
        rows = pa.RecordBatch.from_arrays(
            [*arrays, pa.array(whys, pa.string()), pa.array(raw, pa.binary())], names=[*names, BAD, RAW]
        )
        return Changes(
            table,
            rows,
            pa.array(self.operations, pa.int8()),
            self._before(zone, names),
            {},
            pa.array(self.times, pa.int64()).cast(TIMESTAMP),
            pa.array(range(first_offset, first_offset + count), pa.int64()),
        )

    def _each(self, reasons: Reasons) -> list[tuple[int, str | None]]:
        return [(row, reasons.get(row)) for row in range(len(self.operations))]

    def _is_gone(self, row: int, why: str, key: Sequence[str]) -> bool:
        return self.operations[row] == Operation.DELETE and not any(f"column '{name}'" in why for name in key)

    def _raw(self, row: int) -> bytes:
        return ", ".join(f"{c.name}={v[row]!r}" for c, v in zip(self.columns, self.rows, strict=True)).encode()

    def _before(self, zone: str, names: list[str]) -> pa.StructArray | None:
        """Rows as they were before an update."""
        if not self.before[0]:
            return None
        arrays = [array_of(c, values, zone, {}) for c, values in zip(self.columns, self.before, strict=True)]
        were = pa.StructArray.from_arrays(arrays, names=names)
        places: list[int | None] = []
        found = 0
        for operation in self.operations:
            is_update = operation == Operation.UPDATE
            places.append(found if is_update else None)
            found += is_update
        return were.take(pa.array(places, pa.int64()))


def schema_of(columns: Sequence[BinlogColumn]) -> Schema:
    """The columns of a table as Arrow has them."""
    return Schema.of(Column(column.name, column.arrow) for column in columns)
