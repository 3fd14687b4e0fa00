"""Changes of one-shot statements: INSERT, UPSERT, UPDATE, DELETE and MERGE without a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import WriteTable
from millpond.engine.merge import insert_or_change, merge
from millpond.engine.row_sets import ROW_NUMBER, numbered, swap_rows, with_columns
from millpond.engine.spark.evaluate import constant
from millpond.engine.spark.spark_errors import translate
from millpond.engine.upsert_on import apply_rows, take_apart
from millpond.engine.work import Work
from millpond.errors import MillpondError, TableError
from millpond.plan.expression_types import as_expression
from millpond.plan.model import BATCH, OneShot
from millpond.plan.row_parts import matches_by_key
from millpond.schema import Column, type_name
from millpond.sql.nodes import Default
from millpond.sql.parser import parse_expression
from millpond.sql.statements import Delete, Insert, Merge, Name, Update, Upsert
from millpond.tables.row_conversion import incoming


def change(work: Work, shot: OneShot) -> int:
    """Run one statement in a transaction; returns the number of changed rows. Errors get the statement's place."""
    statement = shot.statement
    try:
        changed = RUNNERS[type(statement)](work, shot)
    except MillpondError as error:
        raise error.at(statement.place) from error
    except Exception as error:
        raise translate(error, statement.place, work.cache.several) from error
    if changed:
        work.mark_changed(_target(statement))
    return changed


def _target(statement: Any) -> str:
    name = statement.table if isinstance(statement, Update | Delete | Merge) else statement.target
    return str(name)


def _insert(work: Work, shot: OneShot) -> int:
    assert isinstance(shot.statement, Insert)
    table = work.table(_target(shot.statement))
    rows = _rows(work, shot, table)
    if shot.conflict is not None:
        return insert_or_change(work, table, _whole(work, table, rows), shot.conflict)
    return table.insert(rows)


def _whole(work: Work, table: WriteTable, rows: Any) -> pa.Table:
    """Rows with all columns of the table, in its types; absent columns get their default."""
    made = []
    for group in incoming(table.name, table.schema, rows):
        absent = [c for c in table.schema if c.name not in group.columns]
        defaults = {c.name: pa.array([_default(work, c)] * group.rows, c.type) for c in absent}
        made.append(group.batch(table.schema, defaults))
    return pa.Table.from_batches(made, schema=table.schema.arrow())


def _default(work: Work, column: Column) -> Any:
    if column.default is None:
        return None
    cast = exp.cast(parse_expression(column.default), type_name(column.type), dialect="spark")
    return _constant(work, as_expression(cast))


def _upsert(work: Work, shot: OneShot) -> int:
    assert isinstance(shot.statement, Upsert)
    table = work.table(_target(shot.statement))
    if shot.condition is None or shot.query is None:
        return table.upsert(_rows(work, shot, table))
    if matches_by_key(shot.query, shot.condition, shot.columns, table.name, table.schema):
        return table.upsert(_rows(work, shot, table))
    return _upsert_on(work, shot, table)


def _upsert_on(work: Work, shot: OneShot, table: WriteTable) -> int:
    """UPSERT ... ON: rows are matched by a condition; the first row that the table rejects fails the statement."""
    assert shot.query is not None
    assert shot.condition is not None
    matching = take_apart(shot.query, shot.condition, shot.columns, table)
    names = [table.schema[name].name for name in shot.columns]
    rows = work.rows(matching.query).rename_columns([*names, *matching.extra])
    for error in apply_rows(table, matching, rows):
        if error is not None:
            raise error
    return int(rows.num_rows)


def _rows(work: Work, shot: OneShot, table: WriteTable) -> Any:
    """The rows of VALUES as dicts (without DEFAULT), or of a query as Arrow, with the target's column names."""
    names = [table.schema[name].name for name in shot.columns]
    if shot.query is not None:
        return work.rows(shot.query).rename_columns(names)
    return [
        {n: _constant(work, v) for n, v in zip(names, row, strict=True) if not isinstance(v, Default)}
        for row in shot.rows
    ]


def _constant(work: Work, expression: exp.Expression) -> Any:
    """The value of an expression without columns; a subquery in it reads the current tables."""
    if not _needs_spark(expression):
        return constant(work.views.spark, expression)
    return work.rows(exp.select(exp.alias_(expression.copy(), "v")))["v"][0].as_py()


