"""The cache backend: a bounded number of rows, which evicts the least recently used ones and those past their TTL.

It is not durable: the table is empty after a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from millpond.contracts.table import BackendPlugin, Capabilities, Clock, TableSpec
from millpond.options import DURATION, INTEGER, Option
from millpond.tables.backend import Urgency
from millpond.tables.draft import Draft
from millpond.tables.heap import Heap, Version, empty_version
from millpond.tables.index import Ids, distinct
from millpond.tables.lookup_keys import Keys
from millpond.tables.memory import MemoryRows, Prepared
from millpond.tables.next_version import Addition

SIZE_MAX = 10_000


class Times:
    """When each row of a heap was written and last used."""

    def __init__(self, rows: int = 0) -> None:
        self.written: npt.NDArray[np.float64] = np.zeros(rows)
        self.used: Ids = np.zeros(rows, dtype=np.int64)

    def add(self, first: int, end: int, now: float, turn: int) -> None:
        """Add new rows. A reader may continue to use the arrays it has: they are replaced, not resized."""
        if end > len(self.used):
            grown = Times(max(end, 2 * len(self.used)))
            grown.written[:first], grown.used[:first] = self.written[:first], self.used[:first]
            self.written, self.used = grown.written, grown.used
        self.written[first:end], self.used[first:end] = now, turn


class CacheRows(MemoryRows):
    """Rows with times. The times belong to a version's heap, so that readers of an old version see correct ones."""

    def __init__(self, spec: TableSpec, clock: Clock, folder: Path | None = None) -> None:
        super().__init__(spec, empty_version(spec.schema, spec.indexes))
        self._clock = clock
        self._turn = 0
        self._times: WeakKeyDictionary[Heap, Times] = WeakKeyDictionary({self.current.heap: Times()})
        self.define(spec)

    def define(self, spec: TableSpec) -> None:
        super().define(spec)
        size, ttl_us = spec.values.get("max_size"), spec.values.get("ttl")
        self._size_max: int = SIZE_MAX if size is None else size
        self._ttl_s: float | None = None if ttl_us is None else ttl_us / 1_000_000

    def view(self, version: Version) -> Version:
        expired = self._expired(version)
        if expired is None:
            return version
        live = int((_alive(version) & ~expired).sum())
        return replace(version, live=live, hidden=expired)

    def use(self, version: Version, ids: Ids) -> None:
        self._turn += 1
        self._times[version.heap].used[ids] = self._turn

    def prepare(self, draft: Draft) -> Prepared:
        removed = self._removed(draft)
        expired = self._expired(self.current)
        if expired is not None:
            removed = distinct(np.concatenate([removed, np.flatnonzero(expired & _alive(self.current))]))
        addition = _shortened(draft.added(), self._size_max)
        over = self.current.live - len(removed) + addition.count - self._size_max
        if over > 0:
            removed = np.concatenate([removed, self._least_used(removed, over)])
        return self._prepared(draft, removed, addition)

    def apply(self, prepared: Prepared) -> Version:
        first = self.current.rows
        self._turn += 1
        self._times[self.current.heap].add(first, prepared.staged.version.rows, self._clock(), self._turn)
        return super().apply(prepared)

    @property
    def urgency(self) -> Urgency:
        """Never in the background, because the times of the rows change with every read."""
        return Urgency.NOW if super().urgency is not Urgency.NONE else Urgency.NONE

    def compact(self) -> Version | None:
        before = self.current
        fresh = super().compact()
        if fresh is not None:
            ids, old = before.ids(), self._times[before.heap]
            times = Times()
            times.written, times.used = old.written[ids], old.used[ids]
            self._times[fresh.heap] = times
        return fresh

    def _expired(self, version: Version) -> npt.NDArray[np.bool_] | None:
        if self._ttl_s is None:
            return None
        expired = self._times[version.heap].written[: version.rows] <= self._clock() - self._ttl_s
        return expired if expired.any() else None

    def _least_used(self, removed: Ids, count: int) -> Ids:
        rest = _alive(self.current)
        rest[removed] = False
        ids = np.flatnonzero(rest)
        used = self._times[self.current.heap].used
        return ids[np.argsort(used[ids], kind="stable")[:count]]


def _alive(version: Version) -> npt.NDArray[np.bool_]:
    return version.heap.died[: version.rows] > version.number


def _shortened(addition: Addition, rows_max: int) -> Addition:
    """The last rows, if there are more than the cache can store."""
    surplus = addition.count - rows_max
    if surplus <= 0:
        return addition
    keys = None if addition.keys is None else Keys(tuple(c.slice(surplus) for c in addition.keys.columns))
    return Addition(addition.schema, addition.batch.slice(surplus), keys)


PLUGIN = BackendPlugin(
    name="cache",
    options=(
        Option(
            "max_size", INTEGER, str(SIZE_MAX), "The maximal number of rows; the least recently used are evicted first."
        ),
        Option("ttl", DURATION, None, "The time after its last write at which a row is evicted."),
    ),
    capabilities=Capabilities(durable=False, bounded=True),
    make=CacheRows,
    help="A bounded number of rows in this process; the least recently used are evicted. Empty after a restart.",
)
