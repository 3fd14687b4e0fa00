"""The transaction of `app.transaction()`: changes to several tables, by SQL or by table methods."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from sqlglot import exp

from millpond.contracts.table import Transaction, WriteTable
from millpond.engine.app_context import Context
from millpond.engine.one_shot_changes import RUNNERS as CHANGES
from millpond.engine.one_shot_changes import change
from millpond.engine.spark.transfer import Views
from millpond.engine.table_changes import announce, publish
from millpond.engine.work import Work
from millpond.errors import BindError, ConflictError, Place, SqlError
from millpond.plan.model import OneShot, Plan, TableKind
from millpond.sql.parser import parse_script
from millpond.sql.statements import CreateIndex, CreateStream, CreateTable, Drop, SetOption, Statement


class AppTransaction:
    """The `tx` of `with app.transaction() as tx`: all its changes become visible together at the end."""

    def __init__(self, tx: Transaction, work: Work, bind: Callable[[str], Plan], variables: Mapping[str, str]) -> None:
        self._tx = tx
        self._work = work
        self._bind = bind
        self._variables = variables

    def execute(self, sql: str) -> int:
        """Run INSERT, UPSERT, UPDATE, DELETE or MERGE statements; returns the number of changed rows. One that fails
        changes nothing, and the transaction can continue."""
        savepoint = self._tx.savepoint()
        try:
            statements = parse_script(sql, file="<query>", variables=self._variables).statements
            _refuse_definitions(statements)
            _refuse_streams(statements, self._work.context.plan)
            plan = self._bind(sql)
            if plan.flows:
                raise _reads_stream(plan.flows[0].steps[0].place)
            return sum(change(self._work, _checked(shot)) for shot in plan.one_shots)
        except BaseException:
            self._tx.rollback_to(savepoint)
            raise

    def table(self, name: str) -> WriteTable:
        """A table inside this transaction."""
        return self._tx.table(name)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]


@contextmanager
def committed(
    context: Context,
    views: Views,
    bind: Callable[[str], Plan],
    variables: Mapping[str, str],
    known: Sequence[Statement],
) -> Iterator[AppTransaction]:
    """A transaction that is committed at the end of the block, with the views over what it changed and the outputs of
    CHANGES. If all its statements are `known`, it locks their tables from the start and cannot conflict."""
    try:
        locks = context.written_by(known)
        with context.writers.name() as writer, context.store.begin(locks=locks) as tx:
            work = Work(context, tx, views)
            yield AppTransaction(tx, work, bind, variables)
            refuse_defined(tx, context.plan, kept=work.refreshed)
            work.hold_views()
            work.follow(tx.changed())
            work.refresh()
            staged = announce(work, writer)
            tx.commit()
            publish(context, staged)
    finally:
        views.drop()


# How often a transaction that conflicts is tried, and the pauses between two attempts.
TRIES = 10
PAUSE_S, PAUSE_S_MAX = 0.002, 0.5

T = TypeVar("T")


def transacted(
    begin: Callable[[], AbstractContextManager[AppTransaction]], change: Callable[[AppTransaction], T], tries: int
) -> T:
    """The result of a change in a transaction of its own, which is tried again after a conflict."""
    for attempt in itertools.count(1):
        try:
            with begin() as tx:
                return change(tx)
        except ConflictError:
            if attempt >= tries:
                raise
            time.sleep(random.uniform(0.5, 1) * min(PAUSE_S * 2**attempt, PAUSE_S_MAX))
    raise AssertionError("the loop has no end")


def refuse_defined(tx: Transaction, app: Plan, kept: frozenset[str] | set[str] = frozenset()) -> None:
    """MP214 if a transaction changed a table that is defined AS SELECT; `kept` are views that it refreshed itself."""
    for name in tx.changed():
        plan = app.table(name)
        free = plan is None or plan.kind in (TableKind.DECLARED, TableKind.SYSTEM)
        if plan is not None and not free and name.lower() not in kept:
            message = f"Table '{plan.name}' is defined AS SELECT, so other statements cannot change it."
            raise BindError("MP214", message, hint="Change the tables or streams that it reads.")


def _refuse_definitions(statements: Sequence[Statement]) -> None:
    """MP310 for a definition, which a transaction could not roll back."""
    for statement in statements:
        if isinstance(statement, CreateTable | CreateIndex | CreateStream | Drop | SetOption):
            raise _not_here(statement.place)


def _refuse_streams(statements: Sequence[Statement], app: Plan) -> None:
    """MP215 for a statement that reads a stream of the app."""
    streams = {stream.name.lower() for stream in app.streams}
    for statement in statements:
        query = getattr(statement, "query", None) or getattr(statement, "source", None)
        names = set() if query is None else {table.name.lower() for table in query.find_all(exp.Table)}
        own = set() if query is None else {cte.alias.lower() for cte in query.find_all(exp.CTE)}
        if (names - own) & streams:
            raise _reads_stream(statement.place)


def _reads_stream(place: Place) -> SqlError:
    hint = "Add it to the app's file, where it runs as long as the app."
    return SqlError("MP215", "A statement that reads a stream cannot run in a transaction.", place=place, hint=hint)


def _checked(shot: OneShot) -> OneShot:
    """MP310 for a statement that does not change tables."""
    if type(shot.statement) not in CHANGES:
        raise _not_here(shot.place)
    return shot


def _not_here(place: Place) -> SqlError:
    message = "Only INSERT, UPSERT, UPDATE, DELETE and MERGE are allowed here."
    hint = (
        "Use app.query for SELECT and SHOW, and app.execute for CREATE TABLE, CREATE INDEX and DROP, outside of a "
        "transaction; streams and SET must be in the app's file."
    )
    return SqlError("MP310", message, place=place, hint=hint)
