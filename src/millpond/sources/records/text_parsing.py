"""Parses some records of JSON or CSV text on the driver, value by value, as `spark_parsing` does in Spark.

For records that Arrow's strict parsers reject: invalid ones, numbers in quotes, names in another case, maps. There are
few of them as a rule, and a Spark job, or even the start of Spark, for one invalid record would take far too long. What
this module cannot read with certainty as Spark does raises `Uncertain`, and Spark parses these records.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import BAD, RAW
from millpond.expressions.compile import Compiled, compile_expression
from millpond.expressions.failures import NotCompilable
from millpond.schema import Schema, type_name
from millpond.sources.records.formats import FileFormat, column_place
from millpond.sql.parser import parse_expression

# Beyond this, Spark is faster.
RECORDS_MAX = 10_000
# The number of characters of an invalid value that a reason shows.
SHOWN_CHARACTERS = 100
NOT_UTF8 = "the text is not UTF-8; if it has another encoding, set 'encoding'"
BLANKS = " \t\r\n"
# Spark's parser has limits for these, and other rules beyond them.
DIGITS_MAX, DEPTH_MAX = 200, 100
# Control characters that Spark escapes in another way inside of a nested value.
_ODD = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f]")
# Spark's JSON parser still reads such dates and times as its first versions did.
_OLD_TIME = r"^\s*[+-]?[0-9]+\s*$|GMT"
_HALF = re.compile("[\ud800-\udfff]")


class Uncertain(Exception):
    """Spark may read the record differently."""


class Number(str):
    """A JSON number, as it is written."""


class Members(list[tuple[str, Any]]):
    """The members of a JSON object, in order; names may repeat."""


@dataclass(frozen=True)
class Texts:
    """Records as bytes; `problems` has why one cannot be read at all, `suspect` whether one must be checked to be UTF-8
    and a single value."""

    values: Sequence[bytes]
    problems: Sequence[str | None]
    suspect: Sequence[bool]


def parse_texts(
    texts: Texts, columns: Schema, names: Sequence[str] = (), form: FileFormat | None = None
) -> pa.Table | None:
    """The columns of JSON records, or of CSV rows with these names, with BAD and RAW; None if Spark must parse them."""
    if len(texts.values) > RECORDS_MAX:
        return None
    try:
        return parse_json(texts, columns) if form is None else parse_csv(texts, columns, names, form)
    except Uncertain:
        return None


def parse_json(texts: Texts, columns: Schema) -> pa.Table:
    """The columns of the records, with BAD and RAW; `Uncertain` if Spark must parse them."""
    found, why = _decoded(texts)
    rows: list[list[Any]] = []
    for place, text in enumerate(found):
        members = None if text is None else _object(text)
        if text is not None and members is None:
            why[place] = f"not a JSON object: {_shown(text)}"
        rows.append([None] * len(columns) if members is None else _fields(members, columns))
    return _table(texts, why, columns, rows)


def parse_csv(texts: Texts, columns: Schema, names: Sequence[str], form: FileFormat) -> pa.Table:
    """The same of CSV rows without quotes, whose fields are `names`."""
    if form.null is not None:
        raise Uncertain
    found, why = _decoded(texts)
    places = [column_place(column.name, names) for column in columns]
    special = [char for char in (form.quote, form.escape, "\x00", "\x01") if char]
    rows: list[list[Any]] = []
    for place, text in enumerate(found):
        fields = [] if text is None else text.rstrip("\r\n").split(form.delimiter)
        if text is not None and (not text.strip(BLANKS) or any(char in text for char in special)):
            raise Uncertain
        if text is not None and len(fields) != len(names):
            why[place] = f"the row does not have {len(names)} fields: {_shown(text)}"
        whole = len(fields) == len(names)
        rows.append([fields[at] or None if whole and at is not None else None for at in places])
    return _table(texts, why, columns, rows)


def _decoded(texts: Texts) -> tuple[list[str | None], list[str | None]]:
    """The texts that can be parsed, and why others cannot."""
    found: list[str | None] = []
    why = list(texts.problems)
    for place, (value, problem, suspect) in enumerate(zip(texts.values, why, texts.suspect, strict=True)):
        try:
            found.append(None if problem is not None else value.decode())
        except UnicodeDecodeError as error:
            if not suspect:
                raise Uncertain from error
            found.append(None)
            why[place] = NOT_UTF8
    return found, why


def _table(texts: Texts, why: list[str | None], columns: Schema, rows: list[list[Any]]) -> pa.Table:
    arrays: list[pa.Array] = []
    for place, column in enumerate(columns):
        assert column.type is not None, "columns must be known before records are read"
        values = [row[place] for row in rows]
        array, bad = _converted(values, column.type)
        arrays.append(array)
        wanted = type_name(column.type)
        article = "an" if wanted[0] in "AEIOU" else "a"
        for row in np.flatnonzero(bad):
            why[row] = why[row] or f"column '{column.name}': '{_shown(_text(values[row]))}' is not {article} {wanted}"
    # A row that is bad for one reason has no value at all.
    kept = pa.array(np.arange(len(rows)), mask=np.array([reason is not None for reason in why], bool))
    raw = [
        value.rstrip(b"\r\n") if reason is not None else None for value, reason in zip(texts.values, why, strict=True)
    ]
    found = {column.name: array.take(kept) for column, array in zip(columns, arrays, strict=True)}
    return pa.table({**found, BAD: pa.array(why, pa.string()), RAW: pa.array(raw, pa.binary())})


def _shown(text: str) -> str:
    return text.rstrip("\r\n")[:SHOWN_CHARACTERS]


def _object(text: str) -> Members | None:
    """The members of a JSON object; None if it is not one."""
    start = text.lstrip(BLANKS)[:1]
    if start != "{":
        # Of an array Spark takes the first object.
        if start in ("", "["):
            raise Uncertain
        return None
    found: Members | None = _parsed(text)
    return found


def _parsed(text: str) -> Any:
    """The value of JSON text, None if it is not valid."""
    try:
        found = _DECODER.decode(text)
    except ValueError:
        return None
    except RecursionError as error:
        raise Uncertain from error
    _check(found, DEPTH_MAX)
    return found


def _number(text: str) -> Number:
    if len(text) > DIGITS_MAX:
        raise Uncertain
    return Number(text)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=_constant, object_pairs_hook=Members)


def _check(value: Any, left: int) -> None:
    """Raise `Uncertain` for values that are nested deeply, and for halves of a character."""
    if not left:
        raise Uncertain
    if isinstance(value, Members):
        for name, inner in value:
            _check(name, left)
            _check(inner, left - 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, left - 1)
    elif isinstance(value, str) and _HALF.search(value):
        raise Uncertain


def _fields(members: Members, columns: Schema) -> list[Any]:
    """The values of the columns: by their exact names, else without regard to case."""
    lowered: dict[str, tuple[str, Any]] = {}
    for name, value in members:
        if name.lower() in lowered and name in columns:
            raise Uncertain
        lowered[name.lower()] = (name, value)
    found: list[Any] = []
    for column in columns:
        name, value = lowered.get(column.name.lower(), (column.name, None))
        if name != column.name and any(isinstance(inner, list) for _, inner in members):
            # Spark corrects names inside of nested values too.
            raise Uncertain
        found.append(value)
    return found


def _converted(values: list[Any], type_: pa.DataType) -> tuple[pa.Array, np.ndarray[Any, np.dtype[np.bool_]]]:
    """JSON values in a type, and which of them cannot be."""
    if pa.types.is_struct(type_):
        return _structs([_nested(value, Members) for value in values], values, type_)
    if pa.types.is_map(type_):
        return _maps([_nested(value, Members) for value in values], values, type_)
    if pa.types.is_list(type_):
        return _lists([_nested(value, list) for value in values], values, type_)
    return _scalars(values, type_)


def _nested(value: Any, kind: type) -> Any:
    """A nested value, also from a string that contains it; None if it is of another kind."""
    if isinstance(value, str) and not isinstance(value, Number):
        value = _parsed(value) if value.strip(BLANKS) else None
    return value if isinstance(value, kind) and isinstance(value, Members) == (kind is Members) else None


def _bad(found: Sequence[Any], values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.array([one is None and value is not None for one, value in zip(found, values, strict=True)], bool)


def _structs(found: list[Any], values: list[Any], type_: pa.DataType) -> tuple[pa.Array, Any]:
    bad = _bad(found, values)
    members = [_once(one) for one in found]
    children = []
    for field in type_:
        child, wrong = _converted([one.get(field.name) for one in members], field.type)
        children.append(child)
        bad |= wrong
    missing = pa.array([one is None for one in found], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=missing), bad


def _maps(found: list[Any], values: list[Any], type_: pa.DataType) -> tuple[pa.Array, Any]:
    if not pa.types.is_string(type_.key_type):
        raise Uncertain
    members = [_once(one) for one in found]
    keys = pa.array([key for one in members for key in one], pa.string())
    items, wrong = _converted([value for one in members for value in one.values()], type_.item_type)
    made = pa.MapArray.from_arrays(_offsets(found, members), keys, items, type=type_)
    return made, _bad(found, values) | _any_inside(members, wrong)


def _lists(found: list[Any], values: list[Any], type_: pa.DataType) -> tuple[pa.Array, Any]:
    items = [one or [] for one in found]
    made, wrong = _converted([value for one in items for value in one], type_.value_type)
    array = pa.ListArray.from_arrays(_offsets(found, items), made, type=type_)
    return array, _bad(found, values) | _any_inside(items, wrong)


def _once(members: Members | None) -> dict[str, Any]:
    named = dict(members or ())
    if len(named) < len(members or ()):
        raise Uncertain
    return named


def _offsets(found: Sequence[Any], items: Sequence[Any]) -> pa.Array:
    ends = np.cumsum([0, *(len(one) for one in items)])
    missing = np.array([*(one is None for one in found), False], bool)
    return pa.array(ends, pa.int32(), mask=missing)


def _any_inside(items: Sequence[Any], wrong: Any) -> Any:
    """Which of some collections contain a wrong item; `wrong` has all their items, in order."""
    owner = np.repeat(np.arange(len(items)), [len(one) for one in items])
    return np.bincount(owner[wrong], minlength=len(items)).astype(bool)


def _scalars(values: list[Any], type_: pa.DataType) -> tuple[pa.Array, Any]:
    is_time = pa.types.is_temporal(type_)
    if is_time and any(isinstance(value, Number) for value in values):
        # A number of seconds, by rules of Spark's parser.
        raise Uncertain
    if pa.types.is_floating(type_):
        # Without a fraction it is a whole number, which has no negative zero.
        values = [Number("0") if isinstance(value, Number) and value == "-0" else value for value in values]
    texts = pa.array([None if value is None else _text(value) for value in values], pa.string())
    cast = _binary(texts) if pa.types.is_binary(type_) else _cast(texts, type_)
    bad = pc.and_(texts.is_valid(), cast.is_null())
    if is_time and pc.any(pc.match_substring_regex(texts.filter(bad), _OLD_TIME), min_count=0).as_py():
        raise Uncertain
    return cast, bad.to_numpy(zero_copy_only=False)


def _text(value: Any) -> str:
    """A value as Spark reads it as text: a string without its quotes, a nested value without blanks."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _json(value)


def _json(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        if _ODD.search(value):
            raise Uncertain
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Members):
        return "{" + ",".join(f"{_json(name)}:{_json(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return "null" if value is None else "true" if value else "false"


def _binary(texts: pa.Array) -> pa.Array:
    try:
        return pa.array(
            [None if t is None else base64.b64decode(t, validate=True) for t in texts.to_pylist()], pa.binary()
        )
    except (binascii.Error, ValueError) as error:
        raise Uncertain from error


def _cast(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """The texts cast by ANSI rules, NULL where they cannot be."""
    if pa.types.is_string(type_):
        return texts
    # Spark reads a number as DOUBLE first.
    steps = (pa.float64(), type_) if type_ == pa.float32() else (type_,)
    for step in steps:
        try:
            found = _try_cast(texts.type, step).evaluate(pa.table({"v": texts}))
        except NotCompilable as refusal:
            raise Uncertain from refusal
        texts = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return texts


@lru_cache(maxsize=256)
def _try_cast(given: pa.DataType, type_: pa.DataType) -> Compiled:
    cast = parse_expression(f"TRY_CAST(v AS {type_name(type_)})")
    return compile_expression(cast, Schema.from_arrow(pa.schema([("v", given)])))
