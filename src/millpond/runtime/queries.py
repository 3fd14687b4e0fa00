"""Queries over the tables of a store: bound against the tables there are, answered by Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import without_identity
from millpond.contracts.table import Store
from millpond.errors import InputError, SqlError, TableError
from millpond.expressions.nested_parameters import has_nested, written_out
from millpond.plan.model import OneShot, Plan
from millpond.relational.answer import answered
from millpond.relational.memory import Memory
from millpond.relational.sources import Lookable
from millpond.runtime.dead_letters import NAME as DEAD_LETTERS
from millpond.runtime.figures.asking import explained
from millpond.runtime.keeping.named import views_of
from millpond.runtime.planning import QUERY, plan_text, without_lines
from millpond.runtime.spark.access import Views
from millpond.runtime.spark.errors import too_far, translate
from millpond.runtime.spark.relations import spark_text, tables_of
from millpond.schema import Column, Schema, type_name
from millpond.settings import Settings
from millpond.sql.correlation import far_column
from millpond.sql.statements import Describe, Explain, Select, Show


def bind_against(
    store: Store,
    sql: str,
    settings: Settings | None = None,
    *,
    without: str = "",
    variables: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of a text whose relations are the tables of a store, but for one that it may make anew; raises for the
    mistakes in it."""
    declared = declarations(store, (without,))
    plan = without_lines(
        plan_text(declared + sql, file=QUERY, settings=settings, variables=variables), declared.count("\n")
    )
    if plan.errors:
        raise InputError.of(plan.errors)
    return plan


def explain_beside(asked: Explain, app: Plan, store: Store, plan_with: Callable[[str], Plan]) -> pa.Table:
    """The answer to an EXPLAIN of a statement that could stand in the app's file, which `plan_with` plans with more at
    its end; tables that were made outside of the file are known too. Raises for the mistakes in the statement."""
    others = declarations(store, [*(table.name for table in app.tables), *(view.name for view in app.views)])
    plan = plan_with(others + asked.code)
    shot = plan.one_shots[-1]
    found = without_lines(plan, shot.place.line - 1)
    if found.errors:
        raise InputError.of(found.errors)
    return explained(shot)


def as_stored(shot: OneShot, store: Store) -> OneShot:
    """An EXPLAIN of `bind_against` with its tables as the store has them: backend, options and indexes too."""
    assert shot.explained is not None
    names = {name.lower() for name in store.names()}
    found = shot.explained.tables
    tables = [replace(t, spec=store.table(t.name).spec) if t.name.lower() in names else t for t in found]
    return replace(shot, explained=replace(shot.explained, tables=tuple(tables)))


def declarations(store: Store, without: Iterable[str] = ()) -> str:
    """One line of DDL for each table and view that a user may read, but for some."""
    left_out = {DEAD_LETTERS, *(name.lower() for name in without)}
    tables = [store.table(name) for name in store.names() if name.lower() not in left_out]
    made = [_declaration(t.name, t.schema) for t in tables if not t.spec.hidden]
    views = [v for name, v in views_of(store).items() if name not in left_out]
    made += [f"CREATE VIEW {_quoted(v['name'])} AS {v['text']}" for v in views]
    return "".join(f"{text};\n" for text in made)


def _declaration(name: str, schema: Schema) -> str:
    visible = without_identity(schema)
    parts = [_column(c) for c in visible]
    key = [_quoted(k) for k in visible.key]
    parts += [f"PRIMARY KEY ({', '.join(key)})"] if key else []
    return f"CREATE TABLE {_quoted(name)} ({', '.join(parts)})"


def _column(column: Column) -> str:
    default = f" DEFAULT {column.default}" if column.default is not None else ""
    return f"{_quoted(column.name)} {type_name(column.type)}{'' if column.nullable else ' NOT NULL'}{default}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def the_query(plan: Plan) -> OneShot:
    """The one query of a text; MP101 when it is none, or several."""
    asked = [s for s in plan.one_shots if isinstance(s.statement, Select | Show | Describe | Explain)]
    if len(plan.one_shots) != 1 or not asked or plan.flows:
        hint = "Give one SELECT over tables; to change tables use an app file or app.execute."
        raise SqlError("MP101", "This is not one query over tables.", hint=hint)
    return plan.one_shots[0]


class Queries:
    """Answers queries, one at a time: they share the names of temporary views."""

    def __init__(self, store: Store, views: Views) -> None:
        self._store = store
        self._views = views
        self._lock = threading.Lock()

    def answer(self, query: exp.Query, parameters: Sequence[Any] = ()) -> pa.Table:
        """The rows, of one version of all tables; MP411 unless there is a parameter for each `?`."""
        wanted = sum(1 for _ in query.find_all(exp.Placeholder))
        if wanted != len(parameters):
            message = f"The query has {wanted} parameters, and {len(parameters)} were given."
            raise TableError("MP411", message, hint="Give one value for each ? in the query, in their order.")
        if has_nested(parameters):
            query, parameters = written_out(query, parameters)
        with self._lock, self._store.begin() as tx:
            names, memory = tables_of(query), Memory()
            if not parameters:
                tables = {name: Lookable(tx.table(name), self._store.table(name).spec.indexes) for name in names}
                found = answered(query, tables, memory)
                if found is not None:
                    return found
            if far_column(query) is not None:
                raise too_far(query)
            views = {name: self._views.table(tx.table(name)) for name in names}
            try:
                frame = self._views.session.sql(spark_text(query, views), args=list(parameters))
                return frame.toArrow()
            except Exception as error:
                raise translate(error, several=memory.several) from error
