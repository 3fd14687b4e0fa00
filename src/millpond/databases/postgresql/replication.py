"""The replication protocol of PostgreSQL: slots, the stream of a slot, and its feedback."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.databases.address import Address, address_of
from millpond.databases.postgresql.connection import PORT, SCHEME, connection_values, failure

# Seconds from 1970 to 2000, where PostgreSQL counts from.
EPOCH_S = 946_684_800
# How long the server waits for an answer while we commit a large transaction.
SENDER_TIMEOUT = "600s"
# How often the server is asked where its log is while nothing comes.
ASKED_S = 1.0
_WAL, _ALIVE = ord("w"), ord("k")
_HEADER = struct.Struct(">cQQq")
_FEEDBACK = struct.Struct(">cQQQqB")


def number_of(lsn: str) -> int:
    """A position of the log such as 16/B374D848 as a number; ValueError for another text."""
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_of(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


class ReplicationConnection:
    """A connection in replication mode. Errors are those of `failure`; `state` is the last one's SQLSTATE."""

    def __init__(self, values: Mapping[str, Any], base: Path) -> None:
        from psycopg import pq
        from psycopg.conninfo import make_conninfo

        self._pq = pq
        self.address: Address = address_of(SCHEME, values, PORT)
        given = connection_values(values, base)
        given["options"] = f"{given['options']} -c wal_sender_timeout={SENDER_TIMEOUT}"
        self._connection = pq.PGconn.connect(make_conninfo(**given, replication="database").encode())
        self.state: str | None = None
        if self._connection.status != pq.ConnStatus.OK:
            raise self._failed(None)

    def _failed(self, state: str | None) -> Exception:
        self.state = state
        text = self._connection.error_message.decode("utf-8", "replace")
        return failure(self.address, state, text)

    def execute(self, text: str) -> list[list[str | None]]:
        """The rows of a command, as texts."""
        pq = self._pq
        result = self._connection.exec_(text.encode())
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_BOTH):
            state = result.error_field(pq.DiagnosticField.SQLSTATE)
            raise self._failed(state.decode() if state else None)
        rows = []
        for row in range(result.ntuples):
            values = [result.get_value(row, column) for column in range(result.nfields)]
            rows.append([None if value is None else value.decode() for value in values])
        return rows

    def received(self, wait_s: float) -> memoryview | None:
        """The next message of the stream; None when none came for so long."""
        deadline = time.monotonic() + wait_s
        while True:
            size, data = self._connection.get_copy_data(1)
            if size > 0:
                return memoryview(data)
            if size < 0:
                raise self._failed("08006")
            left_s = deadline - time.monotonic()
            if not select.select([self._connection.socket], [], [], max(left_s, 0.0))[0]:
                return None
            self._consume()

    def _consume(self) -> None:
        import psycopg

        try:
            self._connection.consume_input()
        except psycopg.OperationalError as error:
            raise failure(self.address, "08006", str(error)) from error

    def feedback(self, flushed: int, *, reply: bool) -> None:
        """Everything up to a position is on our disk; `reply`: the server shall report where its log is."""
        import psycopg

        now_us = int((time.time() - EPOCH_S) * 1e6)
        message = _FEEDBACK.pack(b"r", flushed, flushed, flushed, now_us, reply)
        try:
            self._connection.put_copy_data(message)
            self._connection.flush()
        except psycopg.OperationalError as error:
            raise failure(self.address, "08006", str(error)) from error

    def close(self) -> None:
        self._connection.finish()


class SlotStream:
    """The messages of a slot from a position on."""

    def __init__(self, connection: ReplicationConnection, slot: str, publication: str, position: int) -> None:
        self._connection = connection
        name = publication.replace('"', '""').replace("'", "''")
        options = f"proto_version '1', publication_names '\"{name}\"'"
        connection.execute(f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_of(position)} ({options})')
        self.flushed = position
        # Up to where the server has sent everything, and where its log ends.
        self.sent = position
        self.end = position
        self._asked = 0.0

    def next(self, wait_s: float) -> memoryview | None:
        """The next message of the decoder; None when none came for so long, or the server has reported its log."""
        message = self._connection.received(0.0)
        if message is None and wait_s > 0:
            self._ask()
            message = self._connection.received(wait_s)
        if message is None:
            return None
        if message[0] == _WAL:
            _, _, end, _ = _HEADER.unpack_from(message)
            self.end = max(self.end, end)
            return message[_HEADER.size :]
        if message[0] == _ALIVE:
            (self.sent,) = struct.unpack_from(">Q", message, 1)
            self.end = max(self.end, self.sent)
            if message[17]:
                self._connection.feedback(self.flushed, reply=False)
        return None

    def _ask(self) -> None:
        now = time.monotonic()
        if now - self._asked >= ASKED_S:
            self._asked = now
            self._connection.feedback(self.flushed, reply=True)

    def acknowledge(self, position: int) -> None:
        self.flushed = max(self.flushed, position)
        self._connection.feedback(self.flushed, reply=False)

    def close(self) -> None:
        self._connection.close()
