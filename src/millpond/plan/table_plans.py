"""Planning of CREATE TABLE: declared, loaded from a source, maintained by a flow, or a view over other tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from millpond import registry
from millpond.contracts.source import IDENTITY
from millpond.contracts.table import TableSpec
from millpond.errors import MillpondError, OptionError, did_you_mean
from millpond.options import complete
from millpond.plan.aggregates import as_distinct, plan_aggregate
from millpond.plan.binder import Binder
from millpond.plan.bound import BoundQuery
from millpond.plan.catalog import Relation, RelationKind
from millpond.plan.context import Context, Planned
from millpond.plan.declarations import declared_schema
from millpond.plan.definition import meaning, plain_text, surroundings
from millpond.plan.hidden_tables import looked_up_table
from millpond.plan.history import add_history, with_history
from millpond.plan.model import BATCH, StepKind, TableKind, TablePlan
from millpond.plan.option_owners import TABLE_OPTIONS, read_entries
from millpond.plan.outputs import name_outputs
from millpond.plan.plain_queries import is_plain, plain_columns
from millpond.plan.primary_keys import (
    MessageKey,
    hold_written_key,
    key_of_query,
    message_key,
    with_hidden_key,
    with_identity,
)
from millpond.plan.pushdown import wanted_by
from millpond.plan.source_catalog import short_hash
from millpond.plan.statement_relations import StatementRelations, texts_of_views, written_in
from millpond.plan.table_access import Ways, choose_access, without_hints
from millpond.plan.table_options import READ_THROUGH, bind_checks, check_backend, check_options, check_shared
from millpond.plan.unsupported import cannot_run
from millpond.plan.view_refresh import plan_refresh
from millpond.plan.with_clauses import JDBC, Clauses, backend_of_url, read_clauses
from millpond.redact import without_logins
from millpond.schema import Schema
from millpond.sql.statements import CreateTable, Name, OptionEntry


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
    add_history(plan, clauses.table, context)
    context.planned.append(Planned(statement, context.index(statement), target=plan.name, condition=condition))
    return with_history(Relation(plan.name, RelationKind.TABLE, schema), context)


def _declared_key(statement: CreateTable, columns: Schema, context: Context) -> tuple[str, ...]:
    """The PRIMARY KEY in the case of the columns; an unknown column is a finding and left out."""
    key: list[str] = []
    for name in statement.key:
        column = columns.get(name.text)
        if column is None:
            _report_key(statement, name, columns, context)
        elif column.name in key:
            context.findings.error("MP208", f"PRIMARY KEY contains '{name}' twice.", name.place, "Remove one of them.")
        else:
            key.append(column.name)
    nulls = {c.name.key: c.null_place for c in statement.columns or () if c.null_place is not None}
    for name in (n for n in statement.key if n.key in nulls):
        message = f"'{name}' is part of the PRIMARY KEY and cannot be NULL."
        context.findings.error("MP208", message, nulls[name.key], "Remove NULL, or remove the column from the key.")
    return tuple(key)


def _report_key(statement: CreateTable, name: Name, columns: Schema, context: Context) -> None:
    hint = did_you_mean(name.text, columns.names) or f"Its columns are: {', '.join(columns.names)}."
    message = f"PRIMARY KEY refers to '{name}', which is not a column of table '{statement.name}'."
    context.findings.error("MP208", message, name.place, hint)


def _keyed(schema: Schema, key: tuple[str, ...], null_keys: bool = False) -> Schema:
    """The schema with its key; key columns are NOT NULL, unless they are groups."""
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
    check_backend(spec, clauses.table, statement.name.place, context.findings)
    check_shared(spec, clauses.table, context.findings, is_declared=kind is TableKind.DECLARED)
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
    """The hash of a table's definition; a loaded one includes all options of its source."""
    if statement.query is None:
        return _shape(spec)
    return statement.text if kind is TableKind.LOADED else plain_text(statement)


def _view_texts(statement: CreateTable, context: Context) -> list[str]:
    """The texts of the views that a query reads, which are part of its definition."""
    return texts_of_views(statement.query, context) if statement.query is not None else []


def _shape(spec: TableSpec) -> str:
    """The part of a declared table's definition that cannot be changed without losing rows."""
    columns = [(c.name.lower(), str(c.type), c.nullable) for c in spec.schema]
    return repr((columns, [name.lower() for name in spec.schema.key], spec.backend, spec.values.get("path")))


