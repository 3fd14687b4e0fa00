"""Records that Python hands over, as JSON lines: whole numbers, decimals and times keep their digits."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa

from millpond.contracts.table import Rows
from millpond.errors import SourceError
from millpond.rendering import json_lines
from millpond.schema import Column, Schema
from millpond.sources.files.guessing import Guess, json_guess

# JSON's encoder knows no decimals: they are written as marked texts, and the marks and quotes are taken off after it.
_MARK = f"\ue000{uuid4().hex}"
_MARKED = re.compile(f'"{_MARK}([^"]*)"')


def json_records(rows: Rows) -> list[bytes]:
    """One JSON object per record, each with its line end; MP504 for what is no record."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return [f"{line}\n".encode() for line in json_lines(rows, exact_numbers=True)]
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        hint = "Give a list of dicts, a pyarrow.Table or a pyarrow.RecordBatch."
        raise SourceError("MP504", f"Records cannot be {type(rows).__name__}.", hint=hint)
    return [_line(row) for row in rows]


def columns_of(lines: Iterable[bytes]) -> Schema | None:
    """The columns that these records show; None when they show none."""
    found: dict[str, tuple[str, Guess]] = {}
    for line in lines:
        row = json.loads(line, parse_float=Guess.of_fraction, parse_int=Guess.of_whole)
        for name, value in row.items():
            spelled, so_far = found.get(name.lower(), (name, Guess()))
            found[name.lower()] = (spelled, so_far.merged(json_guess(value)))
    return Schema.of(Column(name, guess.type()) for name, guess in found.values()) if found else None


def _line(row: Any) -> bytes:
    if not isinstance(row, Mapping):
        raise SourceError("MP504", f"A record cannot be {type(row).__name__}.", hint="Give each record as a dict.")
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
    """What JSON has in place of a value that it does not know."""
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
    # numpy's numbers and pandas' times know what they are in Python.
    for name in ("item", "to_pydatetime", "as_py"):
        if hasattr(value, name):
            return getattr(value, name)()
    hint = "Records hold numbers, texts, times, bytes, lists and dicts."
    raise SourceError("MP504", f"A value cannot be {type(value).__name__}.", hint=hint)


def _finite(value: Any) -> Any:
    """The same without the floats that JSON has no numbers for: texts say what they are."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_finite(inner) for inner in value]
    return value
