"""A transaction of a user's, over several tables, by SQL or by table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millpond.contracts.table import Transaction, WriteTable
from millpond.errors import BindError, Place, SqlError
from millpond.plan.model import OneShot, Plan, TableKind
from millpond.runtime.changing.changes import RUNNERS as CHANGES
from millpond.runtime.changing.changes import change
from millpond.runtime.flows.work import Work
from millpond.sql.parser import parse_script
from millpond.sql.statements import CreateIndex, CreateStream, CreateTable, Drop, SetOption


class AppTransaction:
    """What `with app.transaction() as tx` gives: everything in it becomes visible together at its end."""

    def __init__(self, tx: Transaction, work: Work, bind: Callable[[str], Plan], variables: Mapping[str, str]) -> None:
        self._tx = tx
        self._work = work
        self._bind = bind
        self._variables = variables

    def execute(self, sql: str) -> int:
        """Run INSERT, UPSERT, UPDATE, DELETE or MERGE statements; returns the rows changed. One that fails changes
        nothing, and the transaction can go on."""
        savepoint = self._tx.savepoint()
        try:
            _refuse_definitions(sql, self._variables)
            plan = self._bind(sql)
            if plan.flows:
                hint = "Write it into the app's file, where it runs as long as the app does."
                raise SqlError("MP215", "A statement that reads a stream cannot run at once.", hint=hint)
            return sum(change(self._work, _checked(shot)) for shot in plan.one_shots)
        except BaseException:
            self._tx.rollback_to(savepoint)
            raise

    def table(self, name: str) -> WriteTable:
        """A table inside this transaction."""
        return self._tx.table(name)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]


def refuse_defined(tx: Transaction, app: Plan, kept: frozenset[str] | set[str] = frozenset()) -> None:
    """MP214 when a transaction changed a table that follows its AS SELECT; `kept` are views refreshed on the way."""
    for name in tx.changed():
        plan = app.table(name)
        free = plan is None or plan.kind in (TableKind.DECLARED, TableKind.SYSTEM)
        if plan is not None and not free and name.lower() not in kept:
            message = f"Table '{plan.name}' is defined by its AS SELECT; nothing else can change it."
            raise BindError("MP214", message, hint="Change what it is computed from.")


def _refuse_definitions(sql: str, variables: Mapping[str, str]) -> None:
    """MP310 for a definition, which a transaction could not take back: the plan would know it and nobody make it."""
    for statement in parse_script(sql, file="<query>", variables=variables).statements:
        if isinstance(statement, CreateTable | CreateIndex | CreateStream | Drop | SetOption):
            raise _not_here(statement.place)


def _checked(shot: OneShot) -> OneShot:
    """MP310 for a statement that does not change tables."""
    if type(shot.statement) not in CHANGES:
        raise _not_here(shot.place)
    return shot


def _not_here(place: Place) -> SqlError:
    message = "Only INSERT, UPSERT, UPDATE, DELETE and MERGE can run here."
    hint = (
        "Use app.query for SELECT and SHOW; CREATE TABLE, CREATE INDEX and DROP run by app.execute, outside of a "
        "transaction; streams and SET belong to the app's file."
    )
    return SqlError("MP310", message, place=place, hint=hint)