# `MILLPOND_BACKEND=sqlite` is the backend of tables that name none, to test that all return the same rows; a server has
# the address `MILLPOND_BACKEND_URL`.
MEMORY, BACKEND, URL = "memory", "MILLPOND_BACKEND", "MILLPOND_BACKEND_URL"
_GENERAL = {o.name for o in TABLE_OPTIONS if o.name not in ("backend", "extension")}


def _backend(statement: CreateTable, clauses: Clauses, context: Context) -> tuple[str, Mapping[str, Any]]:
    named = [e for e in clauses.table if e.name in ("backend", "extension")]
    if len(named) > 1:
        message = "'backend' and 'extension' are two names of the same option."
        context.findings.error("MP306", message, named[1].place, "Keep one of them.")
    own = [e for e in clauses.table if e.name not in _GENERAL and e not in named]
    usual = os.environ.get(BACKEND, MEMORY) if not own else MEMORY
    name, place = (named[0].value, named[0].value_place) if named else (usual, statement.name.place)
    try:
        if name.lower() == JDBC:
            return _by_url(clauses, named, context)
        plugin = registry.find("backend", name, place)
        values = complete(read_entries(own, plugin.options, context.findings), plugin.options, {})
        return plugin.name, {**values, "url": os.environ[URL]} if not named and URL in os.environ else values
    except MillpondError as error:
        context.findings.catch(error, place)
        return name, {}


def _by_url(clauses: Clauses, named: Sequence[OptionEntry], context: Context) -> tuple[str, Mapping[str, Any]]:
    """The backend of a URL such as postgresql://... or sqlite:users.db, whose path is then the file."""
    given = next((e for e in clauses.table if e.name == "url"), None)
    if given is None:
        hint = "Write 'url' = 'postgresql://user:password@host/database', or 'url' = 'sqlite:users.db'."
        raise OptionError("MP305", "The backend jdbc requires 'url'.", place=named[0].value_place, hint=hint)
    plugin = registry.find("backend", backend_of_url(clauses.table), given.value_place)
    text = given.value.removeprefix("jdbc:")
    path = text.partition(":")[2].removeprefix("//")
    meant = replace(given, name="path", value=path) if plugin.name == "sqlite" else replace(given, value=text)
    own = [meant if e is given else e for e in clauses.table if e.name not in _GENERAL and e not in named]
    return plugin.name, complete(read_entries(own, plugin.options, context.findings), plugin.options, {})


def _indexes(statement: CreateTable, schema: Schema, context: Context) -> tuple[tuple[str, ...], ...]:
    indexes = []
    for names in statement.indexes:
        for name in names:
            if name.text not in schema:
                hint = did_you_mean(name.text, schema.names) or f"Its columns are: {', '.join(schema.names)}."
                context.findings.error("MP202", f"INDEX refers to '{name}', which is not a column.", name.place, hint)
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
    add_history(context.tables[statement.name.key], clauses.table, context)
    if bound.outputs is None:
        return with_history(Relation(statement.name.text, RelationKind.TABLE, key=schema.key), context)
    return with_history(Relation(statement.name.text, RelationKind.TABLE, schema), context)


def _kept_by_flow(
    statement: CreateTable, bound: BoundQuery, schema: Schema, clauses: Clauses, context: Context, null_keys: bool
) -> None:
    """AS SELECT over a stream: an aggregate, or all rows."""
    top = bound.top
    grouped = top is not None and (top.grouped or top.node.args.get("distinct") is not None)
    aggregate = plan_aggregate(bound, top, statement.name.text, clauses.statement.get("state.ttl"))
    if aggregate is not None and aggregate.sets:
        schema, null_keys = with_hidden_key(schema), False
    plan = _plan(statement, TableKind.AGGREGATE, schema, clauses, context, null_keys)
    plan = _as_meant(plan, statement, bound, context)
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
    """The table with its meaning: rows of a stream cannot be read again, so stored ones must still have the same
    meaning."""
    assert statement.query is not None
    around = surroundings(statement.query, bound, context)
    return replace(plan, definition=meaning(statement, statement.query, bound, context), surroundings=around)


