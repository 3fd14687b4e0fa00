"""JSON functions: values by a path, lengths and keys, to_json, and from_json with a declared type."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa

from millpond.errors import SqlError
from millpond.expressions.casts import java_spelling
from millpond.expressions.coercion import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTEGERS, STRING, is_list
from millpond.expressions.failures import NotCompilable
from millpond.expressions.rules import Operands, Signature, types_of
from millpond.expressions.signatures import Function, Functions, Kernel, Run, Site, elementwise, takes
from millpond.expressions.terms import Constant
from millpond.schema import TIMESTAMP
from millpond.sql.parser import parse_type

PATHS_MAX = 256


class Members(list[tuple[str, Any]]):
    """The members of a JSON object in order, with those that occur twice."""


class Number(float):
    """A number with a point or an exponent."""


def _no_constant(text: str) -> Any:
    raise ValueError(text)


_DECODER = json.JSONDecoder(object_pairs_hook=Members, parse_float=Number, parse_constant=_no_constant, strict=False)
NOT_JSON = object()
_BEGINNING = re.compile(r"""[ \t\r\n]*(?:[{\["'\-0-9]|true|false|null)""")


def _decoded(text: str) -> Any:
    """The value of a JSON text; NOT_JSON if it cannot be JSON for any parser.

    Spark's parser also accepts single quotes, and stops after the first value: such texts are left to Spark.
    """
    if not _BEGINNING.match(text):
        return NOT_JSON
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise NotCompilable("a text that is not valid JSON") from error


_STEP = re.compile(r"\.([\w\-]+)|\['([\w\- ]+)'\]|\[(\d{1,9})\]")
Path = tuple[str | int, ...]


@lru_cache(PATHS_MAX)
def _path(text: str) -> Path:
    place, steps = 1, []
    while text.startswith("$") and place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            break
        steps.append(int(found[3]) if found[3] is not None else str(found[1] or found[2]))
        place = found.end()
    if not text.startswith("$") or place < len(text):
        raise NotCompilable("a path with other than names and places")
    return tuple(steps)


def _found(value: Any, path: Path) -> Any:
    """The value at a path, NOT_JSON if there is none; of members with the same name the first that is not null."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return _found(value[step], rest) if _is_array(value) and step < len(value) else NOT_JSON
    if not isinstance(value, Members):
        return NOT_JSON
    candidates = [_found(item, rest) for name, item in value if name == step and item is not None]
    return next((found for found in candidates if found is not NOT_JSON), NOT_JSON)


def _is_array(value: Any) -> bool:
    return isinstance(value, list) and not isinstance(value, Members)


def _get(text: str, path: str) -> str | None:
    steps = _path(path)
    decoded = _decoded(text)
    if decoded is NOT_JSON:
        return None
    value = _found(decoded, steps)
    if value is NOT_JSON:
        return None
    if value is None:
        raise NotCompilable("null at the end of a path")
    return _whole(value if isinstance(value, str) else _written(value))


def _whole(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise NotCompilable("half of a character in a JSON text") from error
    return text


def _written(value: Any) -> str:
    """A decoded value as compact JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Members):
        return "{" + ",".join(f"{quoted(name)}:{_written(item)}" for name, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return java_spelling(float(value)) if isinstance(value, Number) else str(value)


def quoted(text: str) -> str:
    """A text as a JSON string: only quotes, backslashes and control characters are escaped."""
    return re.sub(r"\\u00([0-9a-f]{2})", lambda m: f"\\u00{m[1].upper()}", json.dumps(text, ensure_ascii=False))


def _array_length(text: str) -> int | None:
    value = _decoded(text)
    return len(value) if _is_array(value) else None


def _object_keys(text: str) -> list[str] | None:
    value = _decoded(text)
    return [name for name, _ in value] if isinstance(value, Members) else None


# --- to_json

Write = Callable[[Any], str]


def _writer(type_: pa.DataType) -> Write:
    """A function that writes a value of a type as JSON; NULL is handled by the containing value."""
    if type_ == STRING:
        return quoted
    if type_ in INTEGERS:
        return str
    if type_ == BOOLEAN:
        return lambda value: "true" if value else "false"
    if type_ == DOUBLE:
        return _double
    if pa.types.is_decimal(type_):
        return str
    if type_ in (DATE, TIMESTAMP):
        return _date if type_ == DATE else _timestamp
    if pa.types.is_struct(type_):
        return _struct_writer(type_)
    if is_list(type_):
        item = _or_null(_writer(type_.value_type))
        return lambda values: "[" + ",".join(map(item, values)) + "]"
    if pa.types.is_map(type_) and type_.key_type == STRING:
        item = _or_null(_writer(type_.item_type))
        return lambda entries: "{" + ",".join(f"{quoted(key)}:{item(value)}" for key, value in entries) + "}"
    raise NotCompilable("a value of this type as JSON")


def _or_null(write: Write) -> Write:
    return lambda value: "null" if value is None else write(value)


def _double(value: float) -> str:
    return java_spelling(value) if math.isfinite(value) else f'"{java_spelling(value)}"'


def _date(value: date) -> str:
    return f'"{value.isoformat()}"'


def _timestamp(value: datetime) -> str:
    return f'"{value.strftime("%Y").zfill(4)}{value.strftime("-%m-%dT%H:%M:%S")}.{value.microsecond // 1000:03d}Z"'


def _struct_writer(type_: pa.DataType) -> Write:
    """A struct without the fields that are NULL."""
    fields = [(field.name, quoted(field.name), _writer(field.type)) for field in type_]

    def write(value: dict[str, Any]) -> str:
        known = [f"{label}:{part(value[name])}" for name, label, part in fields if value[name] is not None]
        return "{" + ",".join(known) + "}"

    return write


def _to_json(site: Site) -> Run:
    return elementwise(_writer(site.takes[0]), STRING)


def to_json_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    return Signature((type_,), STRING) if pa.types.is_nested(type_) else None


# --- from_json


@lru_cache(PATHS_MAX)
def _declared(text: str) -> pa.DataType | None:
    """The type that a schema such as 'a INT, b STRING' declares."""
    for written in (text, f"STRUCT<{text}>"):
        try:
            return parse_type(written)
        except SqlError:
            continue
    return None


def from_json_rule(operands: Operands) -> Signature | None:
    value, schema = operands
    text = schema.term.value if isinstance(schema.term, Constant) else None
    type_ = _declared(text) if isinstance(text, str) else None
    if value.type != STRING or type_ is None or not pa.types.is_nested(type_):
        return None
    return Signature((STRING, STRING), type_)


def _from_json(site: Site) -> Run:
    read = _reader(site.gives)

    def one(text: str, _: str) -> Any:
        value = _decoded(text) if text.strip(" \t\r\n") else NOT_JSON
        if value is NOT_JSON or "\n" in text or "\t" in text:
            raise NotCompilable("a text that is not valid JSON")
        return read(value)

    return elementwise(one, site.gives)


def _reader(type_: pa.DataType) -> Callable[[Any], Any]:
    """A function that converts a decoded value to a type; a value of another type is left to Spark."""
    if pa.types.is_struct(type_):
        return _struct_reader(type_)
    if is_list(type_):
        item = _nullable(_reader(type_.value_type))
        return lambda value: [item(part) for part in _expected(value, _is_array(value))]
    if pa.types.is_map(type_) and type_.key_type == STRING:
        item = _nullable(_reader(type_.item_type))
        return lambda value: [(name, item(part)) for name, part in _members(value)]
    if type_ == STRING:
        return lambda value: _whole(_expected(value, isinstance(value, str)))
    if type_ == BOOLEAN:
        return lambda value: _expected(value, isinstance(value, bool))
    if type_ == DOUBLE:
        return lambda value: float(_expected(value, type(value) in (int, Number) and abs(value) < 2**53))
    if type_ in (INT, BIGINT):
        top = 2 ** (type_.bit_width - 1)
        return lambda value: _expected(value, type(value) is int and -top <= value < top)
    raise NotCompilable("a value of this type from JSON")


def _expected(value: Any, fits: bool) -> Any:
    if not fits:
        raise NotCompilable("a JSON value of another type than declared")
    return value


def _nullable(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _members(value: Any) -> Members:
    names = [name for name, _ in _expected(value, isinstance(value, Members))]
    return Members(_expected(value, len(set(names)) == len(names)))


def _struct_reader(type_: pa.DataType) -> Callable[[Any], Any]:
    readers = {field.name: _nullable(_reader(field.type)) for field in type_}

    def read(value: Any) -> dict[str, Any]:
        known = dict(_members(value))
        return {name: part(known.get(name)) for name, part in readers.items()}

    return read


FUNCTIONS: Functions = {
    "get_json_object": takes(STRING, STRING, STRING).by_rows(
        _get, "the value of a JSON text at a path such as $.a[0].b"
    ),
    "json_array_length": takes(INT, STRING).by_rows(_array_length, "the number of elements of a JSON array"),
    "json_object_keys": takes(pa.list_(STRING), STRING).by_rows(_object_keys, "the keys of a JSON object"),
    "to_json": Function(to_json_rule, STRING).by(Kernel(_to_json), "a struct, map or array as JSON"),
    "from_json": Function(from_json_rule).by(Kernel(_from_json), "a JSON text parsed by a declared type"),
}
