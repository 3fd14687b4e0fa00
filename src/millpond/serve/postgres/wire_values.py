"""Values on the wire: columns in the text and binary formats of PostgreSQL, parameters as Python values or literals."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.rendering import plain_texts
from millpond.serve.postgres.protocol import ColumnShape, ProtocolError

BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON = 16, 17, 20, 21, 23, 25, 114
FLOAT4, FLOAT8, VARCHAR, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 700, 701, 1043, 1082, 1114, 1184, 1700
# The name of each type in the catalog, and the size of its values in bytes; -1 for any.
TYPES: dict[int, tuple[str, int]] = {
    BOOL: ("bool", 1),
    BYTEA: ("bytea", -1),
    INT8: ("int8", 8),
    INT2: ("int2", 2),
    INT4: ("int4", 4),
    TEXT: ("text", -1),
    JSON: ("json", -1),
    FLOAT4: ("float4", 4),
    FLOAT8: ("float8", 8),
    VARCHAR: ("varchar", -1),
    DATE: ("date", 4),
    TIMESTAMP: ("timestamp", 8),
    TIMESTAMPTZ: ("timestamptz", 8),
    NUMERIC: ("numeric", -1),
}
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
EPOCH_US = int(EPOCH.timestamp()) * 1_000_000
EPOCH_DAYS = (date(2000, 1, 1) - date(1970, 1, 1)).days
ROWS_PER_PIECE = 4_096
NULL = b"\xff\xff\xff\xff"


def oid_of(type_: pa.DataType) -> int:
    """The type that clients see; nested values are JSON."""
    tests: tuple[tuple[Callable[[pa.DataType], bool], int], ...] = (
        (pa.types.is_boolean, BOOL),
        (lambda t: pa.types.is_int8(t) or pa.types.is_int16(t), INT2),
        (pa.types.is_int32, INT4),
        (pa.types.is_integer, INT8),
        (pa.types.is_float32, FLOAT4),
        (pa.types.is_floating, FLOAT8),
        (pa.types.is_decimal, NUMERIC),
        (pa.types.is_date, DATE),
        (lambda t: pa.types.is_timestamp(t) and t.tz is not None, TIMESTAMPTZ),
        (pa.types.is_timestamp, TIMESTAMP),
        (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t), BYTEA),
        (pa.types.is_nested, JSON),
    )
    return next((oid for test, oid in tests if test(type_)), TEXT)


def modifier_of(type_: pa.DataType) -> int:
    return ((type_.precision << 16) | type_.scale) + 4 if pa.types.is_decimal(type_) else -1


def shapes(schema: pa.Schema, formats: Sequence[int]) -> list[ColumnShape]:
    """The columns of an answer; `formats` as a Bind message has them: none, one for all, or one for each."""
    found = []
    for number, field in enumerate(schema):
        oid = oid_of(field.type)
        wanted = formats[number] if len(formats) > 1 else formats[0] if formats else 0
        # What has no binary form is sent as text, which is its binary form too.
        found.append(ColumnShape(field.name, oid, TYPES[oid][1], modifier_of(field.type), wanted))
    return found


def data_rows(table: pa.Table, columns: Sequence[ColumnShape]) -> Iterator[bytes]:
    """The rows as messages, some thousand at a time."""
    count = struct.pack(">h", len(columns))
    for batch in table.to_batches(max_chunksize=ROWS_PER_PIECE):
        encoded = [_encoded(batch.column(n), shape) for n, shape in enumerate(columns)]
        if not encoded:
            yield (b"D" + struct.pack(">i", 6) + count) * batch.num_rows
            continue
        rows = []
        for values in zip(*encoded, strict=True):
            body = count + b"".join(values)
            rows.append(b"D" + (len(body) + 4).to_bytes(4, "big") + body)
        yield b"".join(rows)


def _encoded(column: pa.Array, shape: ColumnShape) -> list[bytes]:
    values = _binary(column, shape.oid) if shape.format == 1 else _text(column, shape.oid)
    return [NULL if value is None else len(value).to_bytes(4, "big") + value for value in values]


def _text(column: pa.Array, oid: int) -> list[bytes | None]:
    if oid == BOOL:
        return [None if value is None else b"t" if value else b"f" for value in column.to_pylist()]
    if oid == BYTEA:
        return [None if value is None else b"\\x" + value.hex().encode() for value in column.to_pylist()]
    if oid in (TIMESTAMP, TIMESTAMPTZ):
        zone = "+00" if oid == TIMESTAMPTZ else ""
        texts = plain_texts(column)
        return [None if t is None else (t.replace("T", " ").removesuffix("Z") + zone).encode() for t in texts]
    return [None if text is None else text.encode() for text in plain_texts(column)]


def _binary(column: pa.Array, oid: int) -> list[bytes | None]:
    if oid in (TIMESTAMP, TIMESTAMPTZ):
        return _packed(pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64()), ">q", EPOCH_US)
    if oid == DATE:
        return _packed(pc.cast(pc.cast(column, pa.date32()), pa.int32()), ">i", EPOCH_DAYS)
    if oid == NUMERIC:
        return [None if value is None else numeric(value) for value in column.to_pylist()]
    if oid == BYTEA:
        return list(column.to_pylist())
    formats = {BOOL: ">?", INT2: ">h", INT4: ">i", INT8: ">q", FLOAT4: ">f", FLOAT8: ">d"}
    return _packed(column, formats[oid], 0) if oid in formats else _text(column, oid)


def _packed(column: pa.Array, form: str, offset: int) -> list[bytes | None]:
    pack = struct.Struct(form).pack
    return [None if value is None else pack(value - offset if offset else value) for value in column.to_pylist()]


def numeric(value: Decimal) -> bytes:
    """The binary form of a decimal: digits to the base of 10,000."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return struct.pack(">hhHh", 0, 0, 0xC000, 0)
    scale = max(-exponent, 0)
    text = "".join(map(str, digits)) + "0" * max(exponent, 0)
    whole, fraction = text[: len(text) - scale] or "0", text.rjust(scale, "0")[len(text.rjust(scale, "0")) - scale :]
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int((whole + fraction)[n : n + 4]) for n in range(0, len(whole + fraction), 4)]
    weight = len(whole) // 4 - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    return struct.pack(f">hhHh{len(groups)}h", len(groups), weight if groups else 0, sign * 0x4000, scale, *groups)


