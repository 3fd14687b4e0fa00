"""Positions in the binary log: a file and an offset, and global transaction ids (GTIDs) where the server has them."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The GTIDs of MariaDB: the server and the last number of each domain. Those of MySQL: ranges of numbers of each server.
Domains = dict[int, tuple[int, int]]
Ranges = dict[str, list[tuple[int, int]]]
MARIADB_GTID = re.compile(r"(\d+)-(\d+)-(\d+)")


@dataclass(frozen=True)
class LogPosition:
    """Behind a transaction. `gtids` are all that were committed up to it; None where the server has none."""

    file: str
    offset: int
    gtids: str | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> LogPosition:
        return cls(stored["file"], stored["offset"], stored["gtids"])

    def as_json(self) -> dict[str, Any]:
        return {"file": self.file, "offset": self.offset, "gtids": self.gtids}

    def contains(self, other: LogPosition) -> bool:
        """Whether everything up to another position is before this one. GTIDs are compared where both have them: they
        are the same on every copy of a server, files are not."""
        if self.gtids is not None and other.gtids is not None:
            return contains(self.gtids, other.gtids)
        return (_number(self.file), self.offset) >= (_number(other.file), other.offset)


def _number(file: str) -> int:
    """The number of a file of the log such as binlog.000012."""
    digits = file.rpartition(".")[2]
    return int(digits) if digits.isdigit() else 0


def contains(gtids: str, others: str) -> bool:
    """Whether a set of GTIDs contains another one."""
    if is_of_mariadb(gtids) or is_of_mariadb(others):
        own, theirs = domains_of(gtids), domains_of(others)
        return all(own.get(domain, (0, 0))[1] >= number for domain, (_, number) in theirs.items())
    known, wanted = ranges_of(gtids), ranges_of(others)
    return all(
        any(first <= low and high <= last for first, last in known.get(server, ()))
        for server, ranges in wanted.items()
        for low, high in ranges
    )


def is_of_mariadb(gtids: str) -> bool:
    return bool(MARIADB_GTID.match(gtids.strip()))


def domains_of(gtids: str) -> Domains:
    """The GTIDs of MariaDB, such as 0-1-55,1-1-3."""
    return {int(domain): (int(server), int(number)) for domain, server, number in MARIADB_GTID.findall(gtids)}


def domains_text(domains: Domains) -> str:
    return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(domains.items()))


def ranges_of(gtids: str) -> Ranges:
    """The GTIDs of MySQL, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:9; both ends belong to a range."""
    found: Ranges = {}
    for part in gtids.replace("\n", "").split(","):
        server, *ranges = part.strip().split(":")
        for text in ranges:
            low, _, high = text.partition("-")
            found.setdefault(server.lower(), []).append((int(low), int(high or low)))
    return {server: _merged(ranges) for server, ranges in found.items()}


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def with_number(ranges: Ranges, server: str, number: int) -> None:
    """Add a transaction of a server."""
    known = ranges.setdefault(server, [])
    if known and known[-1][1] + 1 == number:
        known[-1] = (known[-1][0], number)
    else:
        ranges[server] = _merged([*known, (number, number)])


def ranges_text(ranges: Ranges) -> str:
    parts = (":".join([server, *(f"{low}-{high}" for low, high in found)]) for server, found in sorted(ranges.items()))
    return ",".join(parts)


def ranges_bytes(ranges: Ranges) -> bytes:
    """The GTIDs of MySQL as its protocol has them; the end of a range does not belong to it."""
    parts = [struct.pack("<Q", len(ranges))]
    for server, found in sorted(ranges.items()):
        parts.append(uuid.UUID(server).bytes + struct.pack("<Q", len(found)))
        parts += [struct.pack("<QQ", low, high + 1) for low, high in found]
    return b"".join(parts)


class Gtids:
    """The GTIDs that were committed, of either kind; none where they are not followed."""

    def __init__(self, text: str | None, *, is_mariadb: bool) -> None:
        self._domains: Domains | None = domains_of(text) if text is not None and is_mariadb else None
        self._ranges: Ranges | None = ranges_of(text) if text is not None and not is_mariadb else None
        self._open_domain: tuple[int, int, int] | None = None
        self._open_number: tuple[str, int] | None = None

    def begins_in_mariadb(self, body: memoryview, server_id: int) -> bool:
        """A transaction begins, which counts when it has ended. Returns whether it is a single statement."""
        number, domain, flags = struct.unpack_from("<QIB", body)
        self._open_domain = (domain, server_id, number)
        return bool(flags & 1)

    def begins_in_mysql(self, body: memoryview) -> None:
        server = str(uuid.UUID(bytes=bytes(body[1:17])))
        self._open_number = (server, struct.unpack_from("<Q", body, 17)[0])

    def ends(self) -> None:
        if self._domains is not None and self._open_domain is not None:
            domain, server_id, number = self._open_domain
            self._domains[domain] = (server_id, number)
        if self._ranges is not None and self._open_number is not None:
            with_number(self._ranges, *self._open_number)
        self._open_domain = self._open_number = None

    @property
    def text(self) -> str | None:
        if self._domains is not None:
            return domains_text(self._domains)
        return ranges_text(self._ranges) if self._ranges is not None else None
