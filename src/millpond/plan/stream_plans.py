"""Planning of CREATE STREAM and CREATE VIEW: names for sources and for queries."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import Mode
from millpond.errors import did_you_mean
from millpond.plan.binder import Binder
from millpond.plan.catalog import Relation, RelationKind, broken
from millpond.plan.context import Context, Planned
from millpond.plan.declarations import request_of
from millpond.plan.model import NamedQuery, StreamPlan
from millpond.plan.outputs import name_outputs
from millpond.plan.source_catalog import find_source, read_uri
from millpond.plan.statement_relations import StatementRelations, stream_of, written_in
from millpond.plan.with_clauses import Clauses, read_clauses
from millpond.redact import redact
from millpond.schema import Schema, type_name
from millpond.sql.dialect import MILLPOND
from millpond.sql.statements import CreateStream, CreateView


def define_stream(statement: CreateStream, context: Context) -> Relation:
    """The relation that a CREATE STREAM declares; an invalid one is `broken`."""
    if statement.query is not None:
        return _derived(statement, statement.query, context)
    clauses = read_clauses(statement, None, context.catalog, context.findings)
    return _sourced(statement, clauses, context)


def _sourced(statement: CreateStream, clauses: Clauses, context: Context) -> Relation:
    name = statement.name.text
    request = request_of(statement, context, clauses)
    assert request is not None
    uri = read_uri(request.uri, request.place, context.findings)
    plugin = find_source(uri, request.place, context.findings) if uri else None
    if plugin is None:
        return replace(broken(name, RelationKind.STREAM), columns=request.columns)
    opened = context.sources.open(request)
    if opened is None:
        return replace(broken(name, RelationKind.STREAM), columns=request.columns)
    if opened.plan.mode is not Mode.APPEND:
        hint = f"Write CREATE TABLE {name} AS SELECT * FROM {redact(request.uri)};"
        if plugin.open_changes is not None:
            hint += " Its changes are a stream WITH ('cdc' = 'true')."
        context.findings.error("MP215", f"{redact(request.uri)} is a table, not a stream.", request.place, hint)
        return broken(name)
    context.flow_options[opened.plan.id] = {**context.flow_options.get(opened.plan.id, {}), **clauses.statement}
    relation = replace(stream_of(opened, name), watermark=statement.watermark)
    if statement.watermark is not None:
        context.watermarks[opened.plan.id] = statement.watermark
    _check_watermark(statement, relation.columns, context)
    _keep(statement, relation, (opened.plan.id,), context)
    return relation


def _keep(statement: CreateStream, relation: Relation, sources: tuple[str, ...], context: Context) -> None:
    context.streams[statement.name.key] = StreamPlan(
        statement.name.text,
        sources[0],
        relation.columns,
        relation.watermark,
        statement.query is not None,
        statement.name.place,
        sources[1:],
    )


def _check_watermark(statement: CreateStream, columns: Schema | None, context: Context) -> None:
    watermark = statement.watermark
    if watermark is None or columns is None:
        return
    column = columns.get(watermark.column.text)
    if column is None:
        message = f"Stream '{statement.name}' has no column '{watermark.column}'."
        hint = did_you_mean(watermark.column.text, columns.names) or f"Its columns are: {', '.join(columns.names)}."
        context.findings.error("MP202", message, watermark.column.place, hint)
    elif column.type is not None and not pa.types.is_timestamp(column.type):
        message = f"The watermark's column '{column.name}' is {type_name(column.type)}, not TIMESTAMP."
        context.findings.error("MP206", message, watermark.column.place, f"Declare {column.name} TIMESTAMP.")


def _derived(statement: CreateStream, query: exp.Query, context: Context) -> Relation:
    name, before = statement.name.text, context.findings.errors
    tree = written_in(query.copy(), context)
    clauses = read_clauses(statement, tree, context.catalog, context.findings)
    bound = Binder(context.findings, StatementRelations(context, clauses), name).bind(tree)
    context.planned.append(Planned(statement, context.index(statement), bound=bound))
    if not bound.drivers:
        if context.findings.errors == before and not any(r.relation.wrong for r in bound.references):
            message = f"The query of stream '{name}' reads no stream."
            hint = f"Write CREATE TABLE {name} AS SELECT ...: it is refreshed when its tables change."
            context.findings.error("MP215", message, statement.name.place, hint)
        return replace(broken(name, RelationKind.STREAM), columns=bound.schema)
    relation = Relation(
        name,
        RelationKind.STREAM,
        bound.schema,
        drivers=bound.drivers,
        query=bound.query,
        watermark=statement.watermark or bound.watermark,
        tables=bound.tables,
    )
    _keep(statement, relation, context.behind(bound.drivers), context)
    return relation


def define_view(statement: CreateView, context: Context) -> Relation:
    """The relation that a CREATE VIEW declares; an invalid one is `broken`."""
    name, before = statement.name.text, context.findings.errors
    tree = written_in(statement.query.copy(), context)
    clauses = read_clauses(statement, tree, context.catalog, context.findings)
    bound = Binder(context.findings, StatementRelations(context, clauses), name).bind(tree)
    if bound.drivers:
        return define_stream(_as_stream(statement, context), context)
    bound = name_outputs(bound, f"view '{name}'", context.findings)
    context.planned.append(Planned(statement, context.index(statement), bound=bound))
    if context.findings.errors > before or any(r.relation.wrong for r in bound.references):
        return broken(name)
    hidden = any(t.lower() in context.hidden for t in bound.tables)
    context.views[statement.name.key] = NamedQuery(
        name, "" if hidden else statement.query.sql(dialect=MILLPOND), bound.schema, bound.tables, statement.name.place
    )
    return Relation(name, RelationKind.TABLE, bound.schema, query=statement.query)


def _as_stream(statement: CreateView, context: Context) -> CreateStream:
    made = CreateStream(
        place=statement.place,
        text=statement.text,
        code=statement.code,
        name=statement.name,
        query=statement.query,
        options=statement.options,
    )
    context.positions = {**context.positions, id(made): context.index(statement)}
    return made
