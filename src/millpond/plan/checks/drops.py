"""Check: the objects of DROP, DESCRIBE, SHOW OPTIONS and CREATE INDEX exist and have the right kind."""

from __future__ import annotations

from collections.abc import Iterator

from millpond import registry
from millpond.errors import Problem, did_you_mean
from millpond.plan.checks.subject import Subject
from millpond.sql.statements import (
    CreateIndex,
    CreateStream,
    CreateTable,
    CreateView,
    Describe,
    Drop,
    Name,
    Show,
    Statement,
)


def check(subject: Subject) -> Iterator[Problem]:
    declared: dict[str, Statement] = {}
    for statement in subject.statements:
        if isinstance(statement, CreateStream | CreateTable | CreateView):
            declared[statement.name.key] = statement
        elif isinstance(statement, Drop):
            yield from _drop(subject, statement, declared)
        elif isinstance(statement, Describe):
            yield from _known(subject, statement.name)
        elif isinstance(statement, Show):
            yield from _options(subject, statement)
        elif isinstance(statement, CreateIndex):
            yield from _index(subject, statement)


def _drop(subject: Subject, statement: Drop, declared: dict[str, Statement]) -> Iterator[Problem]:
    if statement.kind.upper() == "INDEX":
        return
    name = statement.name
    created = declared.pop(name.key, None)
    if created is not None:
        message = f"'{name}' is created in line {created.place.line} and dropped here."
        yield subject.problem("MP223", message, name.place, "Remove one of the two statements.")
    elif not statement.if_exists and not subject.catalog.declares(name.text):
        hint = did_you_mean(name.text, subject.catalog) or f"Write DROP {statement.kind.upper()} IF EXISTS {name};"
        yield subject.problem("MP201", f"There is no stream, table or view '{name}'.", name.place, hint)


def _known(subject: Subject, name: Name) -> Iterator[Problem]:
    if subject.catalog.find(name.text) is None:
        hint = did_you_mean(name.text, subject.catalog) or "SHOW TABLES lists the tables."
        yield subject.problem("MP201", f"There is no stream, table or view '{name}'.", name.place, hint)


def _options(subject: Subject, statement: Show) -> Iterator[Problem]:
    asked = statement.subject
    if (
        asked is None
        or statement.kind != "OPTIONS"
        or asked.key == "app"
        or any(registry.registration_of(kind, asked.key) for kind in registry.GROUPS)
    ):
        return
    names = ["app", *dict.fromkeys(name for kind in registry.GROUPS for name in registry.names(kind))]
    hint = did_you_mean(asked.text, names) or f"Available: {', '.join(names)}."
    yield subject.problem("MP308", f"There is no connector '{asked}'.", asked.place, hint)


def _index(subject: Subject, statement: CreateIndex) -> Iterator[Problem]:
    yield from _known(subject, statement.table)
    relation = subject.catalog.find(statement.table.text)
    if relation is None:
        return
    if relation.query is not None and not relation.is_stream:
        message = f"An index requires a table, but '{statement.table}' is a view, which stores no rows."
        hint = f"Index the tables that it reads, or store it: CREATE TABLE {statement.table} AS SELECT ...;"
        yield subject.problem("MP215", message, statement.table.place, hint)
        return
    if relation.is_stream:
        message = f"An index requires a table, but '{statement.table}' is a stream."
        yield subject.problem("MP215", message, statement.table.place, "Store the stream in a table first.")
        return
    for column in statement.columns:
        if relation.columns is not None and column.text not in relation.columns:
            names = relation.columns.names
            hint = did_you_mean(column.text, names) or f"Its columns are: {', '.join(names)}."
            message = f"Table '{relation.name}' has no column '{column}'."
            yield subject.problem("MP202", message, column.place, hint)
