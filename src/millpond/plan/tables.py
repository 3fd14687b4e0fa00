"""CREATE TABLE: declared, loaded from a source, kept by a flow, or a view over other tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from millpond import registry
from millpond.contracts.source import IDENTITY
from millpond.contracts.table import BackendPlugin, TableSpec
from millpond.errors import MillpondError
from millpond.options import complete
from millpond.plan.access import Ways, choose_access, without_hints
from millpond.plan.aggregates import plan_aggregate
from millpond.plan.binder import Binder
from millpond.plan.bound import BoundQuery
from millpond.plan.catalog import Relation, RelationKind
from millpond.plan.constraints import bind_checks
from millpond.plan.context import Context, Planned
from millpond.plan.declared import declared_schema
from millpond.plan.keys import key_of_query
from millpond.plan.latest import MessageKey, hold_written_key, message_key, with_identity
from millpond.plan.meaning import meaning, plain_text, surroundings
from millpond.plan.model import BATCH, StepKind, TableKind, TablePlan
from millpond.plan.naming import name_outputs
from millpond.plan.ownership import TABLE_OPTIONS, read_entries
from millpond.plan.refresh import plan_refresh
from millpond.plan.relations import StatementRelations
from millpond.plan.sources import short_hash
from millpond.plan.table_options import READ_THROUGH, check_options
from millpond.plan.unions import as_distinct
from millpond.plan.with_clauses import Clauses, read_clauses
from millpond.plan.written_views import texts_of_views, written_in
from millpond.schema import Schema
from millpond.sql.statements import CreateTable, Name
from millpond.suggest import did_you_mean


def define_table(statement: CreateTable, context: Context) -> Relation:
    """The relation that a CREATE TABLE declares, its plan and, over a stream, its step."""
    if statement.query is not None:
        tree = as_distinct(written_in(statement.query.copy(), context), context.catalog)
        return _as_select(statement, tree, context)
    clauses = read_clauses(statement, None, context.catalog, context.findings)
    columns = declared_schema(statement.columns or (), context, f"Table '{statement.name}'")
    key = _declared_key(statement, columns, context)
    checks, condition = bind_checks(statement, columns, context)
    schema = replace(_keyed(columns, key), checks=checks)
    plan = _plan(statement, TableKind.DECLARED, schema, clauses, context)
    context.tables[statement.name.key] = plan
    context.planned.append(Planned(statement, context.index(statement), target=plan.name, condition=condition))
    return Relation(plan.name, RelationKind.TABLE, schema)


def _declared_key(statement: CreateTable, columns: Schema, context: Context) -> tuple[str, ...]:
    """The PRIMARY KEY in the case of the columns; a name that is no column is a finding and left out."""
    key: list[str] = []
    for name in statement.key:
        column = columns.get(name.text)
        if column is None:
            _report_key(statement, name, columns, context)
        elif column.name in key:
            context.findings.error("MP208", f"PRIMARY KEY names '{name}' twice.", name.place, "Remove one of them.")
        else:
            key.append(column.name)
    nulls = {c.name.key: c.null_place for c in statement.columns or () if c.null_place is not None}
    for name in (n for n in statement.key if n.key in nulls):
        message = f"'{name}' is in the PRIMARY KEY, where NULL cannot be."
        context.findings.error("MP208", message, nulls[name.key], "Remove NULL, or take the column out of the key.")
    return tuple(key)


def _report_key(statement: CreateTable, name: Name, columns: Schema, context: Context) -> None:
    hint = did_you_mean(name.text, columns.names) or f"There are: {', '.join(columns.names)}."
    message = f"PRIMARY KEY names '{name}', which is no column of table '{statement.name}'."
    context.findings.error("MP208", message, name.place, hint)


def _keyed(schema: Schema, key: tuple[str, ...], null_keys: bool = False) -> Schema:
    """The schema with its key; key columns are NOT NULL, except where a group may be NULL."""
    if null_keys:
        return schema.with_key(key)
    names = {k.lower() for k in key}
    columns = [replace(c, nullable=False) if c.name.lower() in names else c for c in schema]
    return Schema.of(columns, key)


def _plan(
    statement: CreateTable,
    kind: TableKind,
    schema: Schema,
    clauses: Clauses,
    context: Context,
    null_keys: bool = False,
) -> TablePlan:
    backend, values = _backend(statement, clauses, context)
    indexes = _indexes(statement, schema, context)
    options = read_entries((e for e in clauses.table if e.name in _GENERAL), TABLE_OPTIONS, context.findings)
    values = {**values, **{name: options[name] for name in READ_THROUGH if name in options}}
    spec = TableSpec(statement.name.text, schema, backend, values, indexes, null_keys)
    check_options(spec, clauses.table, context.findings)
    return TablePlan(
        statement.name.text,
        kind,
        spec,
        statement.name.place,
        short_hash("\n".join([_definition(statement, kind, spec), *_view_texts(statement, context)])),
        options={**options, **clauses.statement},
        replaces=statement.or_replace,
    )


def _definition(statement: CreateTable, kind: TableKind, spec: TableSpec) -> str:
    """What a table is known by; what a loaded one reads may hang on any option of its source."""
    if statement.query is None:
        return _shape(spec)
    return statement.text if kind is TableKind.LOADED else plain_text(statement)


def _view_texts(statement: CreateTable, context: Context) -> list[str]:
    """The texts of the views that a query reads, which is another one when they are."""
    return texts_of_views(statement.query, context) if statement.query is not None else []


def _shape(spec: TableSpec) -> str:
    """What cannot be changed about a declared table without losing its rows."""
    columns = [(c.name.lower(), str(c.type), c.nullable) for c in spec.schema]
    return repr((columns, [name.lower() for name in spec.schema.key], spec.backend, spec.values.get("path")))


_GENERAL = {o.name for o in TABLE_OPTIONS if o.name not in ("backend", "extension")}


def _backend(statement: CreateTable, clauses: Clauses, context: Context) -> tuple[str, Mapping[str, Any]]:
    named = [e for e in clauses.table if e.name in ("backend", "extension")]
    if len(named) > 1:
        message = "'backend' and 'extension' are two names for the same thing."
        context.findings.error("MP306", message, named[1].place, "Keep one of them.")
    name, place = (named[0].value, named[0].value_place) if named else ("memory", statement.name.place)
    try:
        plugin: BackendPlugin = registry.find("backend", name, place)
        own = [e for e in clauses.table if e.name not in _GENERAL and e not in named]
        return plugin.name, complete(read_entries(own, plugin.options, context.findings), plugin.options, {})
    except MillpondError as error:
        context.findings.catch(error, place)
        return name, {}


def _indexes(statement: CreateTable, schema: Schema, context: Context) -> tuple[tuple[str, ...], ...]:
    indexes = []
    for names in statement.indexes:
        for name in names:
            if name.text not in schema:
                hint = did_you_mean(name.text, schema.names) or f"There are: {', '.join(schema.names)}."
                context.findings.error("MP202", f"INDEX names '{name}', which is no column.", name.place, hint)
        indexes.append(tuple(schema[n.text].name for n in names if n.text in schema))
    return tuple(i for i in indexes if i)


def _as_select(statement: CreateTable, tree: exp.Query, context: Context) -> Relation:
    clauses = read_clauses(statement, tree, context.catalog, context.findings)
    relations = StatementRelations(context, clauses, defines_table=True)
    hold_written_key(tuple(n.text for n in statement.key), tree, relations, context)
    bound = Binder(context.findings, relations).bind(tree)
    bound = name_outputs(bound, f"table '{statement.name}'", context.findings)
    key, null_keys = key_of_query(statement, bound, context)
    schema = Schema(()) if bound.schema is None else _keyed(bound.schema, key, null_keys)
    if bound.outputs is None:
        schema = schema.with_key(tuple(n.text for n in statement.key))
    messages = message_key(bound, schema.key, context)
    if messages is not None:
        schema = _kept_by_messages(statement, bound, schema, messages, clauses, context)
    elif bound.drivers:
        _kept_by_flow(statement, bound, schema, clauses, context, null_keys)
    else:
        _kept_by_tables(statement, bound, schema, clauses, context, null_keys)
    if bound.outputs is None:
        return Relation(statement.name.text, RelationKind.TABLE, key=schema.key)
    return Relation(statement.name.text, RelationKind.TABLE, schema)


def _kept_by_flow(
    statement: CreateTable, bound: BoundQuery, schema: Schema, clauses: Clauses, context: Context, null_keys: bool
) -> None:
    """AS SELECT over a stream: an aggregate, or rows as they come."""
    plan = _plan(statement, TableKind.AGGREGATE, schema, clauses, context, null_keys)
    plan = _as_meant(plan, statement, bound, context)
    top = bound.top
    grouped = top is not None and (top.grouped or top.node.args.get("distinct") is not None)
    aggregate = plan_aggregate(bound, top, plan.name, clauses.statement.get("state.ttl"))
    context.tables[statement.name.key] = plan
    context.planned.append(
        Planned(
            statement,
            context.index(statement),
            StepKind.AGGREGATE if grouped else StepKind.APPEND,
            plan.name,
            bound,
            schema.names,
            aggregate,
            context.options_for(bound.drivers, clauses.statement),
        )
    )


def _as_meant(plan: TablePlan, statement: CreateTable, bound: BoundQuery, context: Context) -> TablePlan:
    """Rows that a stream has left cannot be had again, so they must still mean the same."""
    assert statement.query is not None
    around = surroundings(statement.query, bound, context)
    return replace(plan, definition=meaning(statement, statement.query, bound, context), surroundings=around)


def _kept_by_messages(
    statement: CreateTable, bound: BoundQuery, schema: Schema, key: MessageKey, clauses: Clauses, context: Context
) -> Schema:
    """AS SELECT over messages with keys: the last of each key. Returns the table's columns as users see them."""
    shown = schema if bound.outputs is None else _keyed(schema, key.columns if key.columns != (IDENTITY,) else ())
    kept = with_identity(bound, shown, key) if key.columns == (IDENTITY,) else (bound, shown)
    plan = _plan(statement, TableKind.AGGREGATE, kept[1], clauses, context)
    context.tables[statement.name.key] = plan
    options = context.options_for(bound.drivers, clauses.statement)
    planned = Planned(
        statement, context.index(statement), StepKind.LATEST, plan.name, kept[0], kept[1].names, options=options
    )
    context.planned.append(replace(planned, message_key=key.behind if key.traced else ()))
    return shown


