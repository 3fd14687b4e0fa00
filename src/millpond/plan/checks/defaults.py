"""Check: a DEFAULT has the type of its column, and is a constant."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Problem
from millpond.expressions.result_types import assignable
from millpond.plan.checks.subject import Subject
from millpond.plan.expression_types import type_of
from millpond.schema import type_name
from millpond.sql.statements import ColumnDef, CreateStream, CreateTable


def check(subject: Subject) -> Iterator[Problem]:
    for statement in subject.statements:
        if isinstance(statement, CreateTable | CreateStream):
            for column in statement.columns or ():
                if column.default is not None:
                    yield from _column(subject, column, column.default)


def _column(subject: Subject, column: ColumnDef, default: exp.Expression) -> Iterator[Problem]:
    at = subject.at(default, column.name.place)
    if default.find(exp.Column, exp.Query) is not None:
        message = f"The default of '{column.name}' must be a constant."
        yield subject.problem("MP225", message, at, "A default cannot refer to columns or tables.")
        return
    found = type_of(default)
    if found is not None and pa.types.is_null(found):
        if not column.nullable:
            message = f"Column '{column.name}' is NOT NULL, but its default is NULL."
            yield subject.problem("MP225", message, at, "Write another default, or remove NOT NULL.")
    elif found is not None and not assignable(found, column.type):
        message = f"The default of '{column.name}' is {type_name(found)}, but the column is {type_name(column.type)}."
        yield subject.problem("MP225", message, at, f"Write a default of type {type_name(column.type)}.")
