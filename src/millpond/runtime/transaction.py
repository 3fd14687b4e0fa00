"""A transaction of a user's, over several tables, by SQL or by table."""

from __future__ import annotations

from collections.abc import Callable

from millpond.contracts.table import Transaction, WriteTable
from millpond.plan.model import Plan
from millpond.runtime.changes import change
from millpond.runtime.work import Work


class AppTransaction:
    """What `with app.transaction() as tx` gives: everything in it becomes visible together at its end."""

    def __init__(self, tx: Transaction, work: Work, bind: Callable[[str], Plan]) -> None:
        self._tx = tx
        self._work = work
        self._bind = bind

    def execute(self, sql: str) -> int:
        """Run INSERT, UPSERT, UPDATE or DELETE statements; returns the rows changed. One that fails changes nothing,
        and the transaction can go on."""
        savepoint = self._tx.savepoint()
        try:
            return sum(change(self._work, shot) for shot in self._bind(sql).one_shots)
        except BaseException:
            self._tx.rollback_to(savepoint)
            raise

    def table(self, name: str) -> WriteTable:
        """A table inside this transaction."""
        return self._tx.table(name)