def _kept_by_tables(
    statement: CreateTable, bound: BoundQuery, schema: Schema, clauses: Clauses, context: Context, null_keys: bool
) -> None:
    """AS SELECT over one source's rows is loaded from it; over tables it is a view."""
    context.planned.append(Planned(statement, context.index(statement), target=statement.name.text, bound=bound))
    source = _only_source(bound, context)
    if source is not None:
        plan = _plan(statement, TableKind.LOADED, schema, clauses, context)
        query = _over_batch(bound.query, source.name)
        plan = replace(plan, source=source.source, query=query, watch=source.watch)
    else:
        plan = _plan(statement, TableKind.VIEW, schema, clauses, context, null_keys)
        reads = choose_access(bound, Ways())
        follow = plan_refresh(bound, schema.key)
        refresh = follow.text(bound.tables)
        plan = replace(plan, query=without_hints(bound.query), reads=reads, refresh=refresh, follow=follow)
    context.tables[statement.name.key] = plan


def _only_source(bound: BoundQuery, context: Context) -> TablePlan | None:
    """The hidden table of a query that only picks columns and rows of one source."""
    top = bound.top
    if top is None or len(bound.selects) != 1 or len(bound.readings) != 1 or top.grouped:
        return None
    clauses = ("joins", "distinct", "having", "qualify", "order", "limit", "offset", "windows", "with_", "sort")
    if any(top.node.args.get(c) for c in clauses):
        return None
    return context.hidden.get(bound.readings[0].relation.name.lower())


def _over_batch(query: exp.Query, name: str) -> exp.Query:
    made = query.copy()
    for table in made.find_all(exp.Table):
        if table.name == name:
            table.set("this", exp.Identifier(this=BATCH, quoted=True))
    return made
