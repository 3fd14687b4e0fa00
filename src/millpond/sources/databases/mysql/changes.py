"""mysql:// and mariadb:// with 'cdc': every change of tables, by the binary log.

Guarantee: a transaction of the server is one commit here, in order; none is lost or applied twice, because the position
is stored in our commit, and the log is read from there.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from millpond.contracts.changes import (
    POSITION_GONE,
    Altered,
    Capture,
    Changes,
    ChangeSource,
    Following,
    LogLag,
    Snapshot,
    Truncated,
)
from millpond.contracts.changes import Event as ChangeEvent
from millpond.contracts.feeder import Polled, Position, RowForm
from millpond.contracts.source import Progress, SourceSpec, Wanted
from millpond.databases.address import address_of
from millpond.databases.mysql import binlog
from millpond.databases.mysql.binlog import BinlogStream, Event, inflated, not_possible
from millpond.databases.mysql.binlog_positions import Gtids, LogPosition
from millpond.databases.mysql.binlog_rows import TableRows, schema_of, table_map
from millpond.databases.mysql.connection import PORT, SCHEME
from millpond.databases.mysql.log_server import LogServer
from millpond.databases.mysql.logged_statements import Kind, Name, emptied, kind_of, unknown_effect
from millpond.databases.pool import Pool
from millpond.errors import Problem, Severity, SourceError
from millpond.schema import Schema
from millpond.sources.databases.captured import BatchedFollowing, SnapshotForm, altered
from millpond.sources.databases.mysql.tables import MysqlServer, open_session
from millpond.sources.databases.table import ahead, reader_of

# The numbers of clients that are chosen; small ones are those of real servers.
# How often the server is asked where its log ends.
ASKED_S = 10.0
SERVER_IDS = range(1_000_000_000, 4_000_000_000)


class MysqlChanges(ChangeSource):
    """The captured tables of one server."""

    def __init__(self, capture: Capture) -> None:
        self._tables = {table: _qualified(spec) for table, spec in capture.tables.items()}
        self._spec = next(iter(self._tables.values()))
        self._pool = Pool(self._spec.values)
        self._problems: list[Problem] = []
        self.log = LogServer(self._spec)
        self._server_id: int = self._spec.values["server.id"] or _chosen_id(capture.owner, self.log.address.identity)
        self._servers: dict[str, MysqlServer] = {}
        try:
            self.log.require()
            for table, spec in self._tables.items():
                self._servers[table] = MysqlServer(spec, self._pool)
            self.names = {t: self.log.captured_name(s, self._servers[t].columns()) for t, s in self._tables.items()}
            self._charsets = self.log.charsets()
            self._warn_of_silent_changes()
        except BaseException:
            self.close()
            raise

    def _warn_of_silent_changes(self) -> None:
        for table, name in self.names.items():
            for key in self.log.silent_changes(name):
                message = f"Changes that the foreign key '{key}' makes in '{self._tables[table].shown}' are not seen:"
                hint = "Poll the table instead, with 'poll.interval', or make these changes by statements."
                whole = f"{message} the server does not log them."
                self._problems.append(Problem("MP515", whole, None, hint, Severity.WARNING))

    def snapshot(self, tables: Sequence[str], position: Position | None) -> Snapshot:
        connection = open_session(self._spec)
        try:
            at = self.log.snapshot(connection)
            return MysqlSnapshot({table: self._servers[table] for table in tables}, connection, at)
        except BaseException:
            connection._force_close()
            raise

    def start(self, *, latest: bool = False) -> Position:
        wanted = str(self._spec.values["cdc.start"]).strip()
        if latest or wanted.lower() in ("initial", "latest"):
            return self.end()
        file, colon, offset = wanted.rpartition(":")
        if colon and offset.isdigit() and "," not in wanted and "-" not in offset and "." in file:
            return self.log.at(file, int(offset)).as_json()
        return LogPosition("", 4, wanted).as_json()

    def end(self) -> Position:
        return self.log.end().as_json()

    def follow(self, position: Position) -> Following:
        self.require_position(position)
        at = LogPosition.of(position)
        stream = BinlogStream(self._spec.values, self._spec.base, at, self._server_id)
        return MysqlFollowing(self, stream, at, self._spec.values["time.zone"])

    def require_position(self, position: Position) -> None:
        """MP513 if the log ends before a position, at which the server would wait."""
        end = self.log.end()
        if not end.contains(LogPosition.of(position)):
            why = "it was reset, or another server has taken its place"
            message = f"The log of {self.log.address.shown} ends before the last position that was read: {why}."
            raise SourceError(POSITION_GONE, message)

    def contains(self, snapshot: Position, position: Position) -> bool:
        return LogPosition.of(snapshot).contains(LogPosition.of(position))

    def tables_of(self, name: Name) -> list[str]:
        """The captured tables that a table of the server is."""
        return [table for table, known in self.names.items() if known == name]

    def rows_of(self, event: Event) -> tuple[int, TableRows | None]:
        """The number of a table that the log describes, and where its rows are decoded if it is captured."""
        number, described = table_map(event.body)
        name = (described.database, described.table)
        if not self.tables_of(name):
            return number, None
        columns = described.columns(self.log.columns(name), self._charsets, is_mariadb=self.log.is_mariadb)
        if columns is None:
            message = f"The columns of the table '{described.table}' have changed, and the log does not name them."
            hint = "With SET GLOBAL binlog_row_metadata = 'FULL' it does."
            raise SourceError(POSITION_GONE, message, hint=hint)
        return number, TableRows(described, columns)

    def key(self, table: str) -> tuple[str, ...]:
        return self._servers[table].columns().key

    def known_columns(self, table: str) -> Schema | None:
        return self._tables[table].columns

    def shown(self, table: str) -> str:
        return self._tables[table].shown

    def problems(self) -> list[Problem]:
        found, self._problems = self._problems, []
        return found

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._pool.close()
        self.log.close()


class MysqlSnapshot(Snapshot):
    """One transaction, in which all tables are read."""

    def __init__(self, servers: dict[str, MysqlServer], connection: Any, at: LogPosition) -> None:
        self.position = at.as_json()
        self._servers, self._connection = servers, connection
        self._totals = {table: server.estimate() for table, server in servers.items()}

    def form(self, table: str) -> RowForm:
        return SnapshotForm(self._servers[table].columns())

    def read(self, table: str) -> Iterable[Polled]:
        selection = self._servers[table].selection()
        with self._servers[table].session_over(self._connection) as session:
            yield from ahead([reader_of(session, selection)], self._servers[table].spec)

    def progress(self, table: str) -> Progress:
        return Progress(total=self._totals.get(table))

    def close(self) -> None:
        self._connection._force_close()


class MysqlFollowing(BatchedFollowing):
    """The changes of a log, decoded."""

    def __init__(self, source: MysqlChanges, stream: BinlogStream, position: LogPosition, zone: str) -> None:
        super().__init__(position.as_json())
        self._source, self._stream, self._zone = source, stream, zone
        self._names = set(source.names.values())
        self._gtids = Gtids(position.gtids, is_mariadb=source.log.is_mariadb)
        self._file, self._end = position.file, position.offset
        self._rows_of: dict[int, TableRows | None] = {}
        self._is_alone = self._has_rows = False
        self._committed_us = self._offset = 0
        self._event_s = 0
        self._asked = time.monotonic()

    def receive(self, wait_s: float) -> bool:
        event = self._stream.next(wait_s)
        if event is None:
            return False
        self._decode(event)
        return True

    def _decode(self, event: Event) -> None:
        if event.kind in binlog.ROWS:
            self._add(event)
        elif event.kind == binlog.TABLE_MAP:
            self._describe(event)
        elif event.kind == binlog.ROTATE:
            self._file, self._end = bytes(event.body[8:]).decode(), int.from_bytes(event.body[:8], "little")
        elif event.kind in (binlog.MARIADB_GTID, binlog.GTID, binlog.ANONYMOUS_GTID, binlog.TAGGED_GTID):
            self._begin(event)
        elif event.kind in (binlog.QUERY, binlog.QUERY_COMPRESSED):
            self._run(event)
        elif event.kind == binlog.XID:
            self._commit(event)
        else:
            self._other(event)
        if event.time_s:
            self._event_s = event.time_s

    def _begin(self, event: Event) -> None:
        self._has_rows = False
        self._committed_us = event.time_s * 1_000_000
        if event.kind == binlog.MARIADB_GTID:
            self._is_alone = self._gtids.begins_in_mariadb(event.body, event.server_id)
            self._in_transaction = not self._is_alone
        elif event.kind == binlog.GTID:
            self._gtids.begins_in_mysql(event.body)
        elif event.kind == binlog.TAGGED_GTID:
            raise not_possible("Changes with tagged GTIDs cannot be captured.", "Write without tags.")

    def _describe(self, event: Event) -> None:
        number = int.from_bytes(event.body[:6], "little")
        if number in self._rows_of:
            return
        number, rows = self._source.rows_of(event)
        self._rows_of[number] = rows
        if rows is None:
            return
        columns = schema_of(rows.columns)
        for table in self._source.tables_of((rows.map.database, rows.map.table)):
            problem = altered(self._source.shown(table), self._source.known_columns(table), columns)
            if problem is not None:
                self.flush(ends=False)
                self._events.append(Altered(table, columns, problem))

    def _add(self, event: Event) -> None:
        rows = self._rows_of.get(int.from_bytes(event.body[:6], "little"))
        if rows is not None:
            self._has_rows = True
            self.added(rows.add(event, self._committed_us), len(event.body))

    def _run(self, event: Event) -> None:
        """A statement: the beginning or the end of a transaction, or one that is not logged as rows."""
        database, text = _statement(event)
        kind = kind_of(text)
        if kind is Kind.BEGIN:
            self._in_transaction, self._has_rows = True, False
            self._committed_us = event.time_s * 1_000_000
        elif kind is Kind.COMMIT:
            self._commit(event)
        elif kind is Kind.ROLLBACK:
            if self._has_rows:
                raise self._lost("A transaction of several engines was rolled back in part")
            if "TO" not in text.upper().split()[:3]:
                self._commit(event)
        elif kind is Kind.XA_COMMIT:
            raise self._lost("A distributed transaction was committed")
        elif kind is Kind.ALONE:
            self._apply(text, database)
            if not self._in_transaction:
                self._commit(event)

    def _apply(self, text: str, database: str) -> None:
        changed = unknown_effect(text, database, self._names)
        if changed is not None:
            what = " ".join(text.split())[:60]
            raise self._lost(f"Rows of the table '{changed[1]}' were changed by a statement: {what}")
        # Its columns may be others now.
        gone = emptied(text, database, self._names)
        self.flush(ends=False)
        self._rows_of.clear()
        self._events.extend(Truncated(table) for name in gone for table in self._source.tables_of(name))

    def _lost(self, why: str) -> SourceError:
        return SourceError(POSITION_GONE, f"{why}, whose rows the log of the server does not have.")

    def _commit(self, event: Event) -> None:
        self._gtids.ends()
        self._is_alone = False
        self._end = event.end or self._end
        self.ended(LogPosition(self._file, self._end, self._gtids.text).as_json())

    def _other(self, event: Event) -> None:
        if event.kind == binlog.XA_PREPARE:
            # Its rows happen when it is committed, which is a statement of its own.
            self._forget()
            self._commit(event)
        elif event.kind == binlog.INCIDENT:
            raise self._lost("The server has reported an incident")
        elif event.kind in (binlog.PAYLOAD, binlog.PARTIAL_ROWS):
            raise not_possible(
                "The log of the server has compressed transactions or parts of rows, which cannot be read.",
                "Set binlog_transaction_compression = OFF and binlog_row_value_options = '', and start again.",
            )
        elif not self._in_transaction and not self._is_alone:
            self._end = event.end or self._end

    def _forget(self) -> None:
        if self._has_rows:
            raise self._lost("A distributed transaction was prepared")

    def decoded(self) -> Iterator[Changes]:
        for rows in self._rows_of.values():
            if rows is None or not rows.operations:
                continue
            for table in self._source.tables_of((rows.map.database, rows.map.table)):
                yield rows.changes(table, self._zone, self._offset, self._source.key(table))
            self._offset += len(rows.operations)
            rows.clear()

    def next(self, wait_s: float) -> ChangeEvent | None:
        now = time.monotonic()
        if now - self._asked >= ASKED_S:
            self._asked = now
            self._source.require_position(self._given)
        return super().next(wait_s)

    def quiet(self) -> Position | None:
        position = LogPosition(self._file, self._end, self._gtids.text).as_json()
        return position if position != self._given else None

    def acknowledge(self, position: Position) -> None:
        """Nothing to do: the server keeps its log for as long as it is set to."""

    def lag(self) -> LogLag:
        waiting = bool(self._rows or self._in_transaction)
        return LogLag(seconds=max(time.time() - self._event_s, 0.0) if waiting and self._event_s else 0.0)

    def close(self) -> None:
        self._stream.close()


def _statement(event: Event) -> tuple[str, str]:
    """The database in which a statement ran, and its text."""
    body = bytes(event.body)
    at = 13 + int.from_bytes(body[11:13], "little")
    database = body[at : at + body[8]].decode()
    text = body[at + body[8] + 1 :]
    if event.kind == binlog.QUERY_COMPRESSED:
        text = inflated(memoryview(text))
    return database, text.decode("utf-8", "replace")


def _qualified(spec: SourceSpec) -> SourceSpec:
    """All columns of a table, which is named with its database: one connection reads those of several."""
    values = {**spec.values, "schema": spec.values.get("schema") or spec.values.get("database")}
    return replace(spec, wanted=Wanted(), values=values)


def _chosen_id(owner: str, identity: str) -> int:
    """The same for every run of an app, so that the server ends a connection that was left over."""
    return SERVER_IDS[zlib.crc32(f"{owner} {identity}".encode()) % len(SERVER_IDS)]


def capture_group(spec: SourceSpec) -> str:
    """The tables of one server share a log and a position."""
    address = address_of(SCHEME, spec.values, PORT)
    return f"{address.host}:{address.port}:{address.username or ''}:{spec.values['server.id'] or ''}".lower()
