"""Parses SQL types into the Arrow types that tables store."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot.tokenizer_core import Token, TokenType

from millpond.errors import did_you_mean
from millpond.sql.cursor import Cursor
from millpond.sql.foreign import type_hint

DECIMAL_PRECISION_MAX = 38

SIMPLE_TYPES: dict[str, Callable[[], pa.DataType]] = {
    "BOOLEAN": pa.bool_,
    "TINYINT": pa.int8,
    "BYTE": pa.int8,
    "SMALLINT": pa.int16,
    "SHORT": pa.int16,
    "INT": pa.int32,
    "INTEGER": pa.int32,
    "BIGINT": pa.int64,
    "LONG": pa.int64,
    "FLOAT": pa.float32,
    "REAL": pa.float32,
    "DOUBLE": pa.float64,
    "STRING": pa.string,
    "BINARY": pa.binary,
    "DATE": pa.date32,
    "TIMESTAMP": lambda: pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_LTZ": lambda: pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": lambda: pa.timestamp("us"),
}
TIMESTAMP_WORDS = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
FRACTION_DIGITS_MAX = 6
DECIMAL_WORDS = ("DECIMAL", "NUMERIC", "DEC")
TEXT_WORDS = ("VARCHAR", "CHAR", "CHARACTER")
NESTED_WORDS = ("ARRAY", "MAP", "STRUCT")
TYPE_WORDS = (*SIMPLE_TYPES, *DECIMAL_WORDS, *TEXT_WORDS, *NESTED_WORDS)


def take_type(cursor: Cursor) -> pa.DataType:
    """Consume a type; MP108 if none comes next."""
    token = cursor.here
    if cursor.at_end or not cursor.sees_name():
        _refuse(cursor, f"Expected a type, found {cursor.shown_token(token)}.")
    word = cursor.take_token().text.upper()
    if word in SIMPLE_TYPES:
        if word in TIMESTAMP_WORDS and cursor.sees("("):
            _fraction_digits(cursor, word)
        return SIMPLE_TYPES[word]()
    if word in DECIMAL_WORDS:
        return _decimal(cursor)
    if word in TEXT_WORDS:
        if cursor.sees("("):
            _numbers(cursor, most=1)
        return pa.string()
    if word in NESTED_WORDS:
        return {"ARRAY": _array, "MAP": _map, "STRUCT": _struct}[word](cursor)
    return _refuse_word(cursor, token)


def _refuse_word(cursor: Cursor, token: Token) -> pa.DataType:
    hint = type_hint(token.text) or did_you_mean(token.text, TYPE_WORDS)
    return _refuse(cursor, f"{cursor.shown_token(token)} is not a type.", token, hint)


def _refuse(cursor: Cursor, message: str, token: Token | None = None, hint: str = "") -> pa.DataType:
    hint = (
        hint or "Types are INT, BIGINT, DECIMAL(p,s), DOUBLE, STRING, BOOLEAN, DATE, TIMESTAMP, ARRAY<...> and others."
    )
    cursor.refuse(message, token=token, code="MP108", hint=hint)


def _fraction_digits(cursor: Cursor, word: str) -> None:
    """The precision of TIMESTAMP(3). A timestamp always stores microseconds, so up to six digits are kept."""
    token = cursor.here
    digits = _numbers(cursor, most=1)[0]
    if digits > FRACTION_DIGITS_MAX:
        hint = f"A timestamp stores microseconds: use {word}, or at most {word}({FRACTION_DIGITS_MAX})."
        _refuse(cursor, f"{word}({digits}) is not a valid type.", token, hint)


def _decimal(cursor: Cursor) -> pa.DataType:
    token = cursor.here
    numbers = _numbers(cursor, most=2) if cursor.sees("(") else [10]
    precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
        hint = f"The precision must be 1 to {DECIMAL_PRECISION_MAX}, the scale at most the precision."
        _refuse(cursor, f"DECIMAL({precision},{scale}) is not a valid type.", token, hint)
    return pa.decimal128(precision, scale)


def _numbers(cursor: Cursor, most: int) -> list[int]:
    def number() -> int:
        if not cursor.sees_kind(TokenType.NUMBER) or not cursor.here.text.isdigit():
            cursor.refuse_unexpected("a number")
        return int(cursor.take_token().text)

    start = cursor.here
    numbers = cursor.in_brackets(number)
    if len(numbers) > most:
        _refuse(cursor, f"This type has at most {most} number{'s' if most > 1 else ''} in brackets.", start)
    return list(numbers)


def _array(cursor: Cursor) -> pa.DataType:
    cursor.expect("<")
    item = take_type(cursor)
    cursor.expect(">")
    return pa.list_(item)


def _map(cursor: Cursor) -> pa.DataType:
    cursor.expect("<")
    key = take_type(cursor)
    cursor.expect(",")
    value = take_type(cursor)
    cursor.expect(">")
    return pa.map_(key, value)


def _struct(cursor: Cursor) -> pa.DataType:
    if cursor.take("<>"):
        return pa.struct([])
    cursor.expect("<")
    fields = [] if cursor.sees(">") else list(cursor.listed(lambda: _field(cursor)))
    cursor.expect(">")
    return pa.struct(fields)


def _field(cursor: Cursor) -> pa.Field:
    name = cursor.name("a field's name")
    cursor.take(":")
    kind = take_type(cursor)
    not_null = cursor.take("NOT", "NULL")
    return pa.field(name.text, kind, nullable=not not_null)
