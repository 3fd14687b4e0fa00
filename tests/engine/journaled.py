"""A database with a log of changes, for tests of captures: SQLite, whose triggers write every change into a table.

`journaled:FILE?table=t` is captured; the writers use `Database.transaction`, which ends each transaction in the log.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.contracts.changes import (
    Capture,
    Changes,
    ChangeSource,
    Committed,
    Event,
    Following,
    Operation,
    Snapshot,
    Truncated,
)
from millpond.contracts.feeder import Polled, RowForm
from millpond.contracts.source import Found, Mode, Patience, Progress, SourcePlugin, SourceSpec
from millpond.errors import SourceError
from millpond.options import TEXT, Option, choice
from millpond.schema import Column, Schema

TYPES = {"INTEGER": pa.int64(), "TEXT": pa.string()}
OPERATIONS = {"i": Operation.INSERT, "u": Operation.UPDATE, "d": Operation.DELETE}
# A text as long as this is not sent where an update leaves it as it was.
LONG = 20
# Rows of one event: small, so that transactions have several.
EVENT_ROWS = 100


class Database:
    """The writers' side."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.execute("PRAGMA journal_mode = WAL")
        columns = "seq INTEGER PRIMARY KEY AUTOINCREMENT, tab TEXT, op TEXT, old TEXT, new TEXT"
        self.execute(f"CREATE TABLE IF NOT EXISTS log ({columns})")

    def execute(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.file, timeout=60, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def create(self, table: str, columns: str) -> None:
        """`columns` as in CREATE TABLE."""
        self.execute(f"CREATE TABLE {table} ({columns})")
        names = [name for name, *_ in columns_of(self.file, table)]
        kinds = (("i", "INSERT", "", "NEW"), ("u", "UPDATE", "OLD", "NEW"), ("d", "DELETE", "OLD", ""))
        for op, event, old, new in kinds:
            values = ", ".join(_as_json(names, part) for part in (old, new))
            log = f"INSERT INTO log (tab, op, old, new) VALUES ('{table}', '{op}', {values})"
            self.execute(f"CREATE TRIGGER {table}_{op} AFTER {event} ON {table} BEGIN {log}; END")

    def transaction(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.file, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                if statement.startswith("TRUNCATE "):
                    table = statement.split()[1]
                    connection.execute(f"DROP TRIGGER {table}_d")
                    connection.execute(f"DELETE FROM {table}")
                    connection.execute("INSERT INTO log (tab, op) VALUES (?, 't')", (table,))
                else:
                    connection.execute(statement)
            connection.execute("INSERT INTO log (op) VALUES ('c')")
            connection.execute("COMMIT")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.file, timeout=60)) as connection:
            return connection.execute(query).fetchall()


def _as_json(names: Sequence[str], row: str) -> str:
    pairs = ", ".join(f"'{name}', {row}.{name}" for name in names)
    return f"json_object({pairs})" if row else "NULL"


def columns_of(file: Path, table: str) -> list[tuple[str, str, int]]:
    """Name, type and place in the key of each column."""
    with closing(sqlite3.connect(file, timeout=60)) as connection:
        found = connection.execute(f"PRAGMA table_info({table})").fetchall()
    return [(name, type_, key) for _, name, type_, _, _, key in found]


def schema_of(file: Path, table: str) -> Schema:
    found = columns_of(file, table)
    key = [name for name, _, place in sorted(found, key=lambda c: c[2]) if place]
    return Schema.of([Column(name, TYPES[type_]) for name, type_, _ in found], key)


class JournalSnapshot(Snapshot):
    def __init__(self, connection: sqlite3.Connection, tables: dict[str, str], schemas: dict[str, Schema]) -> None:
        self._connection, self._tables, self._schemas = connection, tables, schemas
        self.position = connection.execute("SELECT coalesce(max(seq), 0) FROM log").fetchone()[0]

    def form(self, table: str) -> RowForm:
        form = RowForm()
        form.schema = self._schemas[table].arrow()
        return form

    def read(self, table: str) -> Iterable[Polled]:
        cursor = self._connection.execute(f"SELECT * FROM {self._tables[table]}")
        schema = self._schemas[table].arrow()
        while rows := cursor.fetchmany(1000):
            values = zip(zip(*rows, strict=True), schema, strict=True)
            columns = [pa.array(column, field.type) for column, field in values]
            yield Polled(pa.RecordBatch.from_arrays(columns, schema=schema))

    def progress(self, table: str) -> Progress:
        return Progress(total=self._connection.execute(f"SELECT count(*) FROM {self._tables[table]}").fetchone()[0])

    def close(self) -> None:
        self._connection.close()


