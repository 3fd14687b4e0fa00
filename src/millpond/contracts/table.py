"""What a table promises: versions, keys, transactions, and the same rows for the same condition on every backend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from sqlglot import exp

from millpond.errors import TableError
from millpond.options import Option
from millpond.schema import Schema

# A pandas.DataFrame too, which has no type here because pandas need not be installed.
Rows: TypeAlias = Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch
Keys: TypeAlias = Sequence[Any] | pa.Array | pa.ChunkedArray | pa.Table
ROWS_HINT = "Give a list of dicts, a pyarrow.Table, a pyarrow.RecordBatch or a pandas.DataFrame."


def frame_as_arrow(rows: Any) -> Any:
    """A pandas DataFrame as an Arrow table without its index; anything else as it is. MP404 for a column whose values
    have no common type."""
    # Whoever has a frame has imported pandas; importing it here would cost everybody else a second.
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(rows, pandas.DataFrame):
        return rows
    try:
        return pa.Table.from_pandas(rows, preserve_index=False)
    except pa.ArrowException as error:
        hint = "Give each column of the frame one type, such as frame['name'].astype('string')."
        raise TableError("MP404", f"A column of the frame has values of several types: {error}", hint=hint) from error


@dataclass(frozen=True)
class Capabilities:
    """How backends differ, as data. `durable`: survives a crash. `outside`: lives in a database of its own and commits
    there, with its own mark. `bounded`: may forget rows (cache)."""

    durable: bool = True
    outside: bool = False
    bounded: bool = False
    indexes: bool = True


@dataclass(frozen=True)
class TableSpec:
    """Everything needed to make a table; plain data, made by the planner. `null_keys`: a key column may be NULL and
    NULL equals NULL there (group tables only). `hidden`: not listed, not readable by users."""

    name: str
    schema: Schema
    backend: str = "memory"
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    indexes: tuple[tuple[str, ...], ...] = ()
    null_keys: bool = False
    hidden: bool = False


@dataclass(frozen=True)
class Stats:
    """A table's figures; counts are since it was opened. Bytes that do not apply are 0, and so is what a read-through
    cache (`cache_`) would tell when there is none."""

    rows: int = 0
    version: int = 0
    bytes_memory: int = 0
    bytes_spilled: int = 0
    bytes_disk: int = 0
    updated_at: float | None = None
    lookups: int = 0
    hits: int = 0
    index_uses: int = 0
    commits: int = 0
    compactions: int = 0
    cache_rows: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_evictions: int = 0


@dataclass(frozen=True)
class Change:
    """What one commit did to a table, row by row: `removed` rows as they were, `added` rows as they are; a replaced row
    is in both. Both have the table's columns."""

    version: int
    removed: pa.Table
    added: pa.Table


# Evaluates an expression that the Arrow compiler refuses: (expression, rows, parameters) -> one value per row.
Fallback = Callable[[exp.Expression, pa.Table, Sequence[Any]], pa.Array]


# What is called at the end of a commit: whether it was made.
Ending = Callable[[bool], None]


