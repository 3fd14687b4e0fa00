"""Values as documents: nested ones stay documents and lists, and nothing is rounded.

Decimals, dates and times are texts, because a document has times of milliseconds, and not every server has decimals. A
MAP is a list of documents with `key` and `value`. NaN, infinity and the negative zero are texts too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millpond.tables.remote.driver_rows import from_texts, row_keys, texts_of


def document_ids(keys: Sequence[pa.Array]) -> list[str]:
    """The `_id` of each row: the texts of its key columns."""
    return [text[1:] for text in row_keys("", keys)]


def is_compared(type_: pa.DataType) -> bool:
    """Whether stored values are equal exactly if the values are."""
    return not pa.types.is_nested(type_) and not pa.types.is_floating(type_)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_) or pa.types.is_temporal(type_))


def _is_plain(value: float) -> bool:
    """Whether every server stores it: FerretDB rejects infinity, and ends the connection for NaN."""
    return math.isfinite(value) and not (value == 0 and math.copysign(1, value) < 0)


def as_stored(column: pa.Array) -> list[Any]:
    """The values of a column as they are stored."""
    type_ = column.type
    if pa.types.is_map(type_):
        offsets, keys, items = column.offsets, as_stored(column.keys), as_stored(column.items)
        pairs = [{"key": key, "value": item} for key, item in zip(keys, items, strict=True)]
        return _parts(column, offsets.to_pylist(), pairs, 0)
    if pa.types.is_list(type_):
        first = column.offsets[0].as_py() if len(column) else 0
        return _parts(column, column.offsets.to_pylist(), as_stored(column.flatten()), first)
    if pa.types.is_struct(type_):
        fields = [as_stored(column.field(n)) for n in range(type_.num_fields)]
        names = [type_.field(n).name for n in range(type_.num_fields)]
        rows = zip(*fields, strict=True) if fields else [()] * len(column)
        made = [dict(zip(names, row, strict=True)) for row in rows]
        return [value if there else None for value, there in zip(made, column.is_valid().to_pylist(), strict=True)]
    if pa.types.is_floating(type_):
        return [value if value is None or _is_plain(value) else repr(value) for value in column.to_pylist()]
    return texts_of(column) if _is_text(type_) else list(column.to_pylist())


def _parts(column: pa.Array, offsets: list[int], elements: list[Any], first: int) -> list[Any]:
    valid = column.is_valid().to_pylist()
    found: list[Any] = []
    for place, there in enumerate(valid):
        found.append(elements[offsets[place] - first : offsets[place + 1] - first] if there else None)
    return found


def column_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """The column of stored values."""
    if pa.types.is_map(type_):
        return pa.array([None if v is None else _pairs(v, type_) for v in values], type_)
    if pa.types.is_list(type_):
        elements = column_of([element for v in values if v is not None for element in v], type_.value_type).to_pylist()
        return pa.array(_split(values, elements), type_)
    if pa.types.is_struct(type_):
        there = [v is not None for v in values]
        fields = [type_.field(n) for n in range(type_.num_fields)]
        arrays = [column_of([None if v is None else v.get(f.name) for v in values], f.type) for f in fields]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array([not v for v in there], pa.bool_()))
    if _is_text(type_):
        return from_texts(values, type_)
    if pa.types.is_floating(type_):
        return pa.array([float(value) if isinstance(value, str) else value for value in values], type_)
    return pa.array(values, type_)


def _pairs(value: Sequence[Any], type_: pa.DataType) -> list[tuple[Any, Any]]:
    keys = column_of([pair["key"] for pair in value], type_.key_type).to_pylist(maps_as_pydicts=None)
    items = column_of([pair.get("value") for pair in value], type_.item_type).to_pylist(maps_as_pydicts=None)
    return list(zip(keys, items, strict=True))


def _split(values: Sequence[Any], elements: list[Any]) -> list[Any]:
    """Elements as lists of the lengths that the stored lists have."""
    found: list[Any] = []
    start = 0
    for value in values:
        if value is None:
            found.append(None)
        else:
            found.append(elements[start : start + len(value)])
            start += len(value)
    return found