def _update(work: Work, shot: OneShot) -> int:
    statement = shot.statement
    assert isinstance(statement, Update)
    table = work.table(statement.table.text)
    sets = {table.schema[name].name: _value(table, name, value) for name, value in shot.assignments}
    if statement.source is None and not _needs_spark(shot.condition, *sets.values()):
        own = _own_names(statement.table, statement.alias)
        plain = {name: _unqualified(value, own) for name, value in sets.items()}
        return table.update(_unqualified(shot.condition, own) if shot.condition else exp.true(), plain)
    rows = table.to_arrow()
    new = _selected(work, shot, rows, sets)
    if not new.num_rows:
        return 0
    _require_one_each(table, rows, new[ROW_NUMBER])
    picked = with_columns(rows.take(new[ROW_NUMBER]), new.drop_columns([ROW_NUMBER]), table.schema.arrow())
    return swap_rows(table, rows, new[ROW_NUMBER], picked)


def _delete(work: Work, shot: OneShot) -> int:
    statement = shot.statement
    assert isinstance(statement, Delete)
    table = work.table(statement.table.text)
    if statement.source is None and not _needs_spark(shot.condition):
        own = _own_names(statement.table, statement.alias)
        return table.delete(_unqualified(shot.condition, own) if shot.condition else exp.true())
    rows = table.to_arrow()
    gone = _selected(work, shot, rows, {})
    return swap_rows(table, rows, gone[ROW_NUMBER], rows.slice(0, 0)) if gone.num_rows else 0


RUNNERS: dict[type, Callable[[Work, OneShot], int]] = {
    Insert: _insert,
    Upsert: _upsert,
    Update: _update,
    Delete: _delete,
    Merge: merge,
}


def _value(table: WriteTable, name: str, value: exp.Expression) -> exp.Expression:
    if not isinstance(value, Default):
        return value
    default = table.schema[name].default
    return parse_expression(default) if default else exp.Null()


def _needs_spark(*expressions: exp.Expression | None) -> bool:
    """Whether an expression has a subquery, which needs a query; everything else the table evaluates itself."""
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
    """The numbers of the rows for which WHERE is true, with the new values, by one query. With FROM or USING, a row
    that matches several rows is returned once for each distinct set of new values."""
    statement = shot.statement
    assert isinstance(statement, Update | Delete)
    alias = (statement.alias or statement.table).text
    schema = work.table(statement.table.text).schema
    types = {name: type_name(schema[name].type) for name in sets}
    casts = {name: exp.cast(_unnamed(value), types[name], dialect="spark") for name, value in sets.items()}
    values = [exp.alias_(value, name, quoted=True) for name, value in casts.items()]
    number = exp.column(ROW_NUMBER, table=alias, quoted=True)
    target = exp.alias_(exp.to_table(BATCH), alias, table=True, quoted=True)
    if statement.source is None:
        query = exp.select(number, *values).from_(target)
        query = query.where(shot.condition.copy()) if shot.condition is not None else query
    else:
        query = _joined_with(shot.query, alias, target)
        query.set("expressions", [number, *values])
        query = query.distinct()
    return work.rows(query, numbered(rows))


def _unnamed(value: exp.Expression) -> exp.Expression:
    """A value for use in a call: a subquery as an output has an alias, which is removed."""
    made = value.copy()
    if isinstance(made, exp.Subquery):
        made.set("alias", None)
    return made


def _joined_with(query: exp.Query | None, alias: str, target: exp.Expr) -> exp.Select:
    """The query of a change with the changed table replaced by other rows."""
    assert isinstance(query, exp.Select)
    found = query.copy()
    join = next(j for j in found.args["joins"] if j.this.alias_or_name.lower() == alias.lower())
    join.set("this", target)
    return found


def _require_one_each(table: WriteTable, rows: pa.Table, positions: pa.ChunkedArray) -> None:
    """MP412 if several rows of FROM would set different values in one row."""
    if len(positions.unique()) == len(positions):
        return
    counted = positions.value_counts().to_pylist()
    twice = next(entry["values"] for entry in counted if entry["counts"] > 1)
    row = rows.slice(twice, 1).select(list(table.schema.key or table.schema.names)).to_pylist()[0]
    shown = ", ".join(f"{name} = {value!r}" for name, value in row.items())
    message = f"Several rows of FROM set different values in one row of '{table.name}' ({shown})."
    raise TableError(
        "MP412", message, hint="Add a condition to WHERE that selects one of them, or aggregate them in a subquery."
    )
