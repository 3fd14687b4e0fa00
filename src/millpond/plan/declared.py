"""What CREATE STREAM and CREATE TABLE declare: columns, and the source that a stream names."""

from __future__ import annotations

from millpond.plan.context import Context
from millpond.plan.sources import SourceRequest
from millpond.plan.with_clauses import Clauses, read_clauses
from millpond.schema import Column, Schema
from millpond.sql.dialect import MILLPOND
from millpond.sql.statements import ColumnDef, CreateStream


def declared_schema(columns: tuple[ColumnDef, ...], context: Context, owner: str) -> Schema:
    """The declared columns; one declared twice is a finding and kept once."""
    kept: dict[str, Column] = {}
    for column in columns:
        if column.name.key in kept:
            message = f"{owner} declares column '{column.name}' twice."
            context.findings.error("MP205", message, column.name.place, "Remove one of them.")
            continue
        default = None if column.default is None else column.default.sql(dialect=MILLPOND)
        kept[column.name.key] = Column(column.name.text, column.type, column.nullable, default)
    return Schema.of(kept.values())


def request_of(statement: CreateStream, context: Context, clauses: Clauses | None = None) -> SourceRequest | None:
    """How a declared stream names its source; None for a derived one."""
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
