"""CREATE TABLE, CREATE VIEW, CREATE INDEX and DROP at once, outside of the app's file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millpond.contracts.table import Store
from millpond.errors import BindError, NotYetError, SqlError, TableError
from millpond.plan.model import Plan, TableKind
from millpond.runtime.keeping.ledger import NAMED
from millpond.runtime.keeping.named import put_view, views_of
from millpond.sql.statements import Begin, Commit, CreateIndex, CreateTable, CreateView, Drop, Name, Rollback, Statement
from millpond.suggest import did_you_mean

DEFINITIONS = (CreateTable, CreateView, CreateIndex, Drop)


def portions(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Statements that run together: BEGIN to COMMIT, and each other one by itself. MP217 for a definition inside of a
    transaction, which could not take it back."""
    found: list[list[Statement]] = []
    inside = False
    for statement in statements:
        if inside and isinstance(statement, DEFINITIONS):
            message = "CREATE and DROP cannot stand in a transaction."
            raise SqlError("MP217", message, place=statement.place, hint="Write it before BEGIN, or after COMMIT.")
        if inside:
            found[-1].append(statement)
        else:
            found.append([statement])
        inside = isinstance(found[-1][0], Begin) and not isinstance(statement, Commit | Rollback)
    return found


def define(statement: Statement, store: Store, app: Plan, bind: Callable[..., Plan]) -> None:
    """Run one definition; tables of the app's file are the file's to change."""
    if isinstance(statement, CreateTable):
        _create_table(statement, store, app, bind)
    elif isinstance(statement, CreateView):
        _create_view(statement, store, bind)
    elif isinstance(statement, CreateIndex):
        _require(statement.table, store)
        store.table(statement.table.text).create_index(*(column.text for column in statement.columns))
    elif isinstance(statement, Drop):
        _drop(statement, store, app)


def _create_table(statement: CreateTable, store: Store, app: Plan, bind: Callable[..., Plan]) -> None:
    name = statement.name
    if name.key in {n.lower() for n in store.names()}:
        if statement.if_not_exists:
            return
        _refuse_of_file(name, app)
        if not statement.or_replace:
            hint = "Write IF NOT EXISTS or OR REPLACE, or choose another name."
            raise BindError("MP205", f"There is a table '{name}' already.", place=name.place, hint=hint)
    # Looked at before anything is dropped: an error must not cost the old table.
    plan = bind(statement.code, without=_name_there(name, store)).table(name.text)
    assert plan is not None
    if plan.kind is not TableKind.DECLARED:
        message = (
            "A table AS SELECT follows its query for as long as the app has it, so it belongs into the app's file."
        )
        hint = f"Write it there, or have a copy: CREATE TABLE {name} (...); INSERT INTO {name} SELECT ..."
        raise NotYetError("MP901", message, place=statement.place, hint=hint)
    store.drop(name.text)
    store.create(plan.spec)


def _create_view(statement: CreateView, store: Store, bind: Callable[..., Plan]) -> None:
    name, there = statement.name, views_of(store).get(statement.name.key)
    if there is not None and statement.if_not_exists:
        return
    if there is not None:
        _refuse_view_of_file(name, there)
    if (there is not None and not statement.or_replace) or name.key in {n.lower() for n in store.names()}:
        hint = "Write IF NOT EXISTS or OR REPLACE, or choose another name."
        raise BindError("MP205", f"There is a table or view '{name}' already.", place=name.place, hint=hint)
    view = next((v for v in bind(statement.code, without=name.text).views if v.name.lower() == name.key), None)
    if view is None or not view.text:
        message = "A view made here reads tables; one over a stream or a URI belongs into the app's file."
        raise BindError("MP215", message, place=statement.place, hint="Write it there.")
    with store.begin() as tx:
        put_view(tx, view, of_file=False)
        tx.commit()


def _drop_view(statement: Drop, store: Store) -> None:
    name, there = statement.name, views_of(store).get(statement.name.key)
    if there is None and statement.if_exists:
        return
    if there is None:
        hint = did_you_mean(name.text, [v["name"] for v in views_of(store).values()])
        raise BindError("MP201", f"There is no view '{name}'.", place=name.place, hint=hint)
    _refuse_view_of_file(name, there)
    with store.begin() as tx:
        tx.put(NAMED + name.key, None)
        tx.commit()


def _refuse_view_of_file(name: Name, there: dict[str, Any]) -> None:
    if there["file"]:
        hint = "Change the file; at the next start the view follows it."
        raise TableError("MP409", f"View '{name}' belongs to the app's file.", place=name.place, hint=hint)


def _name_there(name: Name, store: Store) -> str:
    return next((there for there in store.names() if there.lower() == name.key), "")


def _drop(statement: Drop, store: Store, app: Plan) -> None:
    if statement.kind == "VIEW":
        _drop_view(statement, store)
        return
    if statement.if_exists and statement.name.key not in {n.lower() for n in store.names()}:
        return
    _require(statement.name, store)
    _refuse_of_file(statement.name, app)
    store.drop(statement.name.text)


def _refuse_of_file(name: Name, app: Plan) -> None:
    if app.table(name.text) is not None:
        hint = "Change the file; at the next start the table follows it."
        raise TableError("MP409", f"Table '{name}' belongs to the app's file.", place=name.place, hint=hint)


def _require(name: Name, store: Store) -> None:
    if name.key not in {n.lower() for n in store.names()}:
        hint = did_you_mean(name.text, store.names())
        raise BindError("MP201", f"There is no table '{name}'.", place=name.place, hint=hint)
