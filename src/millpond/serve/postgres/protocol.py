"""Messages of PostgreSQL's protocol 3: how they are read from a client, and written to it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Requests that come before a session: its first message has no type.
PROTOCOL_3, CANCEL, TLS, GSS = 196_608, 80_877_102, 80_877_103, 80_877_104
STARTUP_BYTES_MAX = 10_000
MESSAGE_BYTES_MAX = 16 * 1024 * 1024


class ProtocolError(Exception):
    """The client does not speak the protocol; its connection is closed."""


@dataclass(frozen=True)
class Message:
    """One message of a client."""

    kind: bytes
    body: Body


class Body:
    """The content of a message, read from its start."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def int16(self) -> int:
        return int(struct.unpack(">h", self.take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def text(self) -> str:
        end = self._content.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a text has no end")
        found = self._content[self._at : end]
        self._at = end + 1
        try:
            return found.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("a text is not UTF-8") from error

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._content):
            raise ProtocolError("a message is shorter than it claims")
        found = self._content[self._at : self._at + size]
        self._at += size
        return found

    def rest(self) -> bytes:
        return self.take(len(self._content) - self._at)

    def sized(self) -> bytes | None:
        """A value with its length; None for NULL."""
        size = self.int32()
        return None if size < 0 else self.take(size)


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, Body]:
    """The code of the first message, and its content."""
    size, code = struct.unpack(">ii", await reader.readexactly(8))
    if not 8 <= size <= STARTUP_BYTES_MAX:
        raise ProtocolError("the first message has no sensible length")
    return code, Body(await reader.readexactly(size - 8))


async def read_message(reader: asyncio.StreamReader) -> Message:
    kind = await reader.readexactly(1)
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    if not 4 <= size <= MESSAGE_BYTES_MAX:
        raise ProtocolError("a message has no sensible length")
    return Message(kind, Body(await reader.readexactly(size - 4)))


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def texts(*values: str) -> bytes:
    return b"".join(value.encode().replace(b"\0", b"") + b"\0" for value in values)


def authentication(code: int, more: bytes = b"") -> bytes:
    return message(b"R", struct.pack(">i", code) + more)


def parameter_status(name: str, value: str) -> bytes:
    return message(b"S", texts(name, value))


def ready(status: bytes) -> bytes:
    """`I` outside of a transaction, `T` in one, `E` in one that has failed."""
    return message(b"Z", status)


def complete(tag: str) -> bytes:
    return message(b"C", texts(tag))


def error(fields: Mapping[str, str], kind: bytes = b"E") -> bytes:
    return message(kind, b"".join(name.encode() + texts(value) for name, value in fields.items() if value) + b"\0")


def parameter_description(oids: Sequence[int]) -> bytes:
    return message(b"t", struct.pack(f">h{len(oids)}I", len(oids), *oids))


@dataclass(frozen=True)
class ColumnShape:
    """What a client must be sent about a column: its type, the size of its values, and its format."""

    name: str
    oid: int
    size: int
    modifier: int
    format: int


def row_description(columns: Sequence[ColumnShape]) -> bytes:
    parts = [
        texts(c.name) + struct.pack(">ihihih", 0, 0, c.oid, c.size, c.modifier, c.format) if c.oid < 2**31 else b""
        for c in columns
    ]
    return message(b"T", struct.pack(">h", len(columns)) + b"".join(parts))


PARSED, BOUND, CLOSED = message(b"1"), message(b"2"), message(b"3")
NO_DATA, EMPTY, SUSPENDED = message(b"n"), message(b"I"), message(b"s")
