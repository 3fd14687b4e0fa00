"""postgresql:// with 'cdc': every change of tables, by logical replication.

Guarantee: a transaction of the server is one commit here, in order; none is lost or applied twice, because the slot is
advanced only after our commit is durable.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from millpond.contracts.changes import (
    POSITION_GONE,
    Altered,
    Capture,
    Changes,
    ChangeSource,
    Event,
    Following,
    LogLag,
    Snapshot,
    Truncated,
)
from millpond.contracts.feeder import Polled, Position, RowForm
from millpond.contracts.source import Progress, SourceSpec, Wanted
from millpond.databases.address import Address, address_of
from millpond.databases.pool import Pool
from millpond.databases.postgresql import pgoutput
from millpond.databases.postgresql.connection import PORT, SCHEME, connect, translated
from millpond.databases.postgresql.pgoutput import Relation, RelationRows
from millpond.databases.postgresql.replication import ReplicationConnection, SlotStream, number_of
from millpond.databases.postgresql.slots import PARTITIONED, Slots, not_possible
from millpond.databases.postgresql.types import PgType, type_of
from millpond.errors import Problem, Severity, SourceError
from millpond.schema import Schema
from millpond.sources.databases.captured import BatchedFollowing, SnapshotForm, altered
from millpond.sources.databases.postgresql.tables import PostgresServer, PostgresSession
from millpond.sources.databases.table import ahead, key_ranges, reader_of, unparallel

# How long a slot that another process uses is waited for: that of a killed app is free in a moment.
BUSY_S = 15.0
IN_USE = "55006"
# How often the server is asked what it keeps for the slot.
ASKED_S = 10.0
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
                kind = self._slots.require_identity(spec, self._servers[table].columns(), keyed=capture.keyed)
                self._warn_of_silent_changes(spec, kind, self._servers[table].generated)
            added = self._slots.publish(sorted(set(self._names.values())))
            # Changes of these were not published until now: they need a snapshot before they are followed.
            self._unpublished = {table for table, name in self._names.items() if name in added}
        except BaseException:
            self.close()
            raise

    def _warn_of_silent_changes(self, spec: SourceSpec, kind: str, generated: Sequence[str]) -> None:
        """What PostgreSQL does not send."""
        if generated:
            names = " and ".join(f"'{name}'" for name in generated)
            message = f"'{spec.shown}' is captured without {names}: PostgreSQL does not send generated columns."
            self._problems.append(Problem("MP515", message, None, "Compute it in a view here.", Severity.WARNING))
        if kind == PARTITIONED:
            message = (
                f"Partitions of '{spec.shown}' that are truncated, dropped, attached or detached are not captured."
            )
            hint = "Delete their rows, or start with another --state afterwards."
            self._problems.append(Problem("MP515", message, None, hint, Severity.WARNING))

    def snapshot(self, tables: Sequence[str], position: Position | None) -> Snapshot:
        connection = ReplicationConnection(self._spec.values, self._spec.base)
        try:
            at, name = self._slots.exported(connection)
            self._unpublished -= set(tables)
            return PostgresSnapshot(self, connection, at, name, tables)
        except BaseException:
            connection.close()
            raise

    def server(self, table: str) -> PostgresServer:
        return self._servers[table]

    def spec(self, table: str) -> SourceSpec:
        return self._tables[table]

    def session(self, table: str, snapshot: str) -> PostgresSession:
        """A session of an exported snapshot."""
        return self._servers[table].session_of(snapshot)

    def start(self, *, latest: bool = False) -> Position:
        wanted = str(self._spec.values["cdc.start"]).strip().lower()
        self._slots.make()
        self._unpublished.clear()
        if latest or wanted in ("initial", "latest"):
            return self.end()
        return number_of(wanted)

    def end(self) -> Position:
        with translated(self._address), self._connection.cursor() as cursor:
            row = cursor.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        return number_of(row[0])

    def follow(self, position: Position) -> Following:
        self._slots.require_position(position)
        if self._unpublished:
            names = " and ".join(sorted(self._tables[table].shown for table in self._unpublished))
            why = f"the publication '{self._slots.publication}' did not have {names}"
            raise SourceError(POSITION_GONE, f"Changes of {self._address.shown} are lost: {why}.")
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
            reported = f"The replication slot '{self._slots.slot}' is used by another process."
            return not_possible(reported, "Stop the other app, or give each its own 'slot.name'.")
        if state in ("42704", "55000", "58P01"):
            return SourceError(POSITION_GONE, f"The changes of {self._address.shown} are gone: {message}")
        return error

    def kept(self) -> int | None:
        """The bytes of the log that the server keeps for the slot. MP506 if a table is not published any more, because
        it was made anew: opening the source again publishes it."""
        missing = self._slots.unpublished(sorted(set(self._names.values())))
        if missing:
            names = " and ".join(table for _, table in missing)
            message = f"The publication '{self._slots.publication}' of {self._address.shown} does not have {names}."
            raise SourceError("MP506", message, hint="It is added when the capture begins again.")
        return self._slots.kept()

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

    def warn(self, problems: Sequence[Problem]) -> None:
        self._problems.extend(problems)

    def problems(self) -> list[Problem]:
        found, self._problems = self._problems, []
        return found

    def close(self) -> None:
        for server in getattr(self, "_servers", {}).values():
            server.close()
        self._pool.close()
        self._connection.close()


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
        server, spec = self._source.server(table), self._source.spec(table)
        self._source.warn(unparallel(spec, server))
        ranges = key_ranges(spec, server, lambda: self._source.session(table, self._name))
        with ExitStack() as stack:
            sessions = [stack.enter_context(self._source.session(table, self._name)) for _ in ranges]
            yield from ahead(list(map(reader_of, sessions, ranges)), spec)

    def progress(self, table: str) -> Progress:
        return Progress(total=self._totals.get(table))

    def close(self) -> None:
        self._connection.close()


class PostgresFollowing(BatchedFollowing):
    """The changes of a slot, decoded."""

    def __init__(self, source: PostgresChanges, stream: SlotStream, zone: str) -> None:
        super().__init__(stream.flushed)
        self._source, self._stream, self._zone = source, stream, zone
        self._relations: dict[int, RelationRows | None] = {}
        self._committed_us = self._lsn = 0
        self._kept: int | None = None
        self._asked = 0.0

    def next(self, wait_s: float) -> Event | None:
        now = time.monotonic()
        if now - self._asked >= ASKED_S:
            self._asked, self._kept = now, self._source.kept()
        return super().next(wait_s)

    def receive(self, wait_s: float) -> bool:
        message = self._stream.next(wait_s)
        if message is None:
            return False
        self._decode(message)
        return True

    def _decode(self, message: memoryview) -> None:
        kind = message[0]
        if kind in _ROW_KINDS:
            rows = self._relations[int.from_bytes(message[1:5], "big", signed=True)]
            if rows is not None:
                rows.add(message, self._committed_us, self._lsn)
                self.added(1, len(message))
        elif kind == _BEGIN:
            self._in_transaction, self._committed_us = True, pgoutput.committed_us(message)
            self._lsn = pgoutput.commit_lsn(message)
        elif kind == _COMMIT:
            self.ended(max(self._given, pgoutput.commit_end(message)))
        elif kind == _RELATION:
            self.flush(ends=False)
            self._describe(*pgoutput.relation(message))
        elif kind == _TRUNCATE:
            self.flush(ends=False)
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
            problem = altered(self._source.shown(table), self._source.known_columns(table), columns)
            if problem is not None:
                self._events.append(Altered(table, columns, problem))

    def decoded(self) -> Iterator[Changes]:
        for rows in self._relations.values():
            if rows is None or not rows.rows:
                continue
            for table in self._source.of_relation(rows.relation):
                yield rows.changes(table, self._zone)
            rows.clear()

    def quiet(self) -> Position | None:
        return self._stream.sent if self._stream.sent > self._given else None

    def acknowledge(self, position: Position) -> None:
        self._stream.acknowledge(position)

    def lag(self) -> LogLag:
        return LogLag(max(self._stream.end - self._given, 0), self._kept)

    def close(self) -> None:
        self._stream.close()


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
