"""postgresql:// with 'cdc': every change of tables, by logical replication.

Guarantee: a transaction of the server is one commit here, in order; none is lost or applied twice, because the slot is
advanced only after our commit is durable.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.contracts.changes import (
    POSITION_GONE,
    Altered,
    Capture,
    ChangeSource,
    Committed,
    Event,
    Following,
    Snapshot,
    Truncated,
)
from millpond.contracts.feeder import Polled, Position, RowForm
from millpond.contracts.source import BAD, RAW, Progress, SourceSpec, Wanted
from millpond.databases.address import Address, address_of
from millpond.databases.pool import Pool
from millpond.databases.postgresql import pgoutput
from millpond.databases.postgresql.connection import PORT, SCHEME, connect, translated
from millpond.databases.postgresql.pgoutput import Relation, RelationRows
from millpond.databases.postgresql.replication import ReplicationConnection, SlotStream, number_of
from millpond.databases.postgresql.slots import Slots, not_possible
from millpond.databases.postgresql.types import PgType, type_of
from millpond.errors import Problem, Severity, SourceError
from millpond.schema import Schema
from millpond.sources.databases.postgresql.tables import PostgresServer, PostgresSession

# Decoded rows that are handed over together; the first that is reached counts.
ROWS_MAX, BYTES_MAX = 20_000, 16 << 20
# How long a slot that another process uses is waited for: that of a killed app is free in a moment.
BUSY_S = 15.0
IN_USE = "55006"
_BEGIN, _COMMIT, _RELATION, _TRUNCATE = ord("B"), ord("C"), ord("R"), ord("T")
_ROW_KINDS = (ord("I"), ord("U"), ord("D"))


class PostgresChanges(ChangeSource):
    """The captured tables of one database."""

    def __init__(self, capture: Capture) -> None:
        self._tables = {table: replace(spec, wanted=Wanted()) for table, spec in capture.tables.items()}
        self._spec = next(iter(self._tables.values()))
        self._address: Address = address_of(SCHEME, self._spec.values, PORT)
        self._connection = connect(self._spec.values, self._spec.base)
        self._pool = Pool(self._spec.values)
        self._problems: list[Problem] = []
        try:
            self._slots = Slots(self._connection, self._address, self._spec.values, capture.owner)
            self._slots.require()
            self._servers = {table: PostgresServer(spec, self._pool) for table, spec in self._tables.items()}
            self._names = {table: self._slots.captured_name(spec) for table, spec in self._tables.items()}
            for table, spec in self._tables.items():
                self._slots.require_identity(spec, self._servers[table].columns())
            self._slots.publish(sorted(set(self._names.values())))
        except BaseException:
            self.close()
            raise

    def snapshot(self, tables: Sequence[str], position: Position | None) -> Snapshot:
        connection = ReplicationConnection(self._spec.values, self._spec.base)
        try:
            at, name = self._slots.exported(connection)
            return PostgresSnapshot(self, connection, at, name, tables)
        except BaseException:
            connection.close()
            raise

    def server(self, table: str) -> PostgresServer:
        return self._servers[table]

    def session(self, table: str, snapshot: str) -> PostgresSession:
        """A session of an exported snapshot."""
        return self._servers[table].session_of(snapshot)

    def start(self) -> Position:
        wanted = str(self._spec.values["cdc.start"]).strip().lower()
        self._slots.make()
        if wanted in ("initial", "latest"):
            return self.end()
        return number_of(wanted)

    def end(self) -> Position:
        with translated(self._address), self._connection.cursor() as cursor:
            row = cursor.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        return number_of(row[0])

    def follow(self, position: Position) -> Following:
        self._slots.require_position(position)
        deadline = time.monotonic() + BUSY_S
        while True:
            connection = ReplicationConnection(self._spec.values, self._spec.base)
            try:
                stream = SlotStream(connection, self._slots.slot, self._slots.publication, position)
            except SourceError as error:
                state = connection.state
                connection.close()
                if state == IN_USE and time.monotonic() < deadline:
                    time.sleep(0.1)
                    continue
                raise self._refused(state, error) from error
            return PostgresFollowing(self, stream, self._spec.values["time.zone"])

    def _refused(self, state: str | None, error: SourceError) -> SourceError:
        message = error.problems[0].message
        if state == IN_USE:
            said = f"The replication slot '{self._slots.slot}' is used by another process."
            return not_possible(said, "Stop the other app, or give each its own 'slot.name'.")
        if state in ("42704", "55000", "58P01"):
            return SourceError(POSITION_GONE, f"The changes of {self._address.shown} are gone: {message}")
        return error

    def contains(self, snapshot: Position, position: Position) -> bool:
        return bool(snapshot >= position)

    def of_relation(self, relation: Relation) -> list[str]:
        """The captured tables that a relation is."""
        return [table for table, name in self._names.items() if name == (relation.schema, relation.table)]

    def types_of(self, relation: Relation) -> dict[str, PgType]:
        oids = [oid for _, oid, _ in relation.columns]
        query = "SELECT oid::bigint, typelem::bigint FROM pg_type WHERE typcategory = 'A' AND oid = ANY (%s::oid[])"
        with translated(self._address), self._connection.cursor() as cursor:
            elements = dict(cursor.execute(query, [oids]).fetchall())
        return {name: type_of(oid, modifier, elements) for name, oid, modifier in relation.columns}

    def known_columns(self, table: str) -> Schema | None:
        return self._tables[table].columns

    def shown(self, table: str) -> str:
        return self._tables[table].shown

    def problems(self) -> list[Problem]:
        found, self._problems = self._problems, []
        return found

    def close(self) -> None:
        for server in getattr(self, "_servers", {}).values():
            server.close()
        self._pool.close()
        self._connection.close()


class SnapshotForm(RowForm):
    """Rows of a snapshot have the columns of the table, and say which are bad."""

    may_be_bad = True

    def __init__(self, columns: Schema) -> None:
        sent = [pa.field(column.name, column.type) for column in columns]
        self.schema = pa.schema([*sent, pa.field(BAD, pa.string()), pa.field(RAW, pa.binary())])


class PostgresSnapshot(Snapshot):
    """What a replication slot exported; it exists as long as the connection."""

    def __init__(
        self, source: PostgresChanges, connection: ReplicationConnection, at: int, name: str, tables: Sequence[str]
    ) -> None:
        self.position = at
        self._source, self._connection, self._name = source, connection, name
        self._totals = {table: source.server(table).estimate() for table in tables}

    def form(self, table: str) -> RowForm:
        return SnapshotForm(self._source.server(table).columns())

    def read(self, table: str) -> Iterable[Polled]:
        selection = self._source.server(table).selection()
        with self._source.session(table, self._name) as session:
            for rows in session.read(selection, selection.statement()):
                yield Polled(rows)

    def progress(self, table: str) -> Progress:
        return Progress(total=self._totals.get(table))

    def close(self) -> None:
        self._connection.close()


class PostgresFollowing(Following):
    """The changes of a slot, decoded; whole transactions are handed over together where they come fast."""

    def __init__(self, source: PostgresChanges, stream: SlotStream, zone: str) -> None:
        self._source, self._stream, self._zone = source, stream, zone
        self._relations: dict[int, RelationRows | None] = {}
        self._events: deque[Event] = deque()
        self._rows = self._bytes = 0
        self._in_transaction = False
        self._committed_us = 0
        self._offset = 0
        # Behind the last whole transaction that was decoded, and the position that was handed over last.
        self._reached: int | None = None
        self._given = stream.flushed

    def next(self, wait_s: float) -> Event | None:
        deadline = time.monotonic() + wait_s
        while not self._events:
            waiting = self._rows or (self._reached or 0) > self._given
            # Whole transactions are handed over at once when nothing follows; the rest of one is on its way.
            left_s = 0.0 if waiting and not self._in_transaction else max(deadline - time.monotonic(), 0.0)
            message = self._stream.next(left_s)
            if message is not None:
                self._decode(message)
            elif waiting and not self._in_transaction:
                self._flush(ends=True)
            elif not self._in_transaction and not waiting and self._stream.sent > self._given:
                self._given = self._stream.sent
                self._events.append(Committed(self._given))
            elif time.monotonic() >= deadline:
                return None
        return self._events.popleft()

    def _decode(self, message: memoryview) -> None:
        kind = message[0]
        if kind in _ROW_KINDS:
            rows = self._relations[int.from_bytes(message[1:5], "big", signed=True)]
            if rows is None:
                return
            rows.add(message, self._committed_us)
            self._rows += 1
            self._bytes += len(message)
            if self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX:
                self._flush(ends=False)
        elif kind == _BEGIN:
            self._in_transaction, self._committed_us = True, pgoutput.committed_us(message)
        elif kind == _COMMIT:
            self._in_transaction, self._reached = False, pgoutput.commit_end(message)
            if self._rows >= ROWS_MAX // 2:
                self._flush(ends=True)
        elif kind == _RELATION:
            self._flush(ends=False)
            self._describe(*pgoutput.relation(message))
        elif kind == _TRUNCATE:
            self._flush(ends=False)
            for number in pgoutput.truncated(message):
                found = self._relations.get(number)
                if found is not None:
                    self._events.extend(Truncated(table) for table in self._source.of_relation(found.relation))

    def _describe(self, number: int, relation: Relation) -> None:
        tables = self._source.of_relation(relation)
        if not tables:
            self._relations[number] = None
            return
        types = self._source.types_of(relation)
        self._relations[number] = RelationRows(relation, types)
        columns = pgoutput.columns_of(types, ())
        for table in tables:
            problem = _altered(self._source.shown(table), self._source.known_columns(table), columns)
            if problem is not None:
                self._events.append(Altered(table, columns, problem))

    def _flush(self, *, ends: bool) -> None:
        """Hand over what was decoded; `ends`: the transactions are whole."""
        for rows in self._relations.values():
            if rows is None or not rows.rows:
                continue
            for table in self._source.of_relation(rows.relation):
                self._events.append(rows.changes(table, self._zone, self._offset))
            self._offset += len(rows.rows)
            rows.clear()
        self._rows = self._bytes = 0
        if ends and self._reached is not None:
            self._given = max(self._given, self._reached)
            self._events.append(Committed(self._given))

    def acknowledge(self, position: Position) -> None:
        self._stream.acknowledge(position)

    def lag(self) -> tuple[int | None, float | None]:
        return max(self._stream.end - self._given, 0), None

    def close(self) -> None:
        self._stream.close()


def _altered(shown: str, known: Schema | None, now: Schema) -> Problem | None:
    """A warning where a table has other columns than the app has started with."""
    if known is None:
        return None
    added = [c.name for c in now if known.get(c.name) is None]
    gone = [c.name for c in known if now.get(c.name) is None]
    other = [c.name for c in known if (found := now.get(c.name)) is not None and found.type != c.type]
    parts = [
        *(f"'{name}' was added, the table does not have it yet" for name in added),
        *(f"'{name}' is gone, it is NULL from now on" for name in gone),
        *(f"'{name}' has another type, its values are cast" for name in other),
    ]
    if not parts:
        return None
    hint = "Start the app again: it then takes the columns as they are."
    return Problem("MP503", f"Columns of '{shown}' have changed: {'; '.join(parts)}.", None, hint, Severity.WARNING)


def left_behind(capture: Capture, drop: bool) -> list[str]:
    """The slot and the publication of a capture."""
    spec = next(iter(capture.tables.values()))
    connection = connect(spec.values, spec.base)
    try:
        address = address_of(SCHEME, spec.values, PORT)
        return Slots(connection, address, spec.values, capture.owner).left_behind(drop=drop)
    finally:
        connection.close()


def capture_group(spec: SourceSpec) -> str:
    """The tables of one database share a slot and a position."""
    address = address_of(SCHEME, spec.values, PORT)
    return f"{address.identity}:{spec.values['slot.name'] or ''}:{spec.values['publication.name'] or ''}"


def wrong_start(values: Any) -> str | None:
    """What is wrong with where capture starts."""
    text = str(values["cdc.start"]).strip().lower()
    if text in ("initial", "latest") or re.fullmatch(r"[0-9a-f]{1,8}/[0-9a-f]{1,8}", text):
        return None
    return "'cdc.start' is initial, latest, or a position of the log such as 0/1A2B3C8."
