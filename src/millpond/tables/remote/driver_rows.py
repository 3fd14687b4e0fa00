"""Values as drivers of databases return them, as Arrow: nested ones come as JSON."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.rendering import plain_texts

_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_decimal, lambda value: Decimal(str(value))),
    (pa.types.is_floating, float),
    (pa.types.is_date, dt.date.fromisoformat),
    (pa.types.is_binary, base64.b64decode),
)


def arrow_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """A column of values."""
    if pa.types.is_nested(type_):
        return pa.array([from_json(value, type_) for value in values], type_)
    if pa.types.is_timestamp(type_) and type_.tz is None:
        values = [None if value is None else value.replace(tzinfo=None) for value in values]
    return pa.array(values, type_)


def without_nul(keys: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """The keys without texts that contain the character 0, which the database cannot store: no row has them."""
    for column in keys:
        if pa.types.is_string(column.type) and pc.any(pc.match_substring(column, "\0")).as_py():
            stays = pc.invert(pc.fill_null(pc.match_substring(column, "\0"), False))
            return without_nul([key.filter(stays) for key in keys])
    return keys


def from_json(value: Any, type_: pa.DataType) -> Any:
    """A value from what `json.loads` returns, or from a driver's list of values."""
    if value is None:
        return None
    if pa.types.is_list(type_):
        return [from_json(element, type_.value_type) for element in value]
    if pa.types.is_struct(type_):
        return {field.name: from_json(value.get(field.name), field.type) for field in type_}
    if pa.types.is_map(type_):
        return [(_key(key, type_.key_type), from_json(item, type_.item_type)) for key, item in value.items()]
    if not isinstance(value, str | int | float) or (isinstance(value, str) and pa.types.is_string(type_)):
        return value
    if pa.types.is_timestamp(type_):
        return _time(value, type_)
    return next((convert(value) for is_, convert in _PLAIN if is_(type_)), value)


def _key(text: str, type_: pa.DataType) -> Any:
    if pa.types.is_integer(type_):
        return int(text)
    if pa.types.is_boolean(type_):
        return text.lower() == "true"
    return from_json(text, type_)


def _time(text: Any, type_: pa.DataType) -> dt.datetime:
    found = dt.datetime.fromisoformat(str(text))
    if type_.tz is None:
        return found.replace(tzinfo=None)
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def texts_of(column: pa.Array) -> list[str | None]:
    """Each value as text that people read and `from_texts` reads back; None for NULL."""
    return plain_texts(column)


def from_texts(texts: Sequence[str | None], type_: pa.DataType) -> pa.Array:
    """A column from the texts of `texts_of`; pa.ArrowInvalid or ValueError for one that is none of its values."""
    if pa.types.is_nested(type_):
        return pa.array([None if text is None else from_json(json.loads(text), type_) for text in texts], type_)
    if pa.types.is_binary(type_):
        return pa.array([None if text is None else base64.b64decode(text) for text in texts], type_)
    return pa.array(texts, pa.string()).cast(type_)


def row_keys(prefix: str, keys: Sequence[pa.Array]) -> list[str]:
    """The key of each row: its prefix and the texts of its key columns."""
    columns = [_key_texts(column, alone=len(keys) == 1) for column in keys]
    return [f"{prefix}:{':'.join(parts)}" for parts in zip(*columns, strict=True)]


def _key_texts(column: pa.Array, *, alone: bool) -> list[str]:
    if pa.types.is_floating(column.type):
        # Equal numbers have one key.
        column = pa.array([0.0 if v == 0 else v for v in column.to_pylist()], column.type)
    texts = ("%N" if text is None else text.replace("%", "%25") for text in texts_of(column))
    return [text if alone else text.replace(":", "%3A") for text in texts]
