"""The SQLite backend: rows in a file that other programs can read; each commit is applied exactly once.

A commit is staged in a SQLite transaction, becomes final by the store's log record, and is then committed in SQLite
together with its version number. After a crash in between, recovery applies the log record if that version is
missing."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.contracts.table import BackendPlugin, Capabilities, Clock, TableSpec
from millpond.disk import touch_private
from millpond.errors import OptionError, StateError, TableError
from millpond.options import FILE, Option
from millpond.schema import Schema
from millpond.tables.backend import Urgency
from millpond.tables.draft import Draft
from millpond.tables.index import Ids
from millpond.tables.memory import conflict
from millpond.tables.pushdown import quoted
from millpond.tables.recent_changes import Entry, History
from millpond.tables.sqlite.database import Database, close_database, open_database
from millpond.tables.sqlite.versions import ALIVE, AMONG, SqliteVersion, as_json, sqlite_type, stored_name, to_sqlite

# Dead rows are removed when they outnumber the live ones and there are enough of them to be worth the work.
_DEAD_MIN = 4096


@dataclass(frozen=True)
class SqlitePrepared:
    """A change that has passed every check."""

    after: SqliteVersion
    removed: Ids
    added: pa.RecordBatch
    vanished: Ids

    @property
    def number(self) -> int:
        return self.after.number


# The default file, in the folder of the store.
DEFAULT = "tables.sqlite"


class SqliteRows:
    """The rows of one table in a file."""

    def __init__(self, spec: TableSpec, clock: Clock, folder: Path | None = None) -> None:
        path = spec.values.get("path")
        if not path and folder is None:
            message = f"Table '{spec.name}' has the backend sqlite but no 'path'."
            raise OptionError("MP305", message, hint="Set a file: WITH ('backend' = 'sqlite', 'path' = 'users.db').")
        if not path:
            assert folder is not None
            path = folder / DEFAULT
            touch_private(path)
        self.spec = spec
        self.history = History()
        self.commits = self.compactions = 0
        self._database: Database = open_database(Path(path))
        self._current: SqliteVersion | None = None
        self._dead = 0

    @property
    def current(self) -> SqliteVersion:
        # Opened on first use: at recovery the log may still contain an earlier table of the same name.
        if self._current is None:
            self._current = self._open()
            self.history.start(self._current)
        return self._current

    @property
    def bytes_disk(self) -> int:
        """The size of the whole file, including other tables."""
        return self._database.bytes_on_disk()

    def define(self, spec: TableSpec) -> None:
        if Path(spec.values.get("path") or self._database.path).absolute() != self._database.path:
            message = f"The 'path' of table '{spec.name}' cannot be changed: its rows are in {self._database.path}."
            raise TableError("MP409", message, hint="Keep its 'path', or drop the table first.")
        self.spec = spec
        if self._current is None:
            return
        self._make_indexes()
        self._current = replace(self._current, indexed_columns=_index_columns(spec))

    def load(self, table: pa.Table, number: int) -> None:
        """Nothing to do: the file has the rows."""

    def view(self, version: SqliteVersion) -> SqliteVersion:
        return version

    def use(self, version: SqliteVersion, ids: Ids) -> None:
        """Nothing to do: no row is evicted."""

    def has(self, number: int) -> bool:
        found = self._database.read("SELECT version FROM millpond_tables WHERE name = ?", (self.spec.name,))
        held = found[0][0] if found else 0
        if number > held + 1:
            message = (
                f"{self._database.path} is older than the log: '{self.spec.name}' has version {held}, not {number - 1}."
            )
            raise StateError("MP804", message, hint="Restore the file that belongs to this state directory.")
        return bool(held >= number)

    def prepare(self, draft: Draft) -> SqlitePrepared:
        now, removed, addition = self.current, draft.removed(), draft.added()
        replaced = removed[:0]
        # A draft of the newest version has looked up the keys itself: only rows that it removed can be replaced.
        if addition.keys is not None and addition.count and (len(removed) or now.number != draft.base.number):
            replaced = now.located(addition.keys)
            replaced = replaced[replaced >= 0]
        if now.number != draft.base.number and not (now.existing(removed).all() and np.isin(replaced, removed).all()):
            raise conflict(self.spec.name)
        count = addition.count
        after = replace(now, number=now.number + 1, rows=now.rows + count, live=now.live - len(removed) + count)
        return SqlitePrepared(after, removed, addition.batch, np.setdiff1d(removed, replaced))

    def stage(self, prepared: SqlitePrepared) -> None:
        database, after, stored = self._database, prepared.after, stored_name(self.spec.name)
        database.begin()
        # The version is also how recovery determines whether the change was applied.
        done = database.write(
            "UPDATE millpond_tables SET version = ?, next_row = ?, live = ? WHERE name = ? AND version = ? RETURNING 1",
            (after.number, after.rows, after.live, self.spec.name, after.number - 1),
        )
        if not done:
            message = f"Another process changed '{self.spec.name}' in {database.path}."
            raise StateError("MP801", message, hint="Stop that process, then start the app again.")
        if len(prepared.removed):
            died = f"UPDATE {stored} SET millpond_died = ? WHERE {AMONG}"
            database.write(died, (after.number, as_json(np.sort(prepared.removed))))
        count = prepared.added.num_rows
        columns = [to_sqlite(column) for column in prepared.added.columns]
        numbers = range(after.rows - count, after.rows)
        database.insert(stored, [numbers, repeat(ALIVE, count), *columns], count)

    def unstage(self) -> None:
        self._database.rollback()

    def apply(self, prepared: SqlitePrepared) -> SqliteVersion:
        self._database.commit()
        before, after = self.current, prepared.after
        self._current = after
        self.history.add(Entry(after.number, prepared.removed, before.rows, after.rows, after.live))
        self._dead += len(prepared.removed)
        self.commits += 1
        return after

    @property
    def urgency(self) -> Urgency:
        return Urgency.NONE if self._dead < max(_DEAD_MIN, self.current.live) else Urgency.NOW

    def begin_compaction(self) -> None:
        """None: SQLite allows only one writer."""

    def compact(self) -> None:
        """Remove rows that no version in use can see."""
        if self.urgency is Urgency.NONE:
            return
        self.history.detach(self.current)
        self.history.start(self.current)
        oldest = self.current.readers.oldest()
        stored = stored_name(self.spec.name)
        self._database.apart(f"DELETE FROM {stored} WHERE millpond_died <= ?", (oldest,))
        self._dead = self._dead_rows()
        self.compactions += 1

    def drop(self) -> None:
        # The version continues when the name is used again, so that older log records are not applied to the new table.
        database = self._database
        database.begin()
        database.write(f"DROP VIEW IF EXISTS {quoted(self.spec.name)}")
        database.write(f"DROP TABLE IF EXISTS {stored_name(self.spec.name)}")
        mark = "UPDATE millpond_tables SET version = version + 1, live = 0, dropped = 1 WHERE name = ? AND NOT dropped"
        database.write(mark, (self.spec.name,))
        database.commit()

    def close(self) -> None:
        close_database(self._database)

    def _open(self) -> SqliteVersion:
        sql = "SELECT shape, version, next_row, live, dropped FROM millpond_tables WHERE name = ?"
        found = self._database.read(sql, (self.spec.name,))
        if not found or found[0][4]:
            self._create(found[0][1] if found else 0)
            found = self._database.read(sql, (self.spec.name,))
        shape, number, next_row, live, _ = found[0]
        if shape != _shape(self.spec.schema):
            message = f"Table '{self.spec.name}' already exists in {self._database.path}, with other columns."
            raise TableError("MP409", message, hint="Use another file, or rename the table.")
        self._make_indexes()
        self._dead = self._dead_rows()
        indexes = _index_columns(self.spec)
        return SqliteVersion(self._database, self.spec.name, self.spec.schema, number, next_row, live, indexes)

    def _create(self, number: int) -> None:
        database, name = self._database, self.spec.name
        if name.lower().startswith("sqlite_"):
            message = f"SQLite reserves names such as '{name}'."
            raise TableError("MP409", message, hint="Choose a name that does not begin with sqlite_.")
        if database.read("SELECT 1 FROM sqlite_master WHERE lower(name) = lower(?)", (name,)):
            message = f"{database.path} already has a '{name}' that was not created by Millpond."
            raise TableError("MP409", message, hint="Use another file, or rename the table.")
        columns = ", ".join(f"{quoted(c.name)} {sqlite_type(c.type)}" for c in self.spec.schema)
        names = ", ".join(quoted(c.name) for c in self.spec.schema)
        stored = stored_name(name)
        database.begin()
        database.write(
            f"CREATE TABLE {stored} (millpond_row INTEGER PRIMARY KEY, millpond_died INTEGER NOT NULL, {columns})"
        )
        alive = f"SELECT {names} FROM {stored} WHERE millpond_died = {ALIVE} ORDER BY millpond_row"
        database.write(f"CREATE VIEW {quoted(name)} AS {alive}")
        values = (name, _shape(self.spec.schema), number)
        database.write("REPLACE INTO millpond_tables VALUES (?, ?, ?, 0, 0, 0)", values)
        database.commit()

    def _make_indexes(self) -> None:
        schema, stored = self.spec.schema, stored_name(self.spec.name)
        for columns in (schema.key, *self.spec.indexes):
            if columns:
                name = quoted(f"millpond_{self.spec.name}__by_{'_'.join(columns)}")
                listed = ", ".join(quoted(schema[c].name) for c in columns)
                self._database.write(f"CREATE INDEX IF NOT EXISTS {name} ON {stored} ({listed})")

    def _dead_rows(self) -> int:
        sql = f"SELECT count(*) FROM {stored_name(self.spec.name)} WHERE millpond_died < {ALIVE}"
        return int(self._database.read(sql)[0][0])


def _shape(schema: Schema) -> str:
    return json.dumps([[c.name, str(c.type)] for c in schema] + [list(schema.key)])


def _index_columns(spec: TableSpec) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(spec.schema.position(n) for n in names) for names in spec.indexes)


PLUGIN = BackendPlugin(
    name="sqlite",
    options=(Option("path", FILE, None, "The database file; by default one in the state directory.", defines=True),),
    capabilities=Capabilities(outside=True),
    make=SqliteRows,
    help="Rows in a SQLite file; a view of the table's name shows them to other programs.",
)
