"""Parser of WITH (...), the option group of a source, sink, join, table or statement."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from millpond.sql.cursor import Cursor
from millpond.sql.statements import NO_OPTIONS, OptionEntry, OptionGroup
from millpond.sql.tokens import URI


def sees_options(cursor: Cursor) -> bool:
    """Whether a WITH ( comes next; the WITH of a common table expression is followed by a name."""
    return cursor.sees_kind(TokenType.WITH) and cursor.sees_kind(TokenType.L_PAREN, ahead=1)


def take_options(cursor: Cursor) -> OptionGroup:
    """Consume a WITH (...) if one comes next."""
    if not sees_options(cursor):
        return NO_OPTIONS
    start = cursor.position
    cursor.expect("WITH")
    if cursor.sees_kind(TokenType.R_PAREN, ahead=1):
        cursor.refuse("WITH () contains no option.", hint="Write WITH ('name' = 'value'), or remove it.")
    entries = cursor.in_brackets(lambda: _entry(cursor))
    return OptionGroup(entries, cursor.at_end, cursor.place_since(start))


def _entry(cursor: Cursor) -> OptionEntry:
    start = cursor.position
    name = _option_name(cursor)
    place = cursor.place_since(start)
    if not cursor.take("="):
        cursor.refuse_unexpected("=", hint=f"Write '{name}' = 'value'.")
    value = _option_value(cursor)
    return OptionEntry(name.lower(), value.text, place, cursor.place_of_token(value))


def _option_name(cursor: Cursor) -> str:
    if cursor.sees_kind(TokenType.STRING) or _is_double_quoted(cursor):
        return cursor.take_token().text
    if not cursor.sees_name():
        cursor.refuse_unexpected("an option's name in quotes", hint="Write WITH ('name' = 'value').")
    words = [cursor.take_token().text]
    while cursor.take("."):
        words.append(cursor.name("an option's name").text)
    return ".".join(words)


def _option_value(cursor: Cursor) -> Token:
    if cursor.sees_kind(TokenType.STRING) or _is_double_quoted(cursor) or cursor.sees_kind(URI):
        return cursor.take_token()
    words = cursor.here.text.upper()
    if cursor.sees_kind(TokenType.NUMBER) or words in ("TRUE", "FALSE"):
        token = cursor.take_token()
        if cursor.sees(",") or cursor.sees(")"):
            return token
        cursor.refuse(
            f"The value before {cursor.shown_token(cursor.here)} must be in quotes.", hint="Write 'name' = 'value'."
        )
    return cursor.refuse_unexpected("an option's value in quotes", hint="Write 'name' = 'value'.")


def _is_double_quoted(cursor: Cursor) -> bool:
    return cursor.sees_kind(TokenType.IDENTIFIER) and cursor.source.code[cursor.here.start] == '"'
