"""Check: UPSERT has a key or ON, and the types of key columns can be compared."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millpond.contracts.table import TableSpec
from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.model import TableKind
from millpond.schema import type_name
from millpond.sql.statements import CreateTable, Upsert


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        if isinstance(planned.statement, Upsert):
            yield from _upsert(subject, planned.statement)
        elif isinstance(planned.statement, CreateTable):
            yield from _types(subject, planned.statement)


def _upsert(subject: Subject, statement: Upsert) -> Iterator[Problem]:
    table = subject.tables.get(statement.target.key)
    if table is None or table.kind is not TableKind.DECLARED or table.spec.schema.key or statement.on is not None:
        return
    message = f"UPSERT into '{table.name}' requires a PRIMARY KEY, which the table does not have."
    hint = "Declare a PRIMARY KEY, or add ON with a condition that identifies the row."
    yield subject.problem("MP208", message, statement.target.place, hint)


def _types(subject: Subject, statement: CreateTable) -> Iterator[Problem]:
    table = subject.tables.get(statement.name.key)
    if table is None:
        return
    schema = table.spec.schema
    for name in schema.key:
        column = schema.get(name)
        if column is not None and column.type is not None and not _can_be_key(column.type, table.spec):
            message = f"Column '{name}' of type {type_name(column.type)} cannot be part of a key."
            place = next((n.place for n in statement.key if n.key == name.lower()), statement.name.place)
            yield subject.problem("MP208", message, place, _hint(column.type, table.spec))


def _can_be_key(type_: pa.DataType, spec: TableSpec) -> bool:
    """Whether values can be compared as a key; in a table of groups, which is not looked up by users, also structs and
    arrays."""
    if not pa.types.is_nested(type_):
        return True
    return spec.null_keys and spec.backend == "memory" and not pa.types.is_map(type_)


def _hint(type_: pa.DataType, spec: TableSpec) -> str:
    if not spec.null_keys:
        return "Use columns of simple types as the key."
    if pa.types.is_map(type_):
        return "Group by its entries: sort_array(map_entries(...))."
    return "Use 'backend' = 'memory', or group by its parts."
