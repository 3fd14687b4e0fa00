"""SHOW, DESCRIBE and EXPLAIN: the state, definitions and plans of an app as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from millpond import registry
from millpond.app.past_changes import changes_of
from millpond.contracts.source import without_identity
from millpond.contracts.table import Store, Table
from millpond.engine.progress import AppProgress, FlowProgress, SourceProgress, StatementProgress, TableProgress
from millpond.errors import BindError, did_you_mean
from millpond.options import Option
from millpond.plan.explain import explain_statement
from millpond.plan.model import OneShot, Plan, StreamPlan
from millpond.plan.option_owners import TABLE_OPTIONS
from millpond.schema import TIMESTAMP, type_name
from millpond.settings import SETTINGS
from millpond.sql.statements import Describe, Show, Statement


def ask(statement: Statement, plan: Plan, store: Store, progress: AppProgress) -> pa.Table:
    """The rows of a SHOW or DESCRIBE."""
    if isinstance(statement, Show) and statement.kind == "CHANGES":
        return changes_of(statement, store)
    if isinstance(statement, Show):
        return _show(statement, plan, store, progress)
    assert isinstance(statement, Describe)
    return _describe(statement, store, plan)


def explained(shot: OneShot) -> pa.Table:
    """The rows of an EXPLAIN: the plan of its statement, line by line."""
    assert shot.explained is not None
    return pa.table({"plan": explain_statement(shot.explained).splitlines()})


def _show(statement: Show, plan: Plan, store: Store, progress: AppProgress) -> pa.Table:
    kind = statement.kind.upper()
    if kind == "TABLES":
        hidden = _hidden_tables(store) if statement.with_hidden else ()
        return _rows([*progress.tables, *hidden], TableProgress)
    if kind == "FLOWS":
        return _rows(progress.flows, FlowProgress)
    if kind == "STATEMENTS":
        return _rows(progress.statements, StatementProgress)
    if kind == "SOURCES":
        return _rows(progress.sources, SourceProgress)
    if kind == "STREAMS":
        streams = [(s.name, _sources(s, plan), s.derived) for s in plan.streams]
        return _table(("name", "source", "derived"), streams)
    if kind == "VIEWS":
        kept = [(t.name, t.refresh) for t in plan.tables if t.kind == "view" and not t.spec.hidden]
        return _table(("name", "refresh"), kept + [(v.name, "not stored: a name for a query") for v in plan.views])
    if kind == "CONNECTORS":
        found = [(kind_, name) for kind_ in registry.GROUPS for name in registry.names(kind_)]
        return _table(("kind", "name"), found)
    return _table(("name", "kind", "default", "help"), [_option(o) for o in _options(statement)])


def _hidden_tables(store: Store) -> Iterator[TableProgress]:
    """The tables that hold the state of statements: groups, window functions, loaded rows of sources."""
    for table in (store.table(name) for name in store.names()):
        if table.spec.hidden:
            stats, key = table.stats(), ", ".join(without_identity(table.schema).key)
            size = stats.bytes_memory + stats.bytes_spilled or stats.bytes_disk
            figures = (stats.rows, stats.version, table.spec.backend, key, "", stats.updated_at, size)
            yield TableProgress(table.name, table.state, *figures)


def _sources(stream: StreamPlan, plan: Plan) -> str:
    return " joined with ".join(plan.source(id_).spec.shown for id_ in (stream.source, *stream.joined))


def _options(statement: Show) -> Sequence[Option]:
    """OPTIONS FOR a source, sink or backend; `app` for the settings."""
    wanted = statement.subject.key if statement.subject else "app"
    if wanted == "app":
        return SETTINGS
    # One name may have several kinds: memory is a source and a backend. The planner rejects one that has none.
    kinds = [kind for kind in registry.GROUPS if registry.registration_of(kind, wanted)]
    return [option for kind in kinds for option in registry.find(kind, wanted).options]


def _option(option: Option) -> tuple[str, str, str | None, str]:
    return option.name, option.kind.name, option.default, option.help


def _describe(statement: Describe, store: Store, plan: Plan) -> pa.Table:
    name = statement.name.text
    known = {n.lower(): n for n in store.names()}
    if name.lower() in known:
        table = store.table(name)
        schema = without_identity(table.schema)
        key = {k.lower() for k in schema.key}
        rows: list[tuple[Any, ...]] = [
            (c.name, type_name(c.type), c.nullable, c.name.lower() in key, c.default) for c in schema
        ]
        if statement.extended:
            rows += [(f"# {n}", v, None, None, None) for n, v in _extended(table)]
        return _table(("column", "type", "nullable", "key", "default"), rows)
    view = next((v for v in plan.views if v.name.lower() == name.lower()), None)
    if view is not None:
        columns = [(c.name, type_name(c.type), c.nullable, False, None) for c in view.columns or ()]
        return _table(("column", "type", "nullable", "key", "default"), columns)
    stream = next((s for s in plan.streams if s.name.lower() == name.lower()), None)
    if stream is None:
        hint = did_you_mean(name, [*known.values(), *(s.name for s in plan.streams)])
        raise BindError("MP201", f"There is no table or stream '{name}'.", place=statement.name.place, hint=hint)
    columns = [(c.name, type_name(c.type), c.nullable, False, None) for c in stream.columns or ()]
    return _table(("column", "type", "nullable", "key", "default"), columns)


def _extended(table: Table) -> Iterator[tuple[str, str]]:
    """The additional rows of DESCRIBE EXTENDED: storage, options and statistics."""
    yield "backend", table.spec.backend
    yield "state", table.state
    for index in table.spec.indexes:
        yield "index", ", ".join(index)
    for check in table.schema.checks:
        yield f"constraint {check.name}", f"CHECK ({check.shown})"
    known = (*registry.find("backend", table.spec.backend).options, *TABLE_OPTIONS)
    for option in known:
        value = table.spec.values.get(option.name)
        if value is not None:
            yield f"option {option.name}", "(not shown)" if option.secret else str(value)
    for name, figure in asdict(table.stats()).items():
        value = _moment(figure) if name == "updated_at" else figure
        yield name, "" if value is None else str(value)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _rows(
    items: Sequence[Any], kind: type[TableProgress | SourceProgress | FlowProgress | StatementProgress]
) -> pa.Table:
    """The figures that SHOW has as columns; the others are for programs."""
    names = [f.name for f in fields(kind)][: kind.SHOWN]
    table = _table(names, [tuple(asdict(item)[n] for n in names) for item in items])
    if "updated_at" not in names:
        return table
    moments = [_moment(item.updated_at) for item in items]
    return table.set_column(names.index("updated_at"), "updated_at", pa.array(moments, TIMESTAMP))


def _table(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [pa.array(list(c)) if rows else pa.array([], pa.string()) for c in columns]
    return pa.table([a.cast(pa.string()) if pa.types.is_null(a.type) else a for a in arrays], names=list(names))