class JournalFollowing(Following):
    def __init__(self, file: Path, position: int, source: JournalSource) -> None:
        self._connection = sqlite3.connect(file, timeout=60, isolation_level=None, check_same_thread=False)
        self._position, self._source = position, source
        self._waiting: list[Event] = []

    def next(self, wait_s: float) -> Event | None:
        until = time.monotonic() + wait_s
        while not self._waiting:
            self._read()
            if self._waiting or time.monotonic() >= until:
                break
            time.sleep(min(0.005, wait_s))
        return self._waiting.pop(0) if self._waiting else None

    def _read(self) -> None:
        try:
            rows = self._connection.execute(
                "SELECT seq, tab, op, old, new FROM log WHERE seq > ? ORDER BY seq LIMIT 10000", (self._position,)
            ).fetchall()
        except sqlite3.Error as error:
            raise SourceError("MP506", f"The log cannot be read: {error}.") from error
        held: list[tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]] = []
        for seq, table, op, old, new in rows:
            if op in OPERATIONS and table in self._source.names:
                if held and (held[0][0] != table or len(held) >= EVENT_ROWS):
                    self._put(held)
                    held = []
                held.append((table, op, json.loads(old) if old else None, json.loads(new) if new else None))
                continue
            self._put(held)
            held = []
            if op == "t" and table in self._source.names:
                self._waiting += [Truncated(name) for name in self._source.names[table]]
            elif op == "c":
                self._waiting.append(Committed(seq))
            self._position = seq
        self._put(held)
        self._position = rows[-1][0] if rows else self._position

    def _put(self, held: Sequence[tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]]) -> None:
        if not held:
            return
        for name in self._source.names[held[0][0]]:
            schema = self._source.schemas[name]
            rows, kept = [], {c.name: [False] * len(held) for c in schema}
            before = []
            for number, (_, op, old, new) in enumerate(held):
                row = dict(new or {k: (old or {})[k] for k in schema.key})
                if op == "u" and old is not None and new is not None:
                    for column, value in new.items():
                        if isinstance(value, str) and len(value) >= LONG and old[column] == value:
                            kept[column][number], row[column] = True, None
                rows.append(row)
                moved = op == "u" and old is not None and new is not None and any(old[k] != new[k] for k in schema.key)
                before.append({k: (old or {})[k] for k in schema.key} if moved else None)
            keys = pa.struct([schema.arrow().field(k).with_nullable(True) for k in schema.key])
            self._waiting.append(
                Changes(
                    name,
                    pa.RecordBatch.from_pylist(rows, schema=_nullable(schema)),
                    pa.array([OPERATIONS[op] for _, op, _, _ in held], pa.int8()),
                    pa.array(before, keys) if any(before) else None,
                    {column: pa.array(mask) for column, mask in kept.items() if any(mask)},
                )
            )

    def acknowledge(self, position: Any) -> None:
        self._source.acknowledged.append(position)

    def close(self) -> None:
        self._connection.close()


def _nullable(schema: Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema.arrow()])


class JournalSource(ChangeSource):
    """The server as a capture sees it; `oldest` in the file beside it makes the log forget."""

    def __init__(self, capture: Capture) -> None:
        (self._file,) = {spec.base / spec.uri.path for spec in capture.tables.values()}
        if not self._file.exists():
            raise SourceError("MP506", f"{self._file} does not answer.")
        self._tables = {name: spec.values["table"] for name, spec in capture.tables.items()}
        self.names: dict[str, list[str]] = {}
        for name, table in self._tables.items():
            self.names.setdefault(table, []).append(name)
        self.schemas = {name: schema_of(self._file, table) for name, table in self._tables.items()}
        self.acknowledged: list[int] = []

    def snapshot(self, tables: Sequence[str], position: Any) -> Snapshot:
        connection = sqlite3.connect(self._file, timeout=60, isolation_level=None)
        connection.execute("BEGIN")
        return JournalSnapshot(connection, {t: self._tables[t] for t in tables}, self.schemas)

    def end(self) -> int:
        with closing(sqlite3.connect(self._file, timeout=60)) as connection:
            found = connection.execute("SELECT coalesce(max(seq), 0) FROM log").fetchone()
        return int(found[0])

    def follow(self, position: int) -> Following:
        with closing(sqlite3.connect(self._file, timeout=60)) as connection:
            try:
                (oldest,) = connection.execute("SELECT coalesce(min(seq), 0) FROM log").fetchone()
            except sqlite3.Error as error:
                raise SourceError("MP506", f"The log cannot be read: {error}.") from error
        if position < oldest - 1:
            raise SourceError("MP513", f"The log begins at {oldest}.")
        return JournalFollowing(self._file, position, self)

    def contains(self, snapshot: int, position: int) -> bool:
        return snapshot >= position


def sample(spec: SourceSpec, spark: Any) -> Found:
    file = spec.base / spec.uri.path
    return Found(schema_of(file, spec.values["table"])) if file.exists() else Found(missing=True, detail="no file")


PLUGIN = SourcePlugin(
    name="journaled",
    options=(
        Option("table", TEXT, None, "The table."),
        Option("cdc.lost", choice("resnapshot", "fail"), "resnapshot", "What to do when the log is gone."),
    ),
    stream_mode=Mode.CHANGES,
    table_mode=Mode.SNAPSHOT,
    parameters={"table": "table"},
    captures=lambda values: True,
    capture_group=lambda spec: spec.uri.path,
    open_changes=JournalSource,
    sample=sample,
    patience=lambda spec: Patience(60.0, iter(lambda: 0.05, None)),
)
