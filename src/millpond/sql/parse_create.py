"""Parsers of CREATE STREAM, CREATE TABLE, CREATE VIEW and CREATE INDEX."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.sql.grammar import Grammar
from millpond.sql.parse_target import take_source
from millpond.sql.parse_types import take_type
from millpond.sql.statements import (
    CheckDef,
    ColumnDef,
    CreateIndex,
    CreateStream,
    CreateTable,
    CreateView,
    Name,
    Statement,
    Watermark,
)
from millpond.sql.with_options import take_options


@dataclass
class _Body:
    """The elements between the brackets of a CREATE, collected while they are parsed."""

    columns: list[ColumnDef] = field(default_factory=list)
    key: tuple[Name, ...] = ()
    indexes: list[tuple[Name, ...]] = field(default_factory=list)
    checks: list[CheckDef] = field(default_factory=list)
    watermark: Watermark | None = None


def parse_create(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """CREATE [OR REPLACE] STREAM | TABLE | VIEW | INDEX ..."""
    grammar.expect("CREATE")
    or_replace = grammar.take("OR", "REPLACE")
    if grammar.take("STREAM"):
        return _create_stream(grammar, {**common, "or_replace": or_replace})
    if grammar.take("TABLE"):
        return _create_table(grammar, {**common, "or_replace": or_replace})
    if not or_replace and grammar.take("INDEX"):
        return _create_index(grammar, common)
    if grammar.take("VIEW"):
        return _create_view(grammar, {**common, "or_replace": or_replace})
    return grammar.refuse_unexpected("STREAM, TABLE or VIEW" if or_replace else "STREAM, TABLE, VIEW or INDEX")


def _if_not_exists(grammar: Grammar) -> bool:
    # `if` alone may be a name.
    return grammar.take("IF", "NOT", "EXISTS")


def _create_stream(grammar: Grammar, common: dict[str, Any]) -> CreateStream:
    exists = _if_not_exists(grammar)
    name = grammar.name("a stream's name")
    body = _body(grammar, "stream") if grammar.sees("(") else _Body()
    columns = tuple(body.columns) or None
    made: dict[str, Any] = {**common, "if_not_exists": exists, "name": name, "watermark": body.watermark}
    if grammar.take("AS"):
        if columns:
            hint = "Remove the column list: the query defines the columns."
            grammar.refuse("CREATE STREAM ... AS must not declare columns.", hint=hint)
        return CreateStream(**made, query=grammar.query(), options=take_options(grammar))
    if not grammar.take("FROM"):
        grammar.refuse_unexpected("FROM" if columns else "FROM or AS", "CREATE STREAM name FROM kafka://topic")
    source = take_source(grammar, "a URI")
    return CreateStream(**made, columns=columns, source=source, options=take_options(grammar))


def _create_table(grammar: Grammar, common: dict[str, Any]) -> CreateTable:
    exists = _if_not_exists(grammar)
    name = grammar.name("a table's name")
    body = _body(grammar, "table") if grammar.sees("(") else _Body()
    if grammar.sees("PRIMARY KEY"):
        _set_key(grammar, body, None)
    made: dict[str, Any] = {**common, "if_not_exists": exists, "name": name, "key": body.key}
    made["indexes"], made["checks"] = tuple(body.indexes), tuple(body.checks)
    if grammar.take("AS"):
        if body.columns:
            hint = "Remove the column list: the query defines the columns, and CAST sets their types."
            grammar.refuse("CREATE TABLE ... AS must not declare columns.", hint=hint)
        return CreateTable(**made, query=grammar.query(), options=take_options(grammar))
    if not body.columns:
        grammar.refuse_unexpected("( or AS", "CREATE TABLE name (column TYPE, ...) or CREATE TABLE name AS SELECT ...")
    return CreateTable(**made, columns=tuple(body.columns), options=take_options(grammar))


def _create_view(grammar: Grammar, common: dict[str, Any]) -> CreateView:
    exists = _if_not_exists(grammar)
    name = grammar.name("a view's name")
    if grammar.sees("("):
        grammar.refuse("CREATE VIEW must not declare columns.", hint="Remove the column list.")
    grammar.expect("AS")
    return CreateView(**common, if_not_exists=exists, name=name, query=grammar.query(), options=take_options(grammar))


def _create_index(grammar: Grammar, common: dict[str, Any]) -> CreateIndex:
    exists = _if_not_exists(grammar)
    name = None if grammar.sees("ON") else grammar.name("an index's name")
    grammar.expect("ON")
    table = grammar.name("a table's name")
    columns = grammar.names("a column's name")
    return CreateIndex(**common, table=table, columns=columns, name=name, if_not_exists=exists)


def _body(grammar: Grammar, kind: str) -> _Body:
    body = _Body()
    grammar.in_brackets(lambda: _element(grammar, body, kind))
    if not body.columns:
        grammar.refuse(
            f"The column list of this {kind} is empty.", hint="Declare at least one column, or remove the brackets."
        )
    return body


def _element(grammar: Grammar, body: _Body, kind: str) -> None:
    if grammar.sees("PRIMARY KEY"):
        _only_in_a_table(grammar, kind, "PRIMARY KEY")
        _set_key(grammar, body, None)
    elif grammar.sees("INDEX", "("):
        _only_in_a_table(grammar, kind, "INDEX")
        grammar.expect("INDEX")
        body.indexes.append(grammar.names("a column's name"))
    elif _sees_check(grammar):
        _only_in_a_table(grammar, kind, "CHECK")
        body.checks.append(_check(grammar, None))
    elif grammar.sees("WATERMARK", "FOR"):
        _take_watermark(grammar, body, kind)
    else:
        body.columns.append(_column(grammar, body, kind))


def _only_in_a_table(grammar: Grammar, kind: str, what: str) -> None:
    if kind != "table":
        hint = "A stream stores no rows; use CREATE TABLE name PRIMARY KEY (...) AS SELECT * FROM stream."
        grammar.refuse(f"{what} is only for tables.", hint=hint)


def _set_key(grammar: Grammar, body: _Body, column: Name | None) -> None:
    """PRIMARY KEY after a column, or PRIMARY KEY (a, b) as an element of its own."""
    if body.key:
        hint = "List all columns of the key in one: PRIMARY KEY (a, b)."
        grammar.refuse("A table has only one PRIMARY KEY, but this is the second.", code="MP208", hint=hint)
    grammar.expect("PRIMARY KEY")
    body.key = (column,) if column else grammar.names("a column's name")


def _column(grammar: Grammar, body: _Body, kind: str) -> ColumnDef:
    name = grammar.name("a column's name")
    if grammar.sees(",") or grammar.sees(")"):
        grammar.refuse(f"Column '{name}' has no type.", code="MP108", hint=f"{name} STRING")
    column_type = take_type(grammar)
    nullable, default, null_place = True, None, None
    while not grammar.sees(",") and not grammar.sees(")"):
        if null_place is None and grammar.take("NOT", "NULL"):
            nullable = False
        elif grammar.sees("DEFAULT") and default is None:
            _only_in_a_table(grammar, kind, "DEFAULT")
            grammar.expect("DEFAULT")
            default = grammar.default_value()
        elif grammar.sees("PRIMARY KEY"):
            _only_in_a_table(grammar, kind, "PRIMARY KEY")
            _set_key(grammar, body, name)
        elif _sees_check(grammar):
            _only_in_a_table(grammar, kind, "CHECK")
            body.checks.append(_check(grammar, name))
        elif grammar.sees_kind(TokenType.NULL) and nullable:
            start = grammar.position
            grammar.expect("NULL")
            null_place = grammar.place_since(start)
        else:
            grammar.refuse_unexpected(
                ", or )", "After a type: NOT NULL, DEFAULT value, PRIMARY KEY, CHECK (condition)."
            )
    return ColumnDef(name, column_type, nullable, default, null_place)


def _sees_check(grammar: Grammar) -> bool:
    # `check` and `constraint` alone may be names of columns.
    named = (
        grammar.sees("CONSTRAINT") and grammar.sees_name(ahead=1) and not grammar.sees_kind(TokenType.COMMA, ahead=2)
    )
    return grammar.sees("CHECK", "(") or (named and grammar.token_ahead(2).text.upper() in ("CHECK", "PRIMARY KEY"))


def _check(grammar: Grammar, column: Name | None) -> CheckDef:
    """[CONSTRAINT name] CHECK (condition)"""
    start = grammar.position
    name = grammar.name("a constraint's name") if grammar.take("CONSTRAINT") else None
    if not grammar.take("CHECK"):
        grammar.refuse_unexpected("CHECK", "Only CHECK constraints have a name; PRIMARY KEY is written without one.")
    grammar.expect("(")
    condition = grammar.condition()
    grammar.expect(")")
    return CheckDef(condition, name, grammar.place_since(start), column)


def _take_watermark(grammar: Grammar, body: _Body, kind: str) -> None:
    """WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS; AS ts alone allows no delay."""
    start = grammar.position
    if kind != "stream":
        grammar.refuse("WATERMARK is only for streams.", hint="Declare it in CREATE STREAM.")
    if body.watermark:
        grammar.refuse("A stream has only one WATERMARK, but this is the second.")
    grammar.expect("WATERMARK", "FOR")
    column = grammar.name("a column's name")
    grammar.expect("AS")
    again = grammar.here
    hint = f"Write WATERMARK FOR {column} AS {column} - INTERVAL 5 SECONDS."
    if grammar.name("the same column").key != column.key:
        grammar.refuse(f"The watermark for '{column}' must be computed from '{column}'.", token=again, hint=hint)
    delay_us = 0
    if grammar.take("-"):
        delay_us = grammar.duration(hint)
    elif not grammar.sees(",") and not grammar.sees(")"):
        grammar.refuse_unexpected("-", hint)
    body.watermark = Watermark(column, delay_us, grammar.place_since(start))
