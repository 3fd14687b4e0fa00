"""Transactions over several tables: pinned versions, drafts of their changes, and one commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.table import Change, StoreStats
from millpond.errors import ConflictError, TableError
from millpond.histogram import Histogram
from millpond.tables.draft import Base, Draft, DraftPoint, State
from millpond.tables.index import Ids
from millpond.tables.live_table import LiveTable
from millpond.tables.lookup_keys import Keys
from millpond.tables.table_writer import WritableTable

if TYPE_CHECKING:
    from millpond.tables.store import TableStore


class TableTransaction:
    """Created by the store with the requested locks; used by one thread at a time."""

    def __init__(self, store: TableStore, locked: Sequence[LiveTable], pinned: Mapping[int, Base]) -> None:
        self._store = store
        self._locked = list(locked)
        self._pinned = pinned
        self._drafts: dict[int, tuple[LiveTable, Draft]] = {}
        self._puts: dict[str, Any] = {}
        self._ended = False
        self.before_commit = store.before_commit
        store.activity.begin()

    def changed(self) -> tuple[str, ...]:
        return tuple(table.name for table, draft in self._drafts.values() if draft.touched)

    def table(self, name: str) -> TransactionTable:
        self._check_open()
        return TransactionTable(self, self._store.table(name))

    def draft(self, table: LiveTable) -> Draft:
        """The table's draft, begun at the pinned version on first use."""
        self._check_open()
        if table.id not in self._drafts:
            if table.id not in self._pinned:
                raise TableError(
                    "MP409",
                    f"Table '{table.name}' was created after the transaction began.",
                    hint="Begin a new transaction.",
                )
            self._drafts[table.id] = (table, Draft(table.rows.view(self._pinned[table.id])))
        return self._drafts[table.id][1]

    def changes(self, name: str) -> Change:
        draft = self.draft(self._store.table(name))
        removed = draft.base.table(draft.removed(), range(len(draft.schema)))
        return Change(draft.base.number, removed, pa.Table.from_batches([draft.added().batch]))

    def put(self, key: str, value: Any) -> None:
        self._check_open()
        self._puts[key] = value

    def get(self, key: str) -> Any:
        """The value put under a key in this transaction, or the committed one."""
        return self._puts[key] if key in self._puts else self._store.get(key)

    def savepoint(self) -> Savepoint:
        self._check_open()
        return Savepoint({i: d.point() for i, (_, d) in self._drafts.items()}, dict(self._puts))

    def rollback_to(self, savepoint: object) -> None:
        assert isinstance(savepoint, Savepoint)
        self._check_open()
        for id_, (_, draft) in self._drafts.items():
            draft.rollback_to(savepoint.points.get(id_, DraftPoint(0, None, None)))
        self._puts = dict(savepoint.puts)

    def hold(self, names: Sequence[str], reads: Sequence[str] = ()) -> None:
        self._check_open()
        tables = {self._store.table(name) for name in (*names, *self.changed())}
        self._lock(sorted(tables, key=lambda table: table.id))
        for table in (*tables, *map(self._store.table, reads)):
            now, then = self._store.published.get(table.id), self._pinned.get(table.id)
            if now is None or then is None or now.number != then.number:
                raise _changed_meanwhile(table.name)

    def commit(self) -> None:
        self._check_open()
        ending, done = None, False
        try:
            ending = self.before_commit(self) if self.before_commit is not None else None
            changed = [(t, d) for _, (t, d) in sorted(self._drafts.items()) if d.touched]
            self._lock([t for t, _ in changed])
            self._store.commit(changed, self._puts)
            done = True
        finally:
            self._end()
            if ending is not None:
                ending(done)

    def rollback(self) -> None:
        if not self._ended:
            self._end()

    def __enter__(self) -> TableTransaction:
        return self

    def __exit__(self, *error: object) -> None:
        if self._ended:
            return
        if error[0] is None:
            self.commit()
        else:
            self.rollback()

    def _lock(self, tables: Sequence[LiveTable]) -> None:
        """Acquire the missing locks. It waits only for locks with higher numbers than all that it has: waiting for a
        lower one while holding a higher one could deadlock, so that is a conflict instead."""
        for table in tables:
            held = [t.id for t in self._locked]
            if table.id not in held:
                table.acquire(wait=not held or table.id > max(held))
                self._locked.append(table)

    def _end(self) -> None:
        if not self._ended:
            self._store.activity.end()
        self._ended = True
        for table in reversed(self._locked):
            table.release()
        self._locked.clear()
        self._drafts.clear()

    def _check_open(self) -> None:
        if self._ended:
            raise TableError("MP410", "This transaction has ended.", hint="Begin a new one.")


class Activity:
    """What a store is doing: the durations of its commits and syncs, and how many transactions are open."""

    def __init__(self) -> None:
        self.commits = Histogram()
        self.syncs = Histogram()
        self._lock = threading.Lock()
        self._open = 0

    def begin(self) -> None:
        """A transaction has begun."""
        with self._lock:
            self._open += 1

    def end(self) -> None:
        """A transaction has ended."""
        with self._lock:
            self._open -= 1

    def stats(self) -> StoreStats:
        return StoreStats(self.commits.read(), self.syncs.read(), self._open)


class Savepoint:
    """A point to which a transaction can roll back."""

    def __init__(self, points: Mapping[int, DraftPoint], puts: Mapping[str, Any]) -> None:
        self.points = points
        self.puts = puts


class TransactionTable(WritableTable):
    """A table inside a transaction."""

    def __init__(self, transaction: TableTransaction, table: LiveTable) -> None:
        self._transaction = transaction
        self._table = table
        self.name, self.schema = table.name, table.schema
        self.null_keys, self.evaluator, self.shape = table.null_keys, table.evaluator, table.shape

    def _state(self) -> Draft:
        return self._transaction.draft(self._table)

    def _locate(self, state: State, keys: Keys) -> Ids:
        return self._table.located(_unchanged(state), keys)

    def _fetch(self, state: State, keys: Keys) -> tuple[Ids, pa.Table] | None:
        return self._table.fetch(_unchanged(state), keys)

    def _rows(self, state: State, ids: Ids) -> pa.Table:
        return self._table.read(_unchanged(state), ids)

    def _note(self, state: State, ids: Ids, asked: int, *, indexed: bool = False) -> None:
        self._table._note(state, ids, asked, indexed=indexed)

    @contextmanager
    def _draft(self) -> Iterator[Draft]:
        yield self._state()


def _changed_meanwhile(table: str) -> ConflictError:
    """MP405 for a table that was read and has changed since."""
    message = f"Another transaction changed '{table}' first, which a view over the changed tables reads."
    return ConflictError("MP405", message, hint="Nothing was changed; retry the transaction.")


def _unchanged(state: State) -> State:
    """The pinned version if the transaction has not changed the table, so that its cache can be used; else the
    draft."""
    return state.base if isinstance(state, Draft) and not state.touched else state
