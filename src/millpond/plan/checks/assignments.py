"""Check: inserted and assigned values match the table: number of columns, types, NOT NULL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Place, Problem
from millpond.expressions.result_types import assignable
from millpond.plan.checks.subject import Subject
from millpond.plan.context import Planned
from millpond.plan.expression_types import type_of
from millpond.plan.model import TableKind
from millpond.plan.outputs import counted
from millpond.schema import Column, Schema, type_name
from millpond.sql import nodes
from millpond.sql.statements import Insert, Merge, Update, Upsert, When


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        schema = _target(subject, planned)
        if schema is None:
            continue
        if isinstance(planned.statement, Insert | Upsert):
            yield from _inserted(subject, planned, schema)
            if planned.conflict is not None:
                yield from _set(subject, planned, planned.conflict.assignments, schema)
        elif isinstance(planned.statement, Update):
            yield from _set(subject, planned, planned.assignments, schema)
        elif isinstance(planned.statement, Merge):
            yield from _merged(subject, planned, planned.statement, schema)


def _set(
    subject: Subject, planned: Planned, values: Iterable[tuple[str, exp.Expr]], schema: Schema
) -> Iterator[Problem]:
    for name, value in values:
        if name in schema:
            yield from _fits(subject, value, schema[name], _place(planned))


def _merged(subject: Subject, planned: Planned, statement: Merge, schema: Schema) -> Iterator[Problem]:
    outputs = planned.bound.query.expressions if planned.bound is not None else []
    for branch, clause in zip(planned.branches, statement.clauses, strict=True):
        yield from _set(subject, planned, ((name, outputs[n].unalias()) for name, n in branch.values), schema)
        if branch.when is When.NOT_MATCHED and branch.values:
            yield from _omitted(subject, planned, schema, {name.lower() for name, _ in branch.values}, clause.place)


def _target(subject: Subject, planned: Planned) -> Schema | None:
    table = subject.tables.get(planned.target.lower())
    return table.spec.schema if table is not None and table.kind is TableKind.DECLARED else None


def _place(planned: Planned) -> Place:
    statement = planned.statement
    return statement.target.place if isinstance(statement, Insert | Upsert) else statement.place


def _inserted(subject: Subject, planned: Planned, schema: Schema) -> Iterator[Problem]:
    names = planned.columns
    for row in planned.rows:
        if len(row) != len(names):
            yield _count(subject, planned, len(row), row[0] if row else None)
            continue
        for name, value in zip(names, row, strict=True):
            if name in schema:
                yield from _fits(subject, value, schema[name], _place(planned))
    outputs = planned.bound.outputs if planned.bound else None
    if outputs is None:
        yield from _omitted(subject, planned, schema, _given(planned), _place(planned))
        return
    if len(outputs) != len(names):
        yield _count(subject, planned, len(outputs), None)
        return
    for name, output in zip(names, outputs, strict=True):
        if name in schema:
            yield from _fits(subject, output.expr, schema[name], _place(planned))
    yield from _omitted(subject, planned, schema, _given(planned), _place(planned))


def _given(planned: Planned) -> set[str]:
    return {name.lower() for name in planned.columns}


def _count(subject: Subject, planned: Planned, given: int, at: exp.Expr | None) -> Problem:
    statement = planned.statement
    assert isinstance(statement, Insert | Upsert)
    wanted = ", ".join(planned.columns)
    columns = counted(len(planned.columns), "column")
    listed = f"{columns} in the list" if statement.columns is not None else f"Table '{planned.target}' has {columns}"
    message = f"{listed}, but {counted(given, 'value', 'is')} given."
    place = at if at is not None else statement.target.place
    return subject.problem("MP207", message, place, f"Write a value for each of: {wanted}.")


def _fits(subject: Subject, value: exp.Expr, column: Column, otherwise: Place) -> Iterator[Problem]:
    at = subject.at(value, otherwise)
    if isinstance(value, nodes.Default):
        if column.default is None and not column.nullable:
            message = f"Column '{column.name}' is NOT NULL and has no default."
            yield subject.problem("MP225", message, at, "Write a value instead of DEFAULT.")
        return
    found = type_of(value)
    if found is None or column.type is None:
        return
    if pa.types.is_null(found):
        if not column.nullable and isinstance(value, exp.Null):
            message = f"Column '{column.name}' is NOT NULL."
            yield subject.problem("MP225", message, at, "Write a value, or DEFAULT if it has one.")
        return
    if not assignable(found, column.type):
        message = f"{type_name(found)} cannot be stored in column '{column.name}' of type {type_name(column.type)}."
        yield subject.problem("MP206", message, at, f"Cast it: CAST(... AS {type_name(column.type)}).")


def _omitted(subject: Subject, planned: Planned, schema: Schema, given: set[str], place: Place) -> Iterator[Problem]:
    """Columns without a value must be nullable or have a default; a partial UPSERT keeps the values of existing
    rows."""
    statement = planned.statement
    for column in schema:
        if column.name.lower() in given:
            continue
        if column.name in schema.key:
            message = f"Key column '{column.name}' of table '{planned.target}' has no value."
            yield subject.problem("MP208", message, place, f"Add {column.name} to the columns.")
        elif not column.nullable and column.default is None and not isinstance(statement, Upsert):
            message = f"Column '{column.name}' of table '{planned.target}' is NOT NULL but has no value."
            yield subject.problem("MP225", message, place, f"Add {column.name} to the columns, or declare a DEFAULT.")
