"""The columns of rows in the binary log: how their bytes are read, and their values made into Arrow, exactly."""

from __future__ import annotations

import datetime as dt
import socket
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.databases.driver_values import Reasons, in_zone
from millpond.databases.mysql.connection import (
    BIT,
    DATE,
    DATETIME,
    DIGITS_MAX,
    DOUBLE,
    FLOAT,
    INT24,
    JSON,
    LONG,
    LONGLONG,
    NEWDECIMAL,
    SHORT,
    STAMP,
    TIME,
    TINY,
    WHOLE,
    YEAR,
)
from millpond.schema import TIMESTAMP, type_name

NEWDATE, VARCHAR, STAMP2, DATETIME2, TIME2 = 14, 15, 17, 18, 19
ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 247, 248, 252, 253, 254, 255
BYTES = (BLOB, GEOMETRY)
CHARACTERS = (STRING, VAR_STRING, VARCHAR, BLOB)
# MariaDB lists the collation of these in its log; MySQL leaves GEOMETRY out.
CHARACTERS_OF_MARIADB = (*CHARACTERS, GEOMETRY)
NUMBERS = (TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE)
EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
# Bytes of so many decimal digits.
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
# Character sets whose names are not those of Python's codecs.
CODECS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
    "ujis": "euc-jp",
    "eucjpms": "euc-jp",
    "sjis": "shift-jis",
    "euckr": "euc-kr",
    "tis620": "tis-620",
}

# Reads a value at a place; returns it and where the next one begins.
Reader = Callable[[bytes, int], tuple[Any, int]]


@dataclass(frozen=True)
class BinlogColumn:
    """A column as the log and the catalog describe it. `meta` is what the log has of its type; `charset` is None for
    bytes; `values` are those of an ENUM or SET; `kind` is its type in the catalog, if that has it."""

    name: str
    code: int
    meta: int = 0
    unsigned: bool = False
    charset: str | None = None
    values: tuple[str, ...] = ()
    kind: str = ""

    @property
    def arrow(self) -> pa.DataType:
        """Its type here; the same as that of the result of a query."""
        if self.code in WHOLE:
            return WHOLE[self.code][self.unsigned]
        if self.code == NEWDECIMAL:
            precision, scale = self.meta & 0xFF, self.meta >> 8
            return pa.decimal128(min(max(precision, scale, 1), DIGITS_MAX), min(scale, DIGITS_MAX))
        if self.code in (FLOAT, DOUBLE):
            return pa.float32() if self.code == FLOAT else pa.float64()
        if self.code in (DATE, NEWDATE):
            return pa.date32()
        if self.code in (STAMP, STAMP2, DATETIME, DATETIME2):
            return TIMESTAMP
        if self.code in (TIME, TIME2, ENUM, SET, JSON) or self.kind in _TEXTS:
            return pa.string()
        return pa.binary() if self.charset is None else pa.string()

    @property
    def codec(self) -> str:
        return CODECS.get(self.charset or "utf8", self.charset or "utf-8")