class ReadTable(Protocol):
    """Reading: on a live table each call sees the newest version; on a snapshot or in a transaction a fixed one
    (plus the transaction's own changes). Never blocks, never sees half a commit. Results are in the order of arrival
    (a replaced row keeps no place) unless said otherwise; callers must not rely on it except for unkeyed tables."""

    name: str
    schema: Schema

    @property
    def version(self) -> int:
        """Grows by at least one with every commit that changed the table."""

    def __len__(self) -> int:
        """Rows, in constant time."""

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row of a key (a tuple for a composite one) as Python values, or None; MP409 without a primary key."""

    def contains(self, key: Any) -> bool:
        """Whether a key is there."""

    def count(self, condition: Any = None, parameters: Sequence[Any] = ()) -> int:
        """How many rows satisfy a condition (text or compiled); NULL does not satisfy."""

    def exists(self, condition: Any, parameters: Sequence[Any] = ()) -> bool:
        """Whether any row does."""

    def find(
        self,
        condition: Any = None,
        parameters: Sequence[Any] = (),
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> pa.Table:
        """The rows that satisfy a condition, through the key or an index where the condition allows."""

    def values(self, column: str, condition: Any = None, parameters: Sequence[Any] = ()) -> list[Any]:
        """One column of `find`, as Python values."""

    def scalar(self, expression: str, condition: Any = None, parameters: Sequence[Any] = ()) -> Any:
        """One aggregate such as SUM(volume) over the rows of `find`, as a Python value."""

    def lookup(self, keys: Keys, by: str | Sequence[str] | None = None) -> pa.Table:
        """The rows whose key (or the columns `by`, by index if there is one, else by scan) is among `keys`; each row
        once, however often its key is given; NULL finds nothing (except in a null_keys table's key)."""

    def scan(self, where: Any = None, batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """All rows in batches, of one version throughout, whatever is committed meanwhile."""

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows; without copying where the backend can."""


class WriteTable(ReadTable, Protocol):
    """Changing: outside a transaction each call is one; it returns the rows changed, and an error changes nothing."""

    def insert(self, rows: Rows) -> int:
        """Add rows; columns absent take their default; MP401 NOT NULL, MP402 key there already (or twice in `rows`),
        MP403 NULL key, MP404 a value that does not fit."""

    def upsert(self, rows: Rows) -> int:
        """Add or replace by key, the last of equal keys wins. Columns absent keep their value, or take their default
        in a new row. MP409 without a key."""

    def update(self, condition: Any, values: Mapping[str, Any], parameters: Sequence[Any] = ()) -> int:
        """Set columns where a condition holds. A value is a Python value, or a sqlglot expression over the row as it
        was. A key column may be set; MP402 if two rows would collide. MP409 where the condition is None."""

    def update_many(self, changes: Sequence[tuple[Any, Mapping[str, Any], Sequence[Any]]]) -> int:
        """Several updates in order as one change."""

    def delete(self, condition: Any = None, parameters: Sequence[Any] = (), *, keys: Keys | None = None) -> int:
        """Remove rows by condition or by key; MP409 without either."""

    def replace(self, rows: pa.Table) -> int:
        """Make `rows` the whole content: only what differs changes (by key, or as a multiset without one)."""


class Table(WriteTable, Protocol):
    """A live table, as `app.table(name)` gives it."""

    spec: TableSpec
    capabilities: Capabilities

    def condition(self, text: str) -> Any:
        """A compiled condition, for `find` and its like."""

    @property
    def state(self) -> str:
        """missing | retrying | loading | ready | stale | failed, as SHOW TABLES tells it."""

    def snapshot(self, version: int | None = None) -> ReadTable:
        """The table as of now, or of an older version that is still held (MP409 if it is not)."""

    def changes_since(self, version: int) -> tuple[Change, ...] | None:
        """What commits after `version` did, oldest first; None when that is no longer known (compare in full)."""

    def create_index(self, *columns: str) -> None:
        """A hash index, used by find, lookup and joins from now on."""

    def copy(self, name: str) -> Table:
        """A new table with the same columns and the rows of now; MP409 if the name is taken."""

    def stats(self) -> Stats:
        """Figures; cheap."""


def _names(*contracts: type) -> frozenset[str]:
    found = (name for contract in contracts for name in (*vars(contract), *contract.__annotations__))
    return frozenset(name for name in found if not name.startswith("_"))


# What `dir()` of a table lists; the planner's data about it and what the store calls are not for users.
PUBLIC = _names(ReadTable, WriteTable, Table) - {"spec", "capabilities"}

T = TypeVar("T")


def documented(class_: type[T]) -> type[T]:
    """Give what a class has of the contract the contract's docstring, unless it has one of its own."""
    for contract in (ReadTable, WriteTable, Table):
        for name, promised in vars(contract).items():
            found = getattr(class_, name, None)
            if name in PUBLIC and found is not None and not found.__doc__:
                found.__doc__ = promised.__doc__
    return class_


class Transaction(Protocol):
    """Changes to several tables that become visible together or not at all, under snapshot isolation: it reads the
    versions of its beginning plus its own changes."""

    # Called at the start of `commit` with the transaction itself, to add what follows from its changes (views); what it
    # returns is called at the end, with whether the commit was made. It is the store's `before_commit` unless somebody
    # sets it to None, who then sees to that alone.
    before_commit: Callable[[Transaction], Ending | None] | None

    def table(self, name: str) -> WriteTable:
        """The table inside this transaction."""

    def changed(self) -> tuple[str, ...]:
        """The tables that it has changed so far."""

    def changes(self, name: str) -> Change:
        """What this transaction has done to a table so far; `version` is the one it began with."""

    def put(self, key: str, value: Any) -> None:
        """Record a small JSON value under a key in the same commit (ledger entries); None removes it."""

    def get(self, key: str) -> Any:
        """The value put under a key in this transaction, else the newest one before it, or None."""

    def savepoint(self) -> Any:
        """A point to return to; cheap."""

    def rollback_to(self, savepoint: Any) -> None:
        """Undo everything since the savepoint."""

    def hold(self, names: Sequence[str], reads: Sequence[str] = ()) -> None:
        """Called before computing what follows from the changes: lock tables to the end of the transaction, with those
        changed so far. MP405 when one of them, or of `reads`, was changed since the transaction began."""

    def commit(self) -> None:
        """One log record, one fsync, then all new versions visible at once. ConflictError MP405 when another
        transaction changed or added the same rows first; nothing is done then. MP805 when the disk refuses."""

    def rollback(self) -> None:
        """Forget it; also what leaving a `with` by an exception does."""

    def __enter__(self) -> Transaction: ...

    def __exit__(self, *error: object) -> None: ...


class Store(Protocol):
    """All tables of an app and the one commit log they share. Thread-safe."""

    # What every transaction does at the start of its commit, those that one call of a table makes included.
    before_commit: Callable[[Transaction], Ending | None] | None

    # The tables that follow the changes of a table in the same commit (views): a call that changes the one table locks
    # them too, before it looks at anything, so that two such calls come one after another.
    followers: Callable[[str], Sequence[str]] | None

    # Called with an error in a thread beside the commits, such as compaction: the store goes on, its caller may not.
    on_failure: Callable[[BaseException], None] | None

    states: dict[str, str]

    def create(self, spec: TableSpec) -> Table:
        """Make a table, or open the one there is; the definition is logged. MP409 if one of another shape is there."""

    def drop(self, name: str) -> None:
        """Remove a table and its rows; nothing if there is none."""

    def reshape(self, tables: Sequence[tuple[TableSpec, pa.Table]], puts: Mapping[str, Any]) -> None:
        """Give tables that are there other columns: each becomes what its definition says, with these rows, and all of
        them and the values in one commit. Called while no transaction is open. Not for a backend that keeps its rows
        outside of the store."""

    def table(self, name: str) -> Table:
        """By name, in any case; KeyError if there is none."""

    def names(self) -> tuple[str, ...]:
        """Of all tables, hidden ones too."""

    def get(self, key: str) -> Any:
        """The newest value put under a key, or None."""

    def items(self, prefix: str) -> dict[str, Any]:
        """All values under keys that start so."""

    def begin(self, locks: Sequence[str] = ()) -> Transaction:
        """Begin a transaction. `locks` names tables that nobody else may change until it ends, taken in one fixed
        order before versions are pinned: a transaction that locks all it writes never sees a conflict."""

    def checkpoint(self) -> None:
        """Write what recovery needs so that the log can start anew; readers and writers go on."""

    def close(self) -> None:
        """Flush and let go; the store is of no use afterwards."""


@dataclass(frozen=True)
class BackendPlugin:
    """A backend as its module declares it. `make` gives the rows of a table from its spec and a clock, as the store
    keeps them; with `files` it is also given the store's folder, in which it may keep files of its own (None when there
    is none). `runnable` is False for a backend that is understood and checked but cannot run yet."""

    name: str
    options: tuple[Option, ...]
    capabilities: Capabilities
    help: str = ""
    make: Callable[..., Any] | None = field(default=None, repr=False)
    runnable: bool = True
    files: bool = False