def _kept_by_messages(
    statement: CreateTable, bound: BoundQuery, schema: Schema, key: MessageKey, clauses: Clauses, context: Context
) -> Schema:
    """AS SELECT over messages with keys: the last of each key. Returns the table's visible columns."""
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
    """AS SELECT over the rows of one source is loaded from it; over tables it is a view."""
    context.planned.append(Planned(statement, context.index(statement), target=statement.name.text, bound=bound))
    source = _only_source(bound, context)
    if source is not None and source.kind is TableKind.LOOKUP:
        plan = _looked_up(statement, bound, schema, source, clauses, context)
    elif source is not None:
        plan = _plan(statement, TableKind.LOADED, schema, clauses, context)
        query = _over_batch(bound.query, source.name)
        plan = replace(plan, source=source.source, query=query, watch=source.watch, wanted=wanted_by(query))
        assert source.source is not None
        if context.sources[source.source].plugin.has_catalog:
            # A new password, or another pace, leaves the rows as they are: the id of the source has neither.
            texts = [without_logins(plain_text(statement)), source.source, *_view_texts(statement, context)]
            plan = replace(plan, definition=short_hash("\n".join(texts)))
    else:
        _refuse_past(bound, context)
        plan = _plan(statement, TableKind.VIEW, schema, clauses, context, null_keys)
        reads = choose_access(bound, Ways())
        follow = plan_refresh(bound, schema.key)
        refresh = follow.text(bound.tables)
        plan = replace(plan, query=without_hints(bound.query), reads=reads, refresh=refresh, follow=follow)
    context.tables[statement.name.key] = plan


def _looked_up(
    statement: CreateTable,
    bound: BoundQuery,
    schema: Schema,
    source: TablePlan,
    clauses: Clauses,
    context: Context,
) -> TablePlan:
    """AS SELECT over a source whose rows are looked up: the columns are those of the source, under any names."""
    findings = context.findings
    for entry in clauses.table:
        message = f"Option '{entry.name}' has no effect: the rows of '{statement.name}' are looked up, and not stored."
        findings.error("MP303", message, entry.place, "Remove it, or load the rows: 'load' = 'full'.")
    names = tuple(plain_columns(bound.query).values())
    if not is_plain(bound.query) or len(set(names)) < len(names):
        message = f"The rows of '{statement.name}' are looked up, so its query can only select columns, each once."
        hint = "Write conditions and expressions into the statement that joins it, or into ?query= of the URI."
        findings.error("MP516", message, statement.name.place, hint)
    assert source.source is not None
    opened = context.sources[source.source]
    plan = looked_up_table(opened, TableSpec(statement.name.text, schema), statement.name.place, names)
    return replace(plan, definition=short_hash(f"{source.source} {names}"), replaces=statement.or_replace)


def _refuse_past(bound: BoundQuery, context: Context) -> None:
    """MP901 for a view that reads a table as of a time: its rows would change when the old rows are dropped."""
    for reference in bound.references:
        if reference.relation.name == reference.relation.history != "":
            message = cannot_run(f"Reading {reference.item.label} as of a time or version in a view over tables")
            hint = "Read it in a statement over a stream, or in a query."
            context.findings.error("MP901", message, reference.item.at, hint)


def _only_source(bound: BoundQuery, context: Context) -> TablePlan | None:
    """The hidden table of a query that only selects columns and rows of one source."""
    top = bound.top
    if top is None or len(bound.selects) != 1 or len(bound.references) != 1 or top.grouped:
        return None
    clauses = ("joins", "distinct", "having", "qualify", "order", "limit", "offset", "windows", "with_", "sort")
    if top.rows is not top.node or any(top.node.args.get(c) for c in clauses):
        return None
    hidden = context.hidden.get(bound.references[0].relation.name.lower())
    if hidden is None or hidden.source is None or not _is_captured(hidden.source, context):
        return hidden
    # A change brings a row's key and what has changed of it: a query that needs more is a view over the rows.
    return hidden if is_plain(bound.query) else None


def _is_captured(source: str, context: Context) -> bool:
    opened = context.sources[source]
    return opened.plugin.captures(opened.plan.spec.values)


def _over_batch(query: exp.Query, name: str) -> exp.Query:
    made = query.copy()
    for table in made.find_all(exp.Table):
        if table.name == name:
            table.set("this", exp.Identifier(this=BATCH, quoted=True))
    return made
