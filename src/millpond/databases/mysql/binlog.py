"""The replication protocol of MySQL and MariaDB: the events of the binary log from a position on."""

from __future__ import annotations

import select
import struct
import time
import uuid
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.contracts.changes import NOT_POSSIBLE, POSITION_GONE
from millpond.databases.address import Address, address_of
from millpond.databases.mysql.binlog_positions import (
    LogPosition,
    ranges_bytes,
    ranges_of,
)
from millpond.databases.mysql.connection import CLIENT_ERRORS, PORT, SCHEME, connect, failure, translated
from millpond.errors import SourceError

# Kinds of events.
QUERY, STOP, ROTATE, FORMAT, XID, TABLE_MAP, INCIDENT, HEARTBEAT = 2, 3, 4, 15, 16, 19, 26, 27
GTID, ANONYMOUS_GTID, XA_PREPARE, PARTIAL_ROWS, PAYLOAD, TAGGED_GTID = 33, 34, 38, 39, 40, 42
MARIADB_GTID, QUERY_COMPRESSED = 162, 165
INSERTS, UPDATES, DELETES = (23, 30, 166, 169), (24, 31, 167, 170), (25, 32, 168, 171)
ROWS = (*INSERTS, *UPDATES, *DELETES)
# Rows events with a length of more data behind the flags, and those whose rows are compressed.
SECOND_FORM, COMPRESSED = (30, 31, 32, 169, 170, 171), range(166, 172)
HEADER = struct.Struct("<IBIIIH")
# Where an event is made up by the server: it has no place in the log.
ARTIFICIAL = 0x20
CHECKSUM_SIZE = 4
DUMP, DUMP_GTID = 0x12, 0x1E
WITHOUT_WAITING, THROUGH_GTID = 1, 4
PACKET_MAX = 0xFFFFFF
# How often the server sends something, and after how long without anything it counts as lost.
HEARTBEAT_S, SILENCE_S = 5, 60.0
# How long the server waits while we commit a large transaction.
WRITE_TIMEOUT_S = 600
RECEIVED_MAX = 1 << 18
# Errors: the server does not have the log at the position; another client uses the number of this one.
GONE = (1236, 1945, 1946, 1955, 1789)
SAME_SERVER = "same server"
NO_PRIVILEGE = (1045, 1227)


@dataclass(frozen=True)
class Event:
    """An event of the log; `end` is where the next one begins in the file, 0 for one that is made up."""

    kind: int
    time_s: int
    server_id: int
    body: memoryview
    end: int


def not_possible(message: str, hint: str) -> SourceError:
    """MP514: changes cannot be captured."""
    return SourceError(NOT_POSSIBLE, message, hint=hint)


