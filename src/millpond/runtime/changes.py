"""Statements that change tables at once, without a stream: INSERT, UPSERT, UPDATE, DELETE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import WriteTable
from millpond.errors import MillpondError
from millpond.plan.model import BATCH, OneShot
from millpond.plan.upserts import matches_by_key
from millpond.runtime.access import arrow_frame
from millpond.runtime.evaluate import constant
from millpond.runtime.matching import apply_rows, take_apart
from millpond.runtime.rows import ROW_NUMBER, numbered, swap_rows, with_columns
from millpond.runtime.spark_errors import translate
from millpond.runtime.work import Work
from millpond.sql.nodes import Default
from millpond.sql.parser import parse_expression
from millpond.sql.statements import Delete, Insert, Name, Update, Upsert


def change(work: Work, shot: OneShot) -> int:
    """Run one statement in a transaction; returns the rows changed, and an error carries the statement's place."""
    statement = shot.statement
    try:
        changed = RUNNERS[type(statement)](work, shot)
    except MillpondError as error:
        raise error.at(statement.place) from error
    except Exception as error:
        raise translate(error, statement.place) from error
    if changed:
        work.mark_changed(_target(statement))
    return changed


def _target(statement: Any) -> str:
    name = statement.table if isinstance(statement, Update | Delete) else statement.target
    return str(name)


def _insert(work: Work, shot: OneShot) -> int:
    assert isinstance(shot.statement, Insert)
    table = work.table(_target(shot.statement))
    return table.insert(_rows(work, shot, table))


def _upsert(work: Work, shot: OneShot) -> int:
    assert isinstance(shot.statement, Upsert)
    table = work.table(_target(shot.statement))
    if shot.condition is None or shot.query is None:
        return table.upsert(_rows(work, shot, table))
    if matches_by_key(shot.query, shot.condition, shot.columns, table.name, table.schema):
        return table.upsert(_rows(work, shot, table))
    return _upsert_on(work, shot, table)


def _upsert_on(work: Work, shot: OneShot, table: WriteTable) -> int:
    """Rows matched by a condition; the first that the table refuses fails the statement."""
    assert shot.query is not None
    assert shot.condition is not None
    matching = take_apart(shot.query, shot.condition, table.name)
    names = [table.schema[name].name for name in shot.columns]
    rows = work.query(matching.query).toArrow().rename_columns([*names, *matching.extra])
    for error in apply_rows(table, matching, rows):
        if error is not None:
            raise error
    return int(rows.num_rows)


def _rows(work: Work, shot: OneShot, table: WriteTable) -> Any:
    """The rows of VALUES as dicts (a DEFAULT is left out), or of a query as Arrow, under the target's names."""
    names = [table.schema[name].name for name in shot.columns]
    if shot.query is not None:
        return work.query(shot.query).toArrow().rename_columns(names)
    return [
        {n: _constant(work, v) for n, v in zip(names, row, strict=True) if not isinstance(v, Default)}
        for row in shot.rows
    ]


def _constant(work: Work, expression: exp.Expression) -> Any:
    """The value of an expression without columns; a subquery in it reads tables as they are now."""
    if not _needs_spark(expression):
        return constant(work.views.spark, expression)
    return work.query(exp.select(exp.alias_(expression.copy(), "v"))).toArrow()["v"][0].as_py()


def _update(work: Work, shot: OneShot) -> int:
    statement = shot.statement
    assert isinstance(statement, Update)
    table = work.table(statement.table.text)
    sets = {table.schema[name].name: _value(table, name, value) for name, value in shot.assignments}
    if not _needs_spark(shot.condition, *sets.values()):
        own = _own_names(statement.table, statement.alias)
        plain = {name: _unqualified(value, own) for name, value in sets.items()}
        return table.update(_unqualified(shot.condition, own) if shot.condition else None, plain)
    rows = table.to_arrow()
    new = _selected(work, shot, rows, sets)
    if not new.num_rows:
        return 0
    picked = with_columns(rows.take(new[ROW_NUMBER]), new.drop_columns([ROW_NUMBER]), table.schema.arrow())
    return swap_rows(table, rows, new[ROW_NUMBER], picked)


def _delete(work: Work, shot: OneShot) -> int:
    statement = shot.statement
    assert isinstance(statement, Delete)
    table = work.table(statement.table.text)
    if not _needs_spark(shot.condition):
        own = _own_names(statement.table, statement.alias)
        return table.delete(_unqualified(shot.condition, own) if shot.condition else None)
    rows = table.to_arrow()
    gone = _selected(work, shot, rows, {})
    return swap_rows(table, rows, gone[ROW_NUMBER], rows.slice(0, 0)) if gone.num_rows else 0


RUNNERS: dict[type, Callable[[Work, OneShot], int]] = {
    Insert: _insert,
    Upsert: _upsert,
    Update: _update,
    Delete: _delete,
}


def _value(table: WriteTable, name: str, value: exp.Expression) -> exp.Expression:
    if not isinstance(value, Default):
        return value
    default = table.schema[name].default
    return parse_expression(default) if default else exp.Null()


def _needs_spark(*expressions: exp.Expression | None) -> bool:
    """Subqueries over other tables are Spark's work; everything else the table evaluates itself."""
    return any(e is not None and e.find(exp.Select) is not None for e in expressions)


def _own_names(table: Name, alias: Name | None) -> set[str]:
    return {table.key} | ({alias.key} if alias else set())


def _unqualified(expression: exp.Expression, own: set[str]) -> exp.Expression:
    """`users.tier` as `tier`, for an expression over one table."""

    def strip(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column) and node.table.lower() in own:
            return exp.column(node.this.copy())
        return node

    return expression.transform(strip)


def _selected(work: Work, shot: OneShot, rows: pa.Table, sets: dict[str, exp.Expression]) -> pa.Table:
    """The numbers of the rows for which WHERE holds, with the new values: one query on Spark."""
    statement = shot.statement
    assert isinstance(statement, Update | Delete)
    alias = (statement.alias or statement.table).text
    values = [exp.alias_(value.copy(), name, quoted=True) for name, value in sets.items()]
    query = exp.select(exp.column(ROW_NUMBER, table=alias, quoted=True), *values)
    query = query.from_(exp.alias_(exp.to_table(BATCH), alias, table=True, quoted=True))
    if shot.condition is not None:
        query = query.where(shot.condition.copy())
    return work.query(query, arrow_frame(work.views.session, numbered(rows))).toArrow()
