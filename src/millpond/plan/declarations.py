"""The declarations of CREATE STREAM and CREATE TABLE: columns, and the source of a stream."""

from __future__ import annotations

from millpond.plan.context import Context
from millpond.plan.source_catalog import SourceRequest
from millpond.plan.with_clauses import Clauses, read_clauses
from millpond.schema import Column, Schema
from millpond.sql.dialect import MILLPOND
from millpond.sql.statements import ColumnDef, CreateStream

# The names of hidden columns of sources, and of the operation column of CHANGES.
_HIDDEN = {"_source", "_partition", "_offset", "_timestamp", "_key", "_headers", "_op"}
_OURS = ("_mp_", "__mp_")


def is_reserved(name: str) -> bool:
    """Whether a column name is reserved for Millpond's own columns."""
    return name.lower() in _HIDDEN or name.lower().startswith(_OURS)


def declared_schema(columns: tuple[ColumnDef, ...], context: Context, owner: str) -> Schema:
    """The declared columns; a duplicate is a finding and used once."""
    kept: dict[str, Column] = {}
    for column in columns:
        if is_reserved(column.name.text):
            message = f"{owner} declares column '{column.name}', which is a reserved name."
            hint = "Choose another name, for example without the leading underscore."
            context.findings.error("MP228", message, column.name.place, hint)
        if column.name.key in kept:
            message = f"{owner} declares column '{column.name}' twice."
            context.findings.error("MP205", message, column.name.place, "Remove one of them.")
            continue
        default = None if column.default is None else column.default.sql(dialect=MILLPOND)
        kept[column.name.key] = Column(column.name.text, column.type, column.nullable, default)
    return Schema.of(kept.values())


def request_of(statement: CreateStream, context: Context, clauses: Clauses | None = None) -> SourceRequest | None:
    """The source of a declared stream; None for a derived one."""
    if statement.source is None:
        return None
    if clauses is None:
        clauses = read_clauses(statement, None, context.catalog, context.findings)
    columns = None
    if statement.columns is not None:
        columns = declared_schema(statement.columns, context, f"Stream '{statement.name}'")
    return SourceRequest(
        statement.source.uri,
        statement.source.place,
        clauses.of_source(statement.source),
        statement.name.text,
        columns,
        statement.watermark,
    )
