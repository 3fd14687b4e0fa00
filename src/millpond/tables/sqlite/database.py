"""A SQLite file: one connection for writing and one for each reading thread, shared by the tables in the file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from millpond.errors import StateError
from millpond.faults import reach

# How long a write waits for another process that writes to the file.
_BUSY_S = 10.0
# Rows of one portion of a result, and of one INSERT: more are not faster.
_PORTION_ROWS = 5_000
_INSERT_ROWS = 500
# Values of one statement, which every build of SQLite accepts.
VALUES_MAX = 30_000

_TABLES = """CREATE TABLE IF NOT EXISTS millpond_tables (
    name TEXT PRIMARY KEY COLLATE NOCASE, shape TEXT NOT NULL, version INTEGER NOT NULL, next_row INTEGER NOT NULL,
    live INTEGER NOT NULL, dropped INTEGER NOT NULL)"""

_opened: dict[Path, Database] = {}
_opening = threading.Lock()


class Database:
    """The file at a path. Writes are serialized by the store's commit lock; with a WAL, reads need no lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        with self.failing("cannot be opened"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._connect()
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._writer.execute(_TABLES)

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query, as of the last commit, from the connection of this thread."""
        with self.failing("cannot be read"):
            return list(self._reader().execute(sql, values))

    def read_columns(self, sql: str, values: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """The columns of the rows of a query, a portion of rows at a time: few Python objects exist at once."""
        with self.failing("cannot be read"):
            found = self._reader().execute(sql, values)
            while rows := found.fetchmany(_PORTION_ROWS):
                yield list(zip(*rows, strict=True))

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            self._local.connection = connection = self._connect()
            self._readers.append(connection)
        return connection

    def begin(self) -> None:
        """Begin a transaction, unless another table of the same commit has."""
        if not self._writer.in_transaction:
            with self.failing("cannot be written"):
                self._writer.execute("BEGIN IMMEDIATE")

    def write(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self.failing("cannot be written"):
            return list(self._writer.execute(sql, values))

    def insert(self, table: str, columns: Sequence[Iterable[Any]], rows: int) -> None:
        """Insert rows that are given by column, many with each statement."""
        at_once = max(1, min(_INSERT_ROWS, VALUES_MAX // len(columns)))
        row = f"({', '.join('?' * len(columns))})"
        values = chain.from_iterable(zip(*columns, strict=True))
        with self.failing("cannot be written"):
            for start in range(0, rows, at_once):
                count = min(at_once, rows - start)
                text = f"INSERT INTO {table} VALUES {', '.join([row] * count)}"
                self._writer.execute(text, tuple(islice(values, count * len(columns))))

    def commit(self) -> None:
        """Commit, unless another table of the same commit has."""
        if self._writer.in_transaction:
            reach("sqlite.commit.begin")
            with self.failing("cannot be written"):
                self._writer.execute("COMMIT")
            reach("sqlite.commit.end")

    def rollback(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def apart(self, sql: str, values: Sequence[Any]) -> None:
        """A separate write, independent of the writer's transaction; SQLite lets one wait for the other."""
        connection = self._connect()
        try:
            with self.failing("cannot be written"):
                connection.execute(sql, values)
        finally:
            connection.close()

    def bytes_on_disk(self) -> int:
        files = [self.path, self.path.with_name(self.path.name + "-wal")]
        return sum(f.stat().st_size for f in files if f.exists())

    def close(self) -> None:
        self.rollback()
        for connection in [self._writer, *self._readers]:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, _BUSY_S, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    @contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Translate errors of SQLite and the disk into StateError."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            damaged = getattr(error, "sqlite_errorname", "") in ("SQLITE_CORRUPT", "SQLITE_NOTADB")
            message = f"The SQLite file {self.path} {what}: {error}."
            raise _refused(message, damaged=damaged) from error
        except OSError as error:
            raise _refused(f"The SQLite file {self.path} {what}: {error.strerror}.", damaged=False) from error


def _refused(message: str, *, damaged: bool) -> StateError:
    if damaged:
        return StateError("MP804", message, hint="Restore the file from a copy.")
    return StateError(
        "MP805", message, hint="Free some space, or make the file writable, and try again; nothing was lost."
    )


def open_database(path: Path) -> Database:
    """The file at a path, shared by all users in this process."""
    path = path.absolute()
    with _opening:
        if path not in _opened:
            _opened[path] = Database(path)
        database = _opened[path]
        database.users += 1
        return database


def close_database(database: Database) -> None:
    """Release a file; the last user closes it."""
    with _opening:
        database.users -= 1
        if not database.users:
            del _opened[database.path]
            database.close()