def reader_of(column: BinlogColumn) -> Reader | None:
    """How the bytes of a column are read; None for a type that is not known."""
    code, meta = column.code, column.meta
    if code in _PLAIN:
        return _plain(_PLAIN[code][column.unsigned])
    if code in (VARCHAR, VAR_STRING):
        return _short if meta < 256 else _long
    if code == STRING:
        read = _short if meta < 256 else _long
        return _padded(read, meta) if column.charset is None and not column.kind.startswith(("uuid", "inet")) else read
    if code in BYTES:
        return _sized(meta)
    if code == NEWDECIMAL:
        return _decimal(meta & 0xFF, meta >> 8)
    if code in (ENUM, SET):
        return _number(meta)
    if code == BIT:
        return _bytes(((meta & 0xFF) + (meta >> 8) * 8 + 7) // 8)
    if code in (STAMP2, DATETIME2, TIME2):
        return {STAMP2: _stamp, DATETIME2: _datetime, TIME2: _time}[code](meta)
    return _OTHERS.get(code)


_PLAIN = {
    TINY: ("<b", "<B"),
    SHORT: ("<h", "<H"),
    LONG: ("<i", "<I"),
    LONGLONG: ("<q", "<Q"),
    FLOAT: ("<f", "<f"),
    DOUBLE: ("<d", "<d"),
}


def _plain(form: str) -> Reader:
    packed = struct.Struct(form)
    unpack, size = packed.unpack_from, packed.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return read


def _short(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end], end


def _long(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + (data[at] | data[at + 1] << 8)
    return data[at + 2 : end], end


def _padded(read: Reader, size: int) -> Reader:
    """Bytes of a fixed length, of which the log leaves out zeros at the end."""

    def padded(data: bytes, at: int) -> tuple[bytes, int]:
        value, at = read(data, at)
        return value.ljust(size, b"\0"), at

    return padded


def _sized(width: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        first = at + width
        end = first + int.from_bytes(data[at:first], "little")
        return data[first:end], end

    return read


def _bytes(size: int) -> Reader:
    return lambda data, at: (data[at : at + size], at + size)


def _number(size: int) -> Reader:
    return lambda data, at: (int.from_bytes(data[at : at + size], "little"), at + size)


def _decimal(precision: int, scale: int) -> Reader:
    """A number without its point. Groups of nine digits are four bytes each; the first bit is the sign, and all bits of
    a negative number are inverted."""
    whole, left = divmod(precision - scale, 9)
    parts, rest = divmod(scale, 9)
    head, tail = DIGIT_BYTES[left], DIGIT_BYTES[rest]
    size, groups, rest_power = head + 4 * (whole + parts) + tail, whole + parts, 10**rest
    sign_bit = 1 << (8 * size - 1)
    all_bits = (1 << (8 * size)) - 1

    def read(data: bytes, at: int) -> tuple[int, int]:
        end = at + size
        bits = int.from_bytes(data[at:end], "big") ^ sign_bit
        negative = bits & sign_bit
        raw = (bits ^ all_bits if negative else bits).to_bytes(size, "big")
        value, place = int.from_bytes(raw[:head], "big"), head
        for _ in range(groups):
            value = value * 1_000_000_000 + int.from_bytes(raw[place : place + 4], "big")
            place += 4
        if tail:
            value = value * rest_power + int.from_bytes(raw[place:], "big")
        return (-value if negative else value), end

    return read


@lru_cache(maxsize=100_000)
def _day(year: int, month: int, day: int) -> int | None:
    """Days since 1970; None for a date that no calendar has."""
    try:
        return dt.date(year, month, day).toordinal() - EPOCH_DAY
    except ValueError:
        return None


def _date(data: bytes, at: int) -> tuple[int | None, int]:
    bits = int.from_bytes(data[at : at + 3], "little")
    return _day(bits >> 9, bits >> 5 & 15, bits & 31), at + 3


@cache
def _fraction(digits: int) -> tuple[int, int]:
    """The bytes of a fraction of a second, and the microseconds of its unit."""
    size = (digits + 1) // 2
    return size, 10 ** (6 - 2 * size)


def _stamp(digits: int) -> Reader:
    size, unit_us = _fraction(digits)

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        end = at + 4 + size
        us = seconds * 1_000_000 + int.from_bytes(data[at + 4 : end], "big") * unit_us
        return us or None, end

    return read


def _datetime(digits: int) -> Reader:
    size, unit_us = _fraction(digits)

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        bits = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        end = at + 5 + size
        months = bits >> 22
        day = _day(months // 13, months % 13, bits >> 17 & 31)
        if day is None:
            return None, end
        seconds = day * 86400 + (bits >> 12 & 31) * 3600 + (bits >> 6 & 63) * 60 + (bits & 63)
        return seconds * 1_000_000 + int.from_bytes(data[at + 5 : end], "big") * unit_us, end

    return read


def _time(digits: int) -> Reader:
    """A time of day or a duration, as the server writes it."""
    size, unit_us = _fraction(digits)
    width, middle = 3 + size, 1 << (8 * (3 + size) - 1)

    def read(data: bytes, at: int) -> tuple[str, int]:
        bits = int.from_bytes(data[at : at + width], "big") - middle
        sign, bits = ("-", -bits) if bits < 0 else ("", bits)
        seconds, part = bits >> (8 * size), bits & ((1 << (8 * size)) - 1)
        text = f"{sign}{seconds >> 12 & 0x3FF:02}:{seconds >> 6 & 63:02}:{seconds & 63:02}"
        return (f"{text}.{part * unit_us:06}"[: len(text) + 1 + digits] if digits else text), at + width

    return read


def _old_time(data: bytes, at: int) -> tuple[str, int]:
    bits = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, bits = ("-", -bits) if bits < 0 else ("", bits)
    return f"{sign}{bits // 10000:02}:{bits // 100 % 100:02}:{bits % 100:02}", at + 3


def _old_datetime(data: bytes, at: int) -> tuple[int | None, int]:
    bits = int.from_bytes(data[at : at + 8], "little")
    date, time = divmod(bits, 1_000_000)
    day = _day(date // 10000, date // 100 % 100, date % 100)
    if day is None:
        return None, at + 8
    return (day * 86400 + time // 10000 * 3600 + time // 100 % 100 * 60 + time % 100) * 1_000_000, at + 8


def _old_stamp(data: bytes, at: int) -> tuple[int | None, int]:
    return (int.from_bytes(data[at : at + 4], "little") * 1_000_000) or None, at + 4


def _year(data: bytes, at: int) -> tuple[int, int]:
    return (1900 + data[at] if data[at] else 0), at + 1


def _middle(data: bytes, at: int) -> tuple[int, int]:
    return int.from_bytes(data[at : at + 3], "little", signed=True), at + 3


_OTHERS: dict[int, Reader] = {
    DATE: _date,
    NEWDATE: _date,
    TIME: _old_time,
    DATETIME: _old_datetime,
    STAMP: _old_stamp,
    YEAR: _year,
    INT24: _middle,
}


def array_of(column: BinlogColumn, values: Sequence[Any], zone: str, reasons: Reasons) -> pa.Array:
    """Values that were read as Arrow; one that does not fit is NULL, and its reason is added."""
    type_ = column.arrow
    if column.code == LONGLONG and column.unsigned:
        return pa.array(values, pa.uint64()).cast(type_)
    if column.code == INT24 and column.unsigned:
        return pa.array([None if v is None else v & 0xFFFFFF for v in values], type_)
    if column.code == NEWDECIMAL:
        return _decimals(column, values, type_, reasons)
    if pa.types.is_timestamp(type_):
        times = pa.array(values, pa.int64()).cast(pa.timestamp("us"))
        return in_zone(times, zone if column.code in (DATETIME, DATETIME2) else "UTC")
    if pa.types.is_date(type_):
        return pa.array(values, pa.int32()).cast(type_)
    if column.code == ENUM:
        names = ("", *column.values)
        return pa.array([None if v is None else names[v] if v < len(names) else str(v) for v in values], type_)
    if column.code == SET:
        return pa.array([None if v is None else _members(v, column.values) for v in values], type_)
    if column.kind in _TEXTS:
        write = _TEXTS[column.kind]
        return pa.array([None if v is None else write(v) for v in values], type_)
    if pa.types.is_string(type_) and column.code not in (TIME, TIME2):
        return _texts(column, values, reasons)
    return pa.array(values, type_)


def _members(bits: int, names: Sequence[str]) -> str:
    return ",".join(name for n, name in enumerate(names) if bits >> n & 1)


def _texts(column: BinlogColumn, values: Sequence[Any], reasons: Reasons) -> pa.Array:
    if column.codec == "utf-8":
        try:
            return pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            pass
    found: list[str | None] = []
    for row, value in enumerate(values):
        try:
            found.append(None if value is None else value.decode(column.codec))
        except (UnicodeDecodeError, LookupError):
            found.append(None)
            reasons.setdefault(row, f"column '{column.name}': {value[:30]!r} is not a text of {column.charset}")
    return pa.array(found, pa.string())


def _decimals(column: BinlogColumn, values: Sequence[Any], type_: pa.DataType, reasons: Reasons) -> pa.Array:
    """Numbers without their points as decimals."""
    if type_.precision <= 18:
        numbers = pa.array(values, pa.int64())
        low = numbers.fill_null(0).to_numpy()
        both = np.ascontiguousarray(np.stack([low, low >> 63], axis=1))
        # Bits of what is NULL are taken from the numbers, which begin at the same place.
        return pa.Array.from_buffers(type_, len(values), [numbers.buffers()[0], pa.py_buffer(both)])
    scale, limit = column.meta >> 8, 10**DIGITS_MAX
    found: list[Decimal | None] = []
    for row, value in enumerate(values):
        if value is None or abs(value) < limit:
            found.append(None if value is None else _exact(value, scale))
            continue
        found.append(None)
        shown = f"{_exact(value, scale):f}"
        reasons.setdefault(row, f"column '{column.name}': '{shown}' is not a {type_name(type_)}")
    return pa.array(found, type_)


def _exact(value: int, scale: int) -> Decimal:
    return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale))


_TEXTS: dict[str, Callable[[bytes], str]] = {
    "uuid": lambda value: str(uuid.UUID(bytes=value.ljust(16, b"\0"))),
    "inet4": lambda value: socket.inet_ntop(socket.AF_INET, value.ljust(4, b"\0")),
    "inet6": lambda value: socket.inet_ntop(socket.AF_INET6, value.ljust(16, b"\0")),
}
