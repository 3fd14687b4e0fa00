"""Background compaction: copies the rows of one version to a new heap, then applies the commits since."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from millpond.errors import MillpondError
from millpond.tables.heap import Version, no_rows
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import key_columns
from millpond.tables.next_version import Addition, staged

if TYPE_CHECKING:
    from millpond.tables.live_table import LiveTable


class Renewed(Protocol):
    """The rows of the table that is compacted."""

    @property
    def current(self) -> Version:
        """The newest version."""

    def adopt(self, fresh: Version, numbers: Ids) -> Version:
        """Continue in a new heap; called with the table's lock."""


class Compaction:
    """`fresh` has the rows of `base`; `numbers` has the new number of each row of the old heap, -1 for dead ones."""

    def __init__(self, rows: Renewed, base: Version, fresh: Version, numbers: Ids) -> None:
        self._rows = rows
        self.base = base
        self.fresh = fresh
        self.numbers = numbers

    def follow(self) -> bool:
        """Apply the commits since the start; False if the table has another heap, or other indexes, by now."""
        newest = self._rows.current
        if newest.heap is not self.base.heap or newest.indexed_columns != self.base.indexed_columns:
            return False
        if newest.number != self.base.number:
            self._follow(newest)
        return True

    def end(self) -> Version | None:
        """The version to publish, None when it came too late; called with the table's lock."""
        return self._rows.adopt(self.fresh, self.numbers) if self.follow() else None

    def _follow(self, newest: Version) -> None:
        """Apply the changes up to a version; rows that were added and removed meanwhile are left out."""
        base, fresh = self.base, self.fresh
        # Read after the version, so that it includes all removals of the version.
        died = newest.heap.died
        early = died[: base.rows]
        gone = np.flatnonzero((early > base.number) & (early <= newest.number))
        added = base.rows + np.flatnonzero(died[base.rows : newest.rows] > newest.number)
        after = staged(fresh, self.numbers[gone], _addition(newest, added)).apply()
        numbers = np.full(newest.rows, -1, dtype=np.int64)
        numbers[: base.rows] = self.numbers
        numbers[added] = fresh.rows + np.arange(len(added))
        self.base, self.fresh, self.numbers = newest, replace(after, number=newest.number), numbers


def _addition(version: Version, ids: Ids) -> Addition:
    rows = version.table(ids, range(len(version.schema))).combine_chunks()
    batch = next(iter(rows.to_batches()), no_rows(version.schema))
    return Addition(version.schema, batch, key_columns(version.schema, batch) if version.schema.key else None)


class Compactor:
    """A thread that exists only while there is work. It compacts one table at a time."""

    def __init__(self, work: Callable[[LiveTable], None], report: Callable[[BaseException], None]) -> None:
        self._work = work
        self._report = report
        self._lock = threading.Lock()
        self._due: dict[int, LiveTable] = {}
        self._thread: threading.Thread | None = None
        self.stopping = threading.Event()

    def ask(self, table: LiveTable) -> None:
        """Add a table to the queue."""
        with self._lock:
            if self.stopping.is_set() or table.id in self._due:
                return
            self._due[table.id] = table
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="millpond-compaction", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Wait until the queue is empty."""
        while (thread := self._thread) is not None:
            thread.join()

    def close(self) -> None:
        """Start no further compaction, and wait for the current one."""
        self.stopping.set()
        self.wait()

    def _run(self) -> None:
        while (table := self._next()) is not None:
            try:
                self._work(table)
            except MillpondError:
                # A failing disk does not make a commit fail; the compaction is retried after the next one.
                continue
            except BaseException as error:
                self._thread = None
                self._report(error)
                return

    def _next(self) -> LiveTable | None:
        with self._lock:
            if self._due and not self.stopping.is_set():
                return self._due.pop(next(iter(self._due)))
            self._thread = None
            return None