def from_numeric(content: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from(">hhHh", content)
    groups = struct.unpack_from(f">{count}h", content, 8)
    value = sum(Decimal(group) * Decimal(10_000) ** (weight - n) for n, group in enumerate(groups))
    return (-value if sign == 0x4000 else Decimal(value)).quantize(Decimal(1).scaleb(-scale))


def parameter(content: bytes | None, oid: int, is_binary: bool) -> Any:
    """The value of a parameter; one whose type the client did not name is text."""
    if content is None:
        return None
    try:
        return _from_binary(content, oid) if is_binary else _from_text(content.decode(), oid)
    except (ValueError, struct.error, ArithmeticError, LookupError) as error:
        raise ProtocolError("a parameter cannot be read") from error


def _from_text(text: str, oid: int) -> Any:
    if oid in (INT2, INT4, INT8):
        return int(text)
    if oid in (FLOAT4, FLOAT8):
        return float(text)
    if oid == NUMERIC:
        return Decimal(text)
    if oid == BOOL:
        return text.strip().lower() in ("t", "true", "1", "on", "yes", "y")
    if oid == BYTEA:
        return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()
    if oid == DATE:
        return date.fromisoformat(text)
    if oid in (TIMESTAMP, TIMESTAMPTZ):
        moment = datetime.fromisoformat(text)
        return moment if oid == TIMESTAMP else (moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return text


def _from_binary(content: bytes, oid: int) -> Any:
    formats = {BOOL: ">?", INT2: ">h", INT4: ">i", INT8: ">q", FLOAT4: ">f", FLOAT8: ">d"}
    if oid in formats:
        return struct.unpack(formats[oid], content)[0]
    if oid == NUMERIC:
        return from_numeric(content)
    if oid == BYTEA:
        return content
    if oid == DATE:
        return date(2000, 1, 1) + timedelta(days=struct.unpack(">i", content)[0])
    if oid in (TIMESTAMP, TIMESTAMPTZ):
        moment = EPOCH + timedelta(microseconds=struct.unpack(">q", content)[0])
        return moment if oid == TIMESTAMPTZ else moment.replace(tzinfo=None)
    return content.decode()


def literal(value: Any) -> str:
    """The literal of a value; a text cannot end it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"({value})" if value < 0 else str(value)
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, Decimal):
        return f"({value:f})" if value < 0 else f"{value:f}"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        kind = "TIMESTAMP" if value.tzinfo else "TIMESTAMP_NTZ"
        moment = value.astimezone(UTC) if value.tzinfo else value
        return f"{kind} '{moment.replace(tzinfo=None).isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"
