"""The contract of a table: versions, keys, transactions, and the same rows for the same condition on every backend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.stored_json import Json, StoredJson
from millpond.errors import TableError
from millpond.histogram import Durations
from millpond.options import Option, OptionValues
from millpond.schema import Schema, Value

if TYPE_CHECKING:
    from millpond.tables.backend import TableRows

# pandas.DataFrame is accepted too, but has no type here, because pandas is optional.
Rows: TypeAlias = Sequence[Mapping[str, object]] | pa.Table | pa.RecordBatch
Keys: TypeAlias = Sequence[object] | pa.Array | pa.ChunkedArray | pa.Table


class CompiledCondition(Protocol):
    """A condition that is parsed once and used often, by `Table.condition`."""

    @property
    def text(self) -> str:
        """The condition as written."""

    @property
    def expression(self) -> exp.Expression:
        """The condition as parsed."""


# A condition on the rows of a table.
Where: TypeAlias = str | exp.Expr | CompiledCondition
ROWS_HINT = "Pass a list of dicts, a pyarrow.Table, a pyarrow.RecordBatch or a pandas.DataFrame."


def frame_as_arrow(rows: Rows) -> Rows:
    """A pandas DataFrame as an Arrow table without its index; anything else is returned unchanged. MP404 for a column
    whose values have no common type."""
    # A caller with a frame has imported pandas already; importing it here would cost every other caller a second.
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(rows, pandas.DataFrame):
        return rows
    try:
        return pa.Table.from_pandas(rows, preserve_index=False)
    except pa.ArrowException as error:
        hint = "Convert each column of the frame to one type, such as frame['name'].astype('string')."
        raise TableError("MP404", f"A column of the frame has values of several types: {error}", hint=hint) from error


@dataclass(frozen=True)
class Capabilities:
    """The differences between backends, as data. `durable`: survives a crash. `outside`: stored in a database of its
    own, which has its own commits, each marked with ours. `bounded`: may evict rows (cache). `remote`: on a server,
    which is read by key and by condition; nothing is done there under a lock that other tables need. `files`: in
    files, which are found by the 'path' in the log. `looked_up`: rows are only read, by the values of any columns;
    their number is unknown."""

    durable: bool = True
    outside: bool = False
    bounded: bool = False
    indexes: bool = True
    remote: bool = False
    files: bool = False
    looked_up: bool = False


@dataclass(frozen=True)
class TableSpec:
    """Everything needed to create a table; plain data, created by the planner. `null_keys`: a key column may be NULL
    and NULL equals NULL there (group tables only). `hidden`: not listed, not readable by users. `recovered`: read from
    the log, which has only those options that say where the rows are."""

    name: str
    schema: Schema
    backend: str = "memory"
    values: OptionValues = field(default_factory=dict, repr=False)
    indexes: tuple[tuple[str, ...], ...] = ()
    null_keys: bool = False
    hidden: bool = False
    recovered: bool = field(default=False, compare=False)

    @property
    def is_volatile(self) -> bool:
        """Whether its rows may differ although its version is the same: others write to it, rows expire, or they are
        looked up in a source."""
        outside = self.values.get("shared") or self.values.get("source") is not None
        return bool(outside) or self.values.get("ttl") is not None


@dataclass(frozen=True)
class Stats:
    """A table's statistics; counts are since it was opened. Sizes that do not apply are 0, and so are the figures of a
    read-through cache (`cache_`) if there is none, and the number of rows that are looked up in a source."""

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


@dataclass(frozen=True)
class TableFiles:
    """A table in Parquet files, for Spark, which reads them itself: the rows of the files at `paths` whose `key` is not
    among `hidden`, and beside them `rows`. The files may have more columns."""

    paths: tuple[str, ...]
    key: tuple[str, ...]
    hidden: pa.Table
    rows: pa.Table


@dataclass(frozen=True)
class StoreStats:
    """Statistics of a store since it was opened: the durations of commits, and of writing and syncing their log
    records, and the number of transactions that are open now."""

    commits: Durations = field(default_factory=Durations)
    syncs: Durations = field(default_factory=Durations)
    open_transactions: int = 0


# Evaluates an expression that the Arrow compiler does not support: (expression, rows, parameters) -> one value per row.
Fallback = Callable[[exp.Expression, pa.Table, Sequence[object]], pa.Array]


# Called at the end of a commit, with whether it succeeded.
Ending = Callable[[bool], None]


@dataclass(frozen=True)
class AggregateCall:
    """COUNT of a column, or of all rows without one; SUM, MIN or MAX of a column of whole numbers."""

    function: str
    column: str | None = None


class ReadTable(Protocol):
    """The reading methods: on a live table each call sees the newest version; on a snapshot or in a transaction a fixed
    one (plus the transaction's own changes). They never block and never see a part of a commit. Unless documented
    otherwise, results are in order of arrival (a replaced row moves); only callers of unkeyed tables may rely on it."""

    name: str
    schema: Schema

    @property
    def version(self) -> int:
        """Increases by at least one with every commit that changes the table."""

    def __len__(self) -> int:
        """The number of rows, in constant time."""

    def get(self, key: object) -> dict[str, Value] | None:
        """The row of a key (a tuple for a composite one) as Python values, or None; MP409 without a primary key."""

    def contains(self, key: object) -> bool:
        """Whether a row with this key exists."""

    def count(self, condition: Where | None = None, parameters: Sequence[object] = ()) -> int:
        """The number of rows for which a condition (text or compiled) is true; NULL is not true."""

    def exists(self, condition: Where | None, parameters: Sequence[object] = ()) -> bool:
        """Whether a condition is true for any row."""

    def find(
        self,
        condition: Where | None = None,
        parameters: Sequence[object] = (),
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> pa.Table:
        """The rows for which a condition is true, through the key or an index where the condition allows it."""

    def values(self, column: str, condition: Where | None = None, parameters: Sequence[object] = ()) -> list[Value]:
        """One column of `find`, as Python values."""

    def scalar(self, expression: str, condition: Where | None = None, parameters: Sequence[object] = ()) -> Value:
        """One aggregate such as SUM(volume) over the rows of `find`, as a Python value."""

    def lookup(self, keys: Keys, by: str | Sequence[str] | None = None) -> pa.Table:
        """The rows whose key (or the columns `by`, by index if there is one, else by scan) is among `keys`; each row
        once, however often its key is given; NULL finds nothing (except in a null_keys table's key)."""

    def scan(self, where: Where | None = None, batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """All rows in batches, of one version throughout, whatever is committed meanwhile."""

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows; without copying where the backend can."""

    def files(self) -> TableFiles | None:
        """All rows as files that Spark can read; None if there are none, or if the transaction has changed the
        table."""

    def aggregated(self, calls: Sequence[AggregateCall], condition: Where | None = None) -> list[int | None] | None:
        """The values of aggregates over the rows that satisfy a condition, if the server of the table evaluates all of
        it as Spark does; None otherwise, and if the transaction has changed the table."""


class WriteTable(ReadTable, Protocol):
    """The changing methods: outside a transaction each call is one of its own. They return the number of changed rows;
    an error changes nothing."""

    def insert(self, rows: Rows) -> int:
        """Add rows; absent columns get their default. MP401 for NOT NULL, MP402 for a key that exists (or is twice in
        `rows`), MP403 for a NULL key, MP404 for a value that cannot be stored."""

    def upsert(self, rows: Rows) -> int:
        """Add or replace rows by key; the last of equal keys wins. Absent columns keep their value, or get their
        default in a new row. MP409 without a key."""

    def update(self, condition: Where | None, values: Mapping[str, object], parameters: Sequence[object] = ()) -> int:
        """Set columns where a condition is true. A value is a Python value, or a sqlglot expression over the old row.
        A key column may be set; MP402 if two rows would get the same key. MP409 if the condition is None."""

    def update_many(self, changes: Sequence[tuple[Where | None, Mapping[str, object], Sequence[object]]]) -> int:
        """Apply several updates in order as one change."""

    def delete(
        self, condition: Where | None = None, parameters: Sequence[object] = (), *, keys: Keys | None = None
    ) -> int:
        """Remove rows by condition or by key; MP409 without either."""

    def replace(self, rows: pa.Table) -> int:
        """Make `rows` the whole content: only differing rows change (by key, or as a multiset without one)."""

    def replace_in_parts(self, parts: Iterable[pa.Table], *, whole: bool = True) -> int:
        """The same with rows that come in parts, which are never held together; of equal keys in two parts the later
        wins. Not `whole`: what is not among them stays."""


class Table(WriteTable, Protocol):
    """A live table, as `app.table(name)` returns it."""

    spec: TableSpec
    capabilities: Capabilities

    def condition(self, text: str) -> CompiledCondition:
        """A compiled condition, for `find` and the other methods that accept one."""

    @property
    def state(self) -> str:
        """missing | retrying | loading | ready | stale | failed, as in SHOW TABLES."""

    def snapshot(self, version: int | None = None) -> ReadTable:
        """The table as of now, or of an older version that is still available (MP409 if it is not)."""

    def changes_since(self, version: int) -> tuple[Change, ...] | None:
        """The changes of the commits after `version`, oldest first; None if they are no longer available, and the
        caller must compare in full."""

    def create_index(self, *columns: str) -> None:
        """A hash index, used by find, lookup and joins from now on."""

    def copy(self, name: str) -> Table:
        """A new table with the same columns and the rows of now; MP409 if the name is taken."""

    def stats(self) -> Stats:
        """Statistics of the table; cheap."""


def _names(*contracts: type) -> frozenset[str]:
    found = (name for contract in contracts for name in (*vars(contract), *contract.__annotations__))
    return frozenset(name for name in found if not name.startswith("_"))


# What `dir()` of a table lists; attributes for the planner and the store are not for users.
PUBLIC = _names(ReadTable, WriteTable, Table) - {"spec", "capabilities", "files", "aggregated"}

T = TypeVar("T")


def documented(class_: type[T]) -> type[T]:
    """Copy the docstrings of the contract to the methods of a class that have none of their own."""
    for contract in (ReadTable, WriteTable, Table):
        for name, promised in vars(contract).items():
            found = getattr(class_, name, None)
            if name in PUBLIC and found is not None and not found.__doc__:
                found.__doc__ = promised.__doc__
    return class_


class Transaction(Protocol):
    """Changes to several tables that become visible together or not at all, under snapshot isolation: it reads the
    versions of its beginning plus its own changes."""

    # Called at the start of `commit` with the transaction itself, to add the changes that follow from it (views); what
    # it returns is called at the end, with whether the commit succeeded. It is the store's `before_commit`, unless a
    # caller that refreshes views itself sets it to None.
    before_commit: Callable[[Transaction], Ending | None] | None

    def table(self, name: str) -> WriteTable:
        """The table inside this transaction."""

    def changed(self) -> tuple[str, ...]:
        """The tables that this transaction has changed so far."""

    def changes(self, name: str) -> Change:
        """What this transaction has changed in a table so far; `version` is the one at its beginning."""

    def put(self, key: str, value: Json) -> None:
        """Record a small JSON value under a key in the same commit (ledger entries); None removes it."""

    def get(self, key: str) -> StoredJson:
        """The value put under a key in this transaction, else the newest one before it, or None."""

    def savepoint(self) -> object:
        """A point to return to; cheap."""

    def rollback_to(self, savepoint: object) -> None:
        """Undo everything since the savepoint."""

    def hold(self, names: Sequence[str], reads: Sequence[str] = ()) -> None:
        """Called before computing what follows from the changes: lock these tables and those changed so far, until the
        end of the transaction. MP405 if one of them, or of `reads`, was changed since the transaction began."""

    def commit(self) -> None:
        """Write one log record, fsync once, then make all new versions visible together. ConflictError MP405 if another
        transaction changed or added the same rows first; then nothing is done. MP805 if the disk cannot be written."""

    def rollback(self) -> None:
        """Undo everything; leaving a `with` by an exception does the same."""

    def __enter__(self) -> Transaction: ...

    def __exit__(self, *error: object) -> None: ...


class Store(Protocol):
    """All tables of an app and the one commit log they share. Thread-safe."""

    # Called by every transaction at the start of its commit, including those of a single call of a table.
    before_commit: Callable[[Transaction], Ending | None] | None

    # The views that change in the same commit as a table: a call that changes the table locks them too, before it reads
    # anything, so that two such calls run one after the other instead of conflicting.
    followers: Callable[[str], Sequence[str]] | None

    # Called with an error of a background thread, such as compaction: the store continues, but the app may want to
    # stop.
    on_failure: Callable[[BaseException], None] | None

    states: dict[str, str]

    def create(self, spec: TableSpec) -> Table:
        """Create a table, or open the existing one; the definition is logged. MP409 if it exists with other columns."""

    def drop(self, name: str) -> None:
        """Remove a table and its rows; does nothing if there is none."""

    def reshape(self, tables: Sequence[tuple[TableSpec, pa.Table]], puts: Mapping[str, Json]) -> None:
        """Change the columns of existing tables: each gets a new definition and these rows, all tables and values in
        one commit. Called while no transaction is open. A table may move to another backend with it."""

    def table(self, name: str) -> Table:
        """The table of this name, in upper or lower case; KeyError if there is none."""

    def names(self) -> tuple[str, ...]:
        """The names of all tables, including hidden ones."""

    def get(self, key: str) -> StoredJson:
        """The newest value put under a key, or None."""

    def items(self, prefix: str) -> dict[str, StoredJson]:
        """All values whose key has this prefix."""

    def begin(self, locks: Sequence[str] = ()) -> Transaction:
        """Begin a transaction. `locks` are tables that no other transaction can change until it ends. They are locked
        in a fixed order before versions are pinned: a transaction that locks all tables it writes never has a
        conflict."""

    def stats(self) -> StoreStats:
        """Statistics; callable from any thread."""

    def checkpoint(self) -> None:
        """Write a checkpoint of all tables, so that the log can be truncated; readers and writers are not blocked."""

    def close(self) -> None:
        """Flush and release all files; the store cannot be used afterwards."""


# The time in seconds since the epoch.
Clock = Callable[[], float]


class ChangeWatch(Protocol):
    """Follows what is committed to one table of a server, by its change capture. Used by one thread at a time."""

    def has_changes(self) -> bool:
        """Whether a row was changed since the last call, or the beginning; never waits. A change may be reported a
        moment before the server shows it to readers. SourceError if the connection was lost."""

    def close(self) -> None:
        """Release the connection, and what the server keeps for it."""


@dataclass(frozen=True)
class BackendPlugin:
    """A backend as its module declares it. `make` creates the row storage of a table from its spec, a clock, and the
    store's folder for files of its own (None if there is none). `runnable` is False for a backend whose options are
    checked but that is not implemented yet. `validate` returns what is wrong with a table's options, as a sentence;
    `notes` describes for `explain` where the rows are and what others see. Both are called at planning. `watch` follows
    what others commit to a table with 'shared' and 'cdc'; SourceError MP514 if the server cannot report it."""

    name: str
    options: tuple[Option, ...]
    capabilities: Capabilities
    help: str = ""
    make: Callable[[TableSpec, Clock, Path | None], TableRows] | None = field(default=None, repr=False)
    runnable: bool = True
    validate: Callable[[TableSpec], str | None] | None = field(default=None, repr=False)
    watch: Callable[[TableSpec], ChangeWatch] | None = field(default=None, repr=False)
    notes: Callable[[TableSpec], Iterable[str]] = field(default=lambda _: (), repr=False)
