"""The relations of a statement's FROM: those of the catalog, views as their queries, URIs with their sources."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import IDENTITY, Mode, SourcePlugin
from millpond.errors import nearest
from millpond.plan.bound import BoundSelect, Joined, Spot
from millpond.plan.captured_rows import restrict
from millpond.plan.catalog import Relation, RelationKind, broken
from millpond.plan.context import Context
from millpond.plan.declarations import request_of
from millpond.plan.hidden_tables import followed_table, hidden_table, kept_hidden
from millpond.plan.join_parts import Apart, Refusal, take_apart
from millpond.plan.source_catalog import Opened, SourceRequest, find_source, read_uri
from millpond.plan.stream_conditions import with_joined_conditions
from millpond.plan.stream_joins import join_stream
from millpond.plan.with_clauses import Clauses
from millpond.redact import redact
from millpond.schema import Column, Schema
from millpond.sql import nodes
from millpond.sql.statements import CreateStream, CreateView, OptionEntry


def written_in(query: exp.Query, context: Context) -> exp.Query:
    """The query with views over tables expanded to subqueries, and conditions over streams as joins."""
    return with_joined_conditions(_with_views(query, context), context.catalog)


def _with_views(query: exp.Query, context: Context) -> exp.Query:
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    for table in list(query.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier) or table.args.get("db") or table.name.lower() in own:
            continue
        if isinstance(context.catalog.declaration(table.name), CreateView):
            _write_in(table, context)
    return query


def _write_in(table: exp.Table, context: Context) -> None:
    relation = context.catalog.find(table.name)
    if relation is None or relation.is_stream or relation.query is None:
        return
    if nodes.relation_options(table).entries:
        message = f"View '{relation.name}' has no options, because it is a name for a query."
        context.findings.error("MP303", message, table, "Write them in the view's own query.")
    inner = exp.Subquery(this=_with_views(relation.query.copy(), context))
    inner.set("alias", table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(relation.name, quoted=True)))
    for part in ("joins", "laterals", "pivots", "sample"):
        inner.set(part, table.args.get(part))
    table.replace(inner)


def texts_of_views(query: exp.Query, context: Context) -> list[str]:
    """The texts of the views that a query reads, which are part of its definition."""
    found: dict[str, str] = {}
    waiting = [query]
    while waiting:
        for table in waiting.pop().find_all(exp.Table):
            declared = context.catalog.declaration(table.name) if isinstance(table.this, exp.Identifier) else None
            if isinstance(declared, CreateView) and declared.name.key not in found:
                found[declared.name.key] = declared.text
                waiting.append(declared.query)
    return [found[name] for name in sorted(found)]


OPERATION = Column("_op", pa.string())
# Modes of sources that fill a table record by record.
FOLLOWED = (Mode.APPEND, Mode.CHANGES)
LOOKS_LIKE_URI = re.compile(r"\w+:(//)?[^\s:]")


class StatementRelations:
    """The relations of one statement. `defines_table`: it is a CTAS, where a URI in FROM can be a table too."""

    def __init__(self, context: Context, clauses: Clauses, defines_table: bool = False) -> None:
        self._context = context
        self._clauses = clauses
        self._defines_table = defines_table
        # Captured tables with a condition that were read so far.
        self._captured = 0

    def find(self, name: str) -> Relation | None:
        return self._context.catalog.find(name)

    def joined(self, select: BoundSelect, name: str) -> Joined | None:
        apart = take_apart(select)
        if isinstance(apart, Refusal):
            self._context.findings.error("MP218", apart.message, apart.at.at, apart.hint)
        return join_stream(apart, name, self._context) if isinstance(apart, Apart) else None

    def of_node(self, table: exp.Table, spot: Spot, counted: bool) -> Relation:
        if isinstance(table.this, nodes.Uri):
            return self._uri(table, table.this.text_, spot, counted)
        if isinstance(table.this, nodes.Changes):
            return self._changes(table, table.this)
        relation = None if table.args.get("db") else self._context.catalog.find(table.name)
        if relation is None:
            self._report_unknown(table)
            return broken(table.name)
        entries = self._clauses.of_source(table)
        return self._overridden(table, relation, entries) if entries else relation

    def _uri(self, table: exp.Table, text: str, spot: Spot, counted: bool) -> Relation:
        findings = self._context.findings
        place = findings.place(table.this)
        assert place is not None
        uri = read_uri(text, place, findings)
        plugin = find_source(uri, place, findings) if uri else None
        if plugin is None:
            return broken(redact(text), RelationKind.STREAM if spot is Spot.FROM else RelationKind.TABLE)
        as_table = self._is_table(plugin, spot, counted)
        if (plugin.table_mode if as_table else plugin.stream_mode) is None:
            hint = f"Declare it as a stream: CREATE STREAM s FROM {redact(text)};"
            findings.error("MP215", f"{redact(text)} cannot be read as a table.", place, hint)
            return broken(redact(text))
        # A source of events or changes by key is followed, also as a table, so that it is read once for both.
        followed = as_table and plugin.table_mode in FOLLOWED and plugin.is_followed
        request = SourceRequest(text, place, self._clauses.of_source(table), as_table=as_table and not followed)
        opened = self._context.sources.open(request)
        if opened is None:
            return broken(redact(text), RelationKind.TABLE if as_table else RelationKind.STREAM)
        if opened.condition is not None:
            self._captured += 1
            restrict(table, opened, self._captured, findings)
        if followed:
            return self._followed(opened)
        return self._table_of(opened) if as_table else stream_of(opened, redact(text))

    def _is_table(self, plugin: SourcePlugin, spot: Spot, counted: bool) -> bool:
        """Whether a URI is a table: in FROM it is a stream, else a table; in a CTAS a table unless every record
        counts."""
        # A source of changes or of its whole content is always a table.
        if plugin.stream_mode is not Mode.APPEND or spot is not Spot.FROM:
            return True
        if not self._defines_table:
            return False
        # A source of events or changes by key drives a flow, which stores all of them, or the last of each key.
        return plugin.table_mode not in (None, *FOLLOWED) and not (counted and plugin.counts_every_record)

    def _table_of(self, opened: Opened) -> Relation:
        plan = hidden_table(opened)
        self._context.hidden.setdefault(plan.name.lower(), plan)
        return Relation(plan.name, RelationKind.TABLE, opened.plan.columns, opened.plan.hidden, unseen=opened.unseen)

    def _followed(self, opened: Opened) -> Relation:
        plan = followed_table(opened)
        self._context.hidden.setdefault(plan.name.lower(), plan)
        columns = opened.plan.columns
        if columns is not None and IDENTITY not in plan.spec.schema.key:
            columns = columns.with_key(plan.spec.schema.key)
        return Relation(plan.name, RelationKind.TABLE, columns, kept_hidden(opened.plugin), unseen=opened.unseen)

    def _overridden(self, table: exp.Table, relation: Relation, entries: tuple[OptionEntry, ...]) -> Relation:
        """A named stream with overridden options: a separate source unless they are the same."""
        declaration = self._context.catalog.declaration(table.name)
        assert isinstance(declaration, CreateStream)
        request = request_of(declaration, self._context)
        if request is None:
            return relation
        kept = tuple(e for e in request.entries if e.name not in {o.name for o in entries})
        same = {(e.name, e.value) for e in request.entries} == {(e.name, e.value) for e in (*kept, *entries)}
        opened = None if same else self._context.sources.open(replace(request, entries=(*kept, *entries)))
        if opened is None:
            return relation
        for driver in relation.drivers:
            self._context.flow_options.setdefault(opened.plan.id, self._context.flow_options.get(driver, {}))
        if relation.watermark is not None:
            self._context.watermarks[opened.plan.id] = relation.watermark
        return replace(relation, drivers=(opened.plan.id,), columns=opened.plan.columns or relation.columns)

    def _changes(self, table: exp.Table, node: nodes.Changes) -> Relation:
        name = node.this.name
        relation = self._context.catalog.find(name)
        if relation is None:
            self._report_unknown(table)
            return broken(name, RelationKind.STREAM)
        if relation.is_stream:
            message = f"CHANGES({name}) requires a table, but '{name}' is a stream."
            self._context.findings.error("MP215", message, table, f"Write FROM {name}.")
            return broken(name, RelationKind.STREAM)
        if relation.query is not None:
            message = f"CHANGES({name}) requires a stored table, but '{name}' is a view."
            self._context.findings.error("MP215", message, table, f"Store it: CREATE TABLE {name} AS SELECT ...;")
            return broken(name, RelationKind.STREAM)
        columns = None if relation.columns is None else Schema.of([*relation.columns, OPERATION])
        drivers = (f"changes({relation.name})",)
        return Relation(relation.name, RelationKind.STREAM, columns, drivers=drivers, tables=(relation.name,))

    def _report_unknown(self, table: exp.Table) -> None:
        name = table.this.this.name if isinstance(table.this, nodes.Changes) else table.sql(copy=True, comments=False)
        name = table.name if isinstance(table.this, exp.Identifier) and not table.args.get("db") else name
        near = nearest(name, self._context.catalog)
        brokers = self._context.settings.get("kafka.brokers") or "localhost:9092"
        topic = name.removeprefix("kafka_") or name
        missing = f"CREATE STREAM {name} FROM kafka://{brokers}/{topic};"
        hint = f"Did you mean '{near}'? If it is a topic, declare it: {missing}" if near else f"Declare it: {missing}"
        if LOOKS_LIKE_URI.match(name):
            hint = f"Double quotes are for names; write a URI in single quotes: '{name}'."
        self._context.findings.error("MP201", f"There is no stream, table or view '{name}'.", table.this, hint)


def stream_of(opened: Opened, name: str) -> Relation:
    """A source read as a stream."""
    plan = opened.plan
    return Relation(name, RelationKind.STREAM, plan.columns, plan.hidden, (plan.id,), unseen=opened.unseen)
