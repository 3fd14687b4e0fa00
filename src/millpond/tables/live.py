"""A table as users hold it: reading the newest version, each change a transaction of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.table import Capabilities, Change, ReadTable, Stats, TableSpec, documented
from millpond.errors import ConflictError, TableError
from millpond.tables import hashing
from millpond.tables.conditions import Condition, Evaluator, parsed
from millpond.tables.draft import Base, Draft, State
from millpond.tables.heap import Version
from millpond.tables.index import Ids
from millpond.tables.keys import Keys
from millpond.tables.read_through import SIZE_MAX, ReadThrough
from millpond.tables.reading import Snapshot
from millpond.tables.rows import Prepared, TableRows
from millpond.tables.shape import shape_of
from millpond.tables.writing import Writing

if TYPE_CHECKING:
    from millpond.tables.store import TableStore

# The Python types of key columns whose values are hashed one by one; a BIGINT takes every int that could be there.
_SIMPLE: dict[pa.DataType, type] = {pa.string(): str, pa.binary(): bytes, pa.int64(): int}

# A flow holds a table's lock for one batch; waiting longer than this means that something hangs.
_LOCK_WAIT_S_MAX = 600.0
_STOP_CHECK_S = 0.05


@documented
class LiveTable(Writing):
    """One table of a store."""

    def __init__(self, store: TableStore, id_: int, rows: TableRows, capabilities: Capabilities) -> None:
        self._store = store
        self.id = id_
        self.rows = rows
        self.capabilities = capabilities
        self._lock = threading.Lock()
        self._owner: int | None = None
        self.updated_at: float | None = None
        self._lookups = self._hits = self._index_uses = 0
        self._cache: ReadThrough | None = None
        self._leaving: Ids | None = None
        self.define(rows.spec)

    @property
    def state(self) -> str:
        return self._store.states.get(self.name.lower(), "ready")

    def define(self, spec: TableSpec) -> None:
        """Take over a definition of the same shape: defaults, options and what is hidden may differ."""
        self.spec = spec
        self.name, self.schema, self.null_keys = spec.name, spec.schema, spec.null_keys
        self.evaluator = Evaluator(spec.schema, self._store.fallback)
        # Constraints are evaluated by Arrow.
        self.shape = None if spec.schema.checks else shape_of(spec.schema)
        # A row with lists or dicts in it could be changed through the copy that a caller got.
        self._flat = not any(pa.types.is_nested(c.type) for c in spec.schema)
        kinds = tuple(_SIMPLE.get(spec.schema[name].type) for name in spec.schema.key)
        self._cache = self._wanted_cache(spec)
        # A cache must hear of every use, and rows in a database are found by their index there.
        heap = not self.capabilities.bounded and not self.capabilities.outside and self._cache is None
        simple = heap and None not in kinds
        self._key_types = kinds if simple and len(kinds) > 1 else ()
        self._key_type = kinds[0] if simple and len(kinds) == 1 else None

    @property
    def durable(self) -> bool:
        """Whether the log keeps its rows through a crash."""
        return self.capabilities.durable and bool(self.spec.values.get("durable", True))

    @property
    def in_checkpoints(self) -> bool:
        """Whether checkpoints must hold its rows, as nothing else does."""
        return self.durable and not self.capabilities.outside

    @property
    def codec(self) -> str | None:
        """How its rows are compressed on disk."""
        codec = self.spec.values.get("compression")
        return None if codec in (None, "none") else str(codec)

    def acquire(self, *, wait: bool = True) -> None:
        """Take the table's lock for a transaction of this thread."""
        if self._owner == threading.get_ident():
            message = f"Table '{self.name}' is locked by an open transaction of the same thread."
            raise TableError("MP409", message, hint="Use the transaction's own table: tx.table(name).")
        if not self._lock.acquire(timeout=_LOCK_WAIT_S_MAX if wait else 0):
            message = f"Table '{self.name}' is locked by another transaction."
            raise ConflictError("MP405", message, hint="Nothing was changed; try the transaction again.")
        self._owner = threading.get_ident()

    def acquire_unless(self, stopping: threading.Event) -> bool:
        """Take the lock when it is free, or give up when the store is closing."""
        while not self._lock.acquire(timeout=_STOP_CHECK_S):
            if stopping.is_set():
                return False
        self._owner = threading.get_ident()
        return True

    def release(self) -> None:
        self._owner = None
        self._lock.release()

    def get(self, key: Any) -> dict[str, Any] | None:
        if not self._is_simple(key):
            return super().get(key)
        state = self._state()
        assert isinstance(state, Version)
        self._lookups += 1
        entry = state.heap.hot.get(key)
        if entry is not None and state.has(entry[0]):
            self._hits += 1
            return entry[1].copy()
        parts = key if type(key) is tuple else (key,)
        row = state.locate_one(parts, hashing.hash_key(parts))
        if row < 0:
            return None
        self._hits += 1
        values = state.row(row)
        if self._flat:
            state.heap.hot.put(key, row, values.copy())
        return values

    def contains(self, key: Any) -> bool:
        if not self._is_simple(key):
            return super().contains(key)
        state = self._state()
        assert isinstance(state, Version)
        parts = key if type(key) is tuple else (key,)
        found = state.locate_one(parts, hashing.hash_key(parts)) >= 0
        self._lookups += 1
        self._hits += found
        return found

    def located(self, state: State, keys: Keys) -> Ids:
        """The row of each key that a reader asks for, or -1: through the cache if it has one."""
        return state.locate(keys) if self._cache is None else self._cache.locate(state, keys)

    def read(self, state: State, ids: Ids) -> pa.Table:
        """All columns of rows that a reader asks for by key."""
        if self._cache is None:
            return state.table(ids, range(len(self.schema)))
        return self._cache.table(state, ids)

    def fetch(self, state: State, keys: Keys) -> tuple[Ids, pa.Table] | None:
        """Rows of many keys at once, where nothing but the rows themselves must be asked."""
        return state.fetch(keys) if self._cache is None and isinstance(state, Version) else None

    def prepare(self, draft: Draft) -> Prepared:
        """What the rows make of a draft; called with the lock held, `apply` follows or nothing."""
        # Row numbers say nothing to the cache if the table has been changed, and so perhaps renumbered, since.
        self._leaving = draft.removed() if draft.base is self.rows.current else None
        prepared: Prepared = self.rows.prepare(draft)
        return prepared

    def apply(self, prepared: Prepared) -> Base:
        """The next version, to be published; the cache is right for it from now on."""
        version = self.rows.apply(prepared)
        self.renew(version, self._leaving)
        return version

    def renew(self, version: Base, removed: Ids | None = None) -> None:
        """Called before a version is published."""
        if self._cache is not None:
            self._cache.renew(version, removed)

    def condition(self, text: str) -> Condition:
        return parsed(text)

    def snapshot(self, version: int | None = None) -> ReadTable:
        newest = self._state()
        if version is None:
            return Snapshot(self, newest)
        found = self.rows.history.version(version, newest)
        if found is None:
            message = f"Version {version} of '{self.name}' is no longer held; it is at {newest.number}."
            raise TableError("MP409", message, hint="Take a snapshot while the version is new.")
        return Snapshot(self, found)

    def changes_since(self, version: int) -> tuple[Change, ...] | None:
        return self.rows.history.changes_since(version, self._state())

    def create_index(self, *columns: str) -> None:
        names = tuple(self.schema.columns[p].name for p in self._positions(columns))
        if not names:
            raise TableError("MP409", "An index needs a column.", hint="create_index('tier')")
        self._store.create_index(self, names)

    def copy(self, name: str) -> LiveTable:
        """A new table with the same columns and the rows of now."""
        return self._store.copy(self, name)

    def stats(self) -> Stats:
        state, cache = self._state(), self._cache
        return Stats(
            rows=state.live,
            version=state.number,
            bytes_memory=state.nbytes,
            bytes_spilled=state.chunks.bytes_spilled if isinstance(state, Version) else 0,
            bytes_disk=self._store.bytes_on_disk(self.id) + self.rows.bytes_disk,
            updated_at=self.updated_at,
            lookups=self._lookups,
            hits=self._hits,
            index_uses=self._index_uses,
            commits=self.rows.commits,
            compactions=self.rows.compactions,
            cache_rows=len(cache) if cache is not None else 0,
            cache_hits=cache.hits if cache is not None else 0,
            cache_misses=cache.misses if cache is not None else 0,
            cache_evictions=cache.evictions if cache is not None else 0,
        )

    def _wanted_cache(self, spec: TableSpec) -> ReadThrough | None:
        size, ttl_us = spec.values.get("cache.max_size"), spec.values.get("cache.ttl")
        if (size is None and ttl_us is None) or not spec.schema.key:
            return None
        size = SIZE_MAX if size is None else size
        ttl_s = None if ttl_us is None else ttl_us / 1_000_000
        if self._cache is not None and (self._cache.size_max, self._cache.ttl_s) == (size, ttl_s):
            return self._cache
        made = ReadThrough(size, ttl_s, self._store.clock)
        made.renew(self.rows.current, None)
        return made

    def _locate(self, state: State, keys: Keys) -> Ids:
        return self.located(state, keys)

    def _fetch(self, state: State, keys: Keys) -> tuple[Ids, pa.Table] | None:
        return self.fetch(state, keys)

    def _rows(self, state: State, ids: Ids) -> pa.Table:
        return self.read(state, ids)

    def _state(self) -> Base:
        try:
            state: Base = self.rows.view(self._store.published[self.id])
            return state
        except KeyError:
            raise self.dropped() from None

    def dropped(self) -> TableError:
        hint = f"If it was made again, take it again: app.table('{self.name}')."
        return TableError("MP409", f"Table '{self.name}' was dropped.", hint=hint)

    def _is_simple(self, key: Any) -> bool:
        """Whether a key is exactly of the Python types that its columns give back, and of those that hash fast."""
        if type(key) is not tuple:
            return type(key) is self._key_type
        return tuple(map(type, key)) == self._key_types

    def _note(self, state: State, ids: Ids, asked: int, *, indexed: bool = False) -> None:
        self._lookups += asked
        self._hits += min(asked, len(ids))
        self._index_uses += indexed
        if self.capabilities.bounded:
            version = state.base if isinstance(state, Draft) else state
            assert isinstance(version, Version)
            self.rows.use(version, ids[ids < version.rows])

    @contextmanager
    def _draft(self) -> Iterator[Draft]:
        with self._store.begin_change(self) as transaction:
            yield transaction.draft(self)