class BinlogStream:
    """The events behind a position, over a connection of its own."""

    def __init__(
        self, values: Mapping[str, Any], base: Path, position: LogPosition, server_id: int, *, waits: bool = True
    ) -> None:
        self._address: Address = address_of(SCHEME, values, PORT)
        self._username, self._server_id = self._address.username or "", server_id
        self._connection = connect(values, base)
        self._checksum = 0
        self._buffer, self._at = bytearray(), 0
        self._waited_s = 0.0
        try:
            with translated(self._address):
                self._prepare(position)
                self._send(self._command(position, 0 if waits else WITHOUT_WAITING))
        except BaseException:
            self.close()
            raise

    def _prepare(self, position: LogPosition) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("SET @master_binlog_checksum = @@global.binlog_checksum, @slave_uuid = %s", [_uuid(self)])
            cursor.execute("SELECT @@global.binlog_checksum")
            self._checksum = CHECKSUM_SIZE if cursor.fetchone()[0].upper() == "CRC32" else 0
            cursor.execute(f"SET @master_heartbeat_period = {HEARTBEAT_S * 10**9}")
            cursor.execute(f"SET SESSION net_write_timeout = {WRITE_TIMEOUT_S}")
            if self._is_mariadb:
                cursor.execute("SET @mariadb_slave_capability = 4")
                if position.gtids is not None:
                    cursor.execute("SET @slave_connect_state = %s, @slave_gtid_strict_mode = 1", [position.gtids])

    @property
    def _is_mariadb(self) -> bool:
        return "MariaDB" in self._connection.get_server_info()

    def _command(self, position: LogPosition, flags: int) -> bytes:
        if position.gtids is not None and not self._is_mariadb:
            known = ranges_bytes(ranges_of(position.gtids))
            head = struct.pack("<BHII", DUMP_GTID, flags | THROUGH_GTID, self._server_id, 0)
            return head + struct.pack("<QI", 4, len(known)) + known
        # With GTIDs, MariaDB finds the file itself.
        file, offset = ("", 4) if position.gtids is not None else (position.file, position.offset)
        return struct.pack("<BIHI", DUMP, offset, flags, self._server_id) + file.encode()

    def _send(self, command: bytes) -> None:
        self._connection._write_bytes(len(command).to_bytes(3, "little") + b"\0" + command)
        self._socket = self._connection._sock
        self._socket.settimeout(SILENCE_S)

    def next(self, wait_s: float) -> Event | None:
        """The next event; None if none came for so long."""
        packet = self._packet(wait_s)
        if packet is None:
            return None
        if packet[0] == 0xFF:
            raise self._refused(packet)
        if packet[0] == 0xFE:
            raise failure(self._address, CLIENT_ERRORS, "it has ended the stream of its log")
        time_s, kind, server_id, _, end, flags = HEADER.unpack_from(packet, 1)
        body = packet[1 + HEADER.size :]
        if kind == FORMAT:
            # The checksums of what follows; this event always has one behind it.
            self._checksum = CHECKSUM_SIZE if body[-CHECKSUM_SIZE - 1] == 1 else 0
        elif self._checksum:
            body = body[: -self._checksum]
        return Event(kind, time_s, server_id, body, 0 if flags & ARTIFICIAL else end)

    def _packet(self, wait_s: float) -> memoryview | None:
        parts: list[bytes] = []
        while True:
            if not self._filled(4, SILENCE_S if parts else wait_s):
                return None
            size = int.from_bytes(self._buffer[self._at : self._at + 3], "little")
            if not self._filled(4 + size, wait_s):
                return None
            first = self._at + 4
            parts.append(bytes(memoryview(self._buffer)[first : first + size]))
            self._at = first + size
            if size < PACKET_MAX:
                return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def _filled(self, size: int, wait_s: float) -> bool:
        """Receive until there are so many bytes; False if nothing came for so long."""
        while len(self._buffer) - self._at < size:
            if self._at:
                del self._buffer[: self._at]
                self._at = 0
            began = time.monotonic()
            if not self._has_bytes() and not select.select([self._socket], [], [], wait_s)[0]:
                self._waited_s += time.monotonic() - began
                if self._waited_s > SILENCE_S:
                    raise failure(self._address, CLIENT_ERRORS, f"it has sent nothing for {SILENCE_S:g} s")
                return False
            self._waited_s = 0.0
            with translated(self._address):
                received = self._socket.recv(RECEIVED_MAX)
            if not received:
                raise failure(self._address, CLIENT_ERRORS, "the connection was closed")
            self._buffer += received
        return True

    def _has_bytes(self) -> bool:
        """Whether an encrypted connection has decrypted more than was taken."""
        pending = getattr(self._socket, "pending", None)
        return pending is not None and pending() > 0

    def _refused(self, packet: memoryview) -> SourceError:
        number = int.from_bytes(packet[1:3], "little")
        text = bytes(packet[3:]).decode("utf-8", "replace")
        text = text[6:] if text.startswith("#") else text
        if number in NO_PRIVILEGE:
            return no_privilege(self._address, self._username)
        if number in GONE and SAME_SERVER in text:
            message = f"Another process reads the changes of {self._address.shown} as 'server.id' {self._server_id}."
            return not_possible(message, "Stop the other app, or give each its own 'server.id'.")
        if number in GONE:
            message = f"The changes of {self._address.shown} since the last one are lost: {text.rstrip('.')}."
            return SourceError(POSITION_GONE, message)
        return failure(self._address, number, text)

    def close(self) -> None:
        with suppress(Exception):
            self._connection._force_close()


def no_privilege(address: Address, user: str) -> SourceError:
    """MP514: the user may not read the log."""
    message = f"Changes of {address.shown} cannot be captured: the user '{user}' may not replicate."
    return not_possible(message, f"As root: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%';")


def _uuid(stream: BinlogStream) -> str:
    """Of the same client always the same, so that the server ends a connection that was left over."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"millpond {stream._server_id}"))


def require_privilege(values: Mapping[str, Any], base: Path, position: LogPosition) -> None:
    """MP514 unless the user may read the log: a short look at its end."""
    stream = BinlogStream(values, base, position, 0, waits=False)
    try:
        stream.next(SILENCE_S)
    finally:
        stream.close()


def inflated(body: memoryview) -> bytes:
    """What MariaDB has compressed: a byte with the number of bytes of the length, the length, and the data."""
    size = body[0] & 0x07
    return zlib.decompress(body[1 + size :])
