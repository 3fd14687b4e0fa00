"""Live tables: reads see the newest version, and each change is a transaction of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.table import Capabilities, Change, ReadTable, Stats, TableSpec, documented
from millpond.errors import ConflictError, TableError
from millpond.tables import hashing
from millpond.tables.backend import Prepared, TableRows
from millpond.tables.draft import Base, Draft, State
from millpond.tables.heap import Version
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import Keys
from millpond.tables.read_through import SIZE_MAX, ReadThrough
from millpond.tables.selection import Condition, Evaluator, parsed
from millpond.tables.single_rows import shape_of
from millpond.tables.table_reader import Snapshot
from millpond.tables.table_writer import WritableTable

if TYPE_CHECKING:
    from millpond.tables.store import TableStore

# The Python types of key columns that are hashed without Arrow; every int that can be stored is valid for BIGINT.
_SIMPLE: dict[pa.DataType, type] = {pa.string(): str, pa.binary(): bytes, pa.int64(): int}

# A flow locks a table for one batch; waiting longer than this means that something hangs.
_LOCK_WAIT_S_MAX = 600.0
_STOP_CHECK_S = 0.05


@documented
class LiveTable(WritableTable):
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
        """Apply a definition of the same shape: defaults, options and visibility may differ."""
        self.spec = spec
        self.name, self.schema, self.null_keys = spec.name, spec.schema, spec.null_keys
        self.evaluator = Evaluator(spec.schema, self._store.fallback)
        # Constraints are evaluated by Arrow.
        self.shape = None if spec.schema.checks else shape_of(spec.schema)
        # Rows with lists or dicts are not cached, because a caller could change them.
        self._flat = not any(pa.types.is_nested(c.type) for c in spec.schema)
        kinds = tuple(_SIMPLE.get(spec.schema[name].type) for name in spec.schema.key)
        self._cache = self._wanted_cache(spec)
        # A cache backend must record every use, and a database uses its own index.
        is_heap = not (self.capabilities.bounded or self.capabilities.outside or self.capabilities.looked_up)
        heap = is_heap and self._cache is None
        simple = heap and None not in kinds
        self._key_types = kinds if simple and len(kinds) > 1 else ()
        self._key_type = kinds[0] if simple and len(kinds) == 1 else None

    @property
    def durable(self) -> bool:
        """Whether its rows are in the log, and so survive a crash."""
        return self.capabilities.durable and bool(self.spec.values.get("durable", True))

    @property
    def in_checkpoints(self) -> bool:
        """Whether checkpoints must contain its rows, because they are stored nowhere else."""
        return self.durable and not self.capabilities.outside

    @property
    def codec(self) -> str | None:
        """The compression of its rows on disk."""
        codec = self.spec.values.get("compression")
        return None if codec in (None, "none") else str(codec)

    def acquire(self, *, wait: bool = True) -> None:
        """Lock the table for a transaction of this thread."""
        if self._owner == threading.get_ident():
            message = f"Table '{self.name}' is locked by an open transaction of the same thread."
            raise TableError("MP409", message, hint="Use the transaction's own table: tx.table(name).")
        if not self._lock.acquire(timeout=_LOCK_WAIT_S_MAX if wait else 0):
            message = f"Table '{self.name}' is locked by another transaction."
            raise ConflictError("MP405", message, hint="Nothing was changed; retry the transaction.")
        self._owner = threading.get_ident()

    def acquire_unless(self, stopping: threading.Event) -> bool:
        """Lock the table, or return False if the store is closing."""
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
        """The row of each key of a reader, or -1; through the cache if there is one."""
        return state.locate(keys) if self._cache is None else self._cache.locate(state, keys)

    def read(self, state: State, ids: Ids) -> pa.Table:
        """All columns of rows that a reader looked up by key."""
        if self._cache is None:
            return state.table(ids, range(len(self.schema)))
        return self._cache.table(state, ids)

    def fetch(self, state: State, keys: Keys) -> tuple[Ids, pa.Table] | None:
        """The rows of many keys at once, if there is no cache."""
        return state.fetch(keys) if self._cache is None and isinstance(state, Version) else None

    def prepare(self, draft: Draft) -> Prepared:
        """Check a draft; called with the lock held, and followed by `apply` or nothing."""
        # If the table was changed since, its rows may have been renumbered, so the cache cannot use their numbers.
        self._leaving = draft.removed() if draft.base is self.rows.current else None
        prepared: Prepared = self.rows.prepare(draft)
        return prepared

    def apply(self, prepared: Prepared) -> Base:
        """The next version, to be published; the cache is valid for it from now on."""
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
            message = f"Version {version} of '{self.name}' is no longer available; the newest is {newest.number}."
            raise TableError("MP409", message, hint="Take a snapshot while the version is new.")
        return Snapshot(self, found)

    def changes_since(self, version: int) -> tuple[Change, ...] | None:
        return self.rows.history.changes_since(version, self._state())

    def create_index(self, *columns: str) -> None:
        names = tuple(self.schema.columns[p].name for p in self._positions(columns))
        if not names:
            raise TableError("MP409", "An index requires a column.", hint="create_index('tier')")
        self._store.create_index(self, names)

    def copy(self, name: str) -> LiveTable:
        """A new table with the same columns and the current rows."""
        return self._store.copy(self, name)

    def stats(self) -> Stats:
        state, cache = self._state(), self._cache if self._cache is not None else getattr(self.rows, "answers", None)
        return Stats(
            rows=0 if self.capabilities.looked_up else state.live,
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
        rows: Any = self.rows
        made: ReadThrough = (rows.read_through if self.capabilities.remote else ReadThrough)(
            size, ttl_s, self._store.clock
        )
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
            rows: Any = self.rows
            view = rows.look if self.capabilities.remote else rows.view
            state: Base = view(self._store.published[self.id])
            return state
        except KeyError:
            raise self.dropped() from None

    def dropped(self) -> TableError:
        hint = f"If it was created again, call app.table('{self.name}') again."
        return TableError("MP409", f"Table '{self.name}' was dropped.", hint=hint)

    def _is_simple(self, key: Any) -> bool:
        """Whether a key has exactly the Python types of its columns, and only types that can be hashed without
        Arrow."""
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
