"""Records from Python as JSON lines: whole numbers, decimals and times keep their digits."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa

from millpond.contracts.table import ROWS_HINT, Rows
from millpond.errors import SourceError
from millpond.rendering import json_lines
from millpond.schema import Column, Schema
from millpond.sources.records.type_inference import Guess, json_guess, parse_json

# Python's JSON encoder has no decimals: they are written as marked texts, and marks and quotes are removed afterwards.
_MARK = f"\ue000{uuid4().hex}"
_MARKED = re.compile(f'"{_MARK}([^"]*)"')


def json_records(rows: Rows) -> list[bytes]:
    """One JSON object per record, each with its line end; MP504 for an invalid record."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return [f"{line}\n".encode() for line in json_lines(rows, exact_numbers=True)]
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise SourceError("MP504", f"Records of type {type(rows).__name__} are not supported.", hint=ROWS_HINT)
    return [_line(row) for row in rows]


def columns_of(lines: Iterable[bytes]) -> Schema | None:
    """The columns of these records; None if there are none."""
    found: dict[str, tuple[str, Guess]] = {}
    for line in lines:
        row = parse_json(line)
        for name, value in row.items():
            spelled, so_far = found.get(name.lower(), (name, Guess()))
            found[name.lower()] = (spelled, so_far.merged(json_guess(value)))
    return Schema.of(Column(name, guess.type()) for name, guess in found.values()) if found else None


def unknown_names(rows: Rows, columns: Schema) -> list[str]:
    """The names in records that are not columns, without duplicates; fields inside of structs with their path."""
    expected = pa.struct([(column.name, column.type) for column in columns])
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return list(dict.fromkeys(_unknown_fields(pa.struct(rows.schema), expected, "")))
    # An invalid record is rejected when it is converted to a line.
    records = rows if isinstance(rows, Iterable) else ()
    return list(dict.fromkeys(name for row in records for name in _unknown_keys(row, expected, "")))


def known_names(columns: Schema) -> list[str]:
    """The names that records may have; fields inside of structs with their path."""
    return list(_paths(pa.struct([(column.name, column.type) for column in columns]), ""))


def _paths(type_: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(type_):
        for field in type_:
            yield path + field.name
            yield from _paths(field.type, f"{path}{field.name}.")
    elif (inner := _inner(type_)) is not None:
        yield from _paths(inner, path)


def _unknown_fields(given: pa.DataType, expected: pa.DataType, path: str) -> Iterator[str]:
    """The unknown names in Arrow data, by its types."""
    if pa.types.is_struct(given) and pa.types.is_struct(expected):
        known = _fields(expected)
        for field in given:
            if field.name.lower() not in known:
                yield path + field.name
            else:
                yield from _unknown_fields(field.type, known[field.name.lower()], f"{path}{field.name}.")
    elif (inner := _inner(given)) is not None and (wanted := _inner(expected)) is not None:
        yield from _unknown_fields(inner, wanted, path)


def _unknown_keys(value: Any, expected: pa.DataType, path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and pa.types.is_struct(expected):
        known = _fields(expected)
        for name, inside in value.items():
            if str(name).lower() not in known:
                yield f"{path}{name}"
            elif isinstance(inside, Mapping | list | tuple):
                yield from _unknown_keys(inside, known[name.lower()], f"{path}{name}.")
    elif isinstance(value, Mapping | list | tuple) and (inner := _inner(expected)) is not None:
        for inside in value.values() if isinstance(value, Mapping) else value:
            yield from _unknown_keys(inside, inner, path)


@lru_cache(maxsize=256)
def _fields(type_: pa.StructType) -> dict[str, pa.DataType]:
    return {field.name.lower(): field.type for field in type_}


def _inner(type_: pa.DataType) -> pa.DataType | None:
    """The type of the elements of a list or the values of a map."""
    if pa.types.is_map(type_):
        return type_.item_type
    return type_.value_type if pa.types.is_list(type_) or pa.types.is_large_list(type_) else None


def _line(row: Any) -> bytes:
    if not isinstance(row, Mapping):
        raise SourceError(
            "MP504", f"A record of type {type(row).__name__} is not supported.", hint="Pass each record as a dict."
        )
    try:
        text = _text(dict(row))
    except ValueError:
        text = _text(_finite(dict(row)))
    # Most records have no decimals.
    if _MARK in text:
        text = _MARKED.sub(r"\1", text)
    return f"{text}\n".encode()


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, default=_plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """The JSON form of a value that Python's encoder does not support."""
    if isinstance(value, Decimal):
        return f"{_MARK}{value:f}" if value.is_finite() else str(value)
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is None else value.astimezone(UTC).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, UUID):
        return str(value)
    # numpy's numbers and pandas' times convert themselves to Python values.
    for name in ("item", "to_pydatetime", "as_py"):
        if hasattr(value, name):
            return getattr(value, name)()
    hint = "Records may contain numbers, texts, times, bytes, lists and dicts."
    raise SourceError("MP504", f"A value of type {type(value).__name__} is not supported.", hint=hint)


def _finite(value: Any) -> Any:
    """The value with NaN and infinite floats, which JSON does not have, as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_finite(inner) for inner in value]
    return value
