"""A journal: JSON lines with what must survive a crash, synced before anything depends on it.

Each line ends with a checksum of it and of all lines before, so that a changed, removed or moved line is detected.
Nothing depends on a last line that a crash has truncated; any other damage is MP804."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millpond.disk import PRIVATE_FILE, Writer, disk_errors, replace_file
from millpond.errors import StateError

Entry = dict[str, Any]

# The number of entries after which the journal is summarised again.
ENTRIES_MAX = 256
HINT = "Restore the state directory from a copy, or start again with another --state."


class Journal:
    """Entries in the order in which they were written. `summarise` returns one entry that replaces all before it; the
    file is rewritten with it from time to time, so its length is bounded."""

    def __init__(self, path: Path, summarise: Callable[[], Entry]) -> None:
        self._path, self._summarise = path, summarise
        self._count = self._sum = 0

    def entries(self) -> list[Entry]:
        """The stored entries, the summary first; a truncated last line is removed. MP804 if the file is damaged."""
        whole, self._sum, torn = read_journal(self._path)
        if torn:
            self._replace(whole)
        self._count = len(whole)
        return whole

    def append(self, entry: Entry) -> None:
        """Write one entry; it is on disk when this returns."""
        if self._count >= ENTRIES_MAX:
            self._replace([self._summarise()])
            self._count = 1
        line, after = _line(entry, self._sum)
        with disk_errors(self._path):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)
            size = os.fstat(file).st_size
            try:
                if os.write(file, line) < len(line):
                    raise OSError("the line was written in part only")
                os.fsync(file)
            except OSError:
                # An incomplete line would damage the next one.
                os.ftruncate(file, size)
                raise
            finally:
                os.close(file)
        self._sum = after
        self._count += 1

    def _replace(self, entries: list[Entry]) -> None:
        total = 0

        def fill(out: Writer) -> None:
            nonlocal total
            for entry in entries:
                line, total = _line(entry, total)
                out.write(line)

        replace_file(self._path, fill, "journal", "The journal cannot be written")
        self._sum = total


def read_journal(path: Path) -> tuple[list[Entry], int, bool]:
    """The entries of a journal, the checksum of all of them, and whether a truncated line follows; MP804 if it is
    damaged."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], 0, False
    except OSError as error:
        raise StateError("MP804", f"{path} cannot be read: {error.strerror}.", hint=HINT) from error
    entries, total = [], 0
    for number, line in enumerate(lines[:-1], 1):
        after = _verified(line, total)
        if after is None:
            raise StateError("MP804", f"{path} is damaged in line {number}.", hint=HINT)
        entries.append(json.loads(line[:-9]))
        total = after
    torn = lines[-1]
    if torn and _verified(torn[:-1], total) is not None:
        # The line is complete except for its last byte, so this is damage and not a crash.
        raise StateError("MP804", f"{path} is damaged in line {len(lines)}.", hint=HINT)
    if torn and (after := _verified(torn, total)) is not None:
        return [*entries, json.loads(torn[:-9])], after, True
    return entries, total, bool(torn)


def _line(entry: Entry, before: int) -> tuple[bytes, int]:
    """An entry with its checksum, and that checksum."""
    body = json.dumps(entry, ensure_ascii=False).encode()
    total = zlib.crc32(body, before)
    return body + f" {total:08x}\n".encode(), total


def _verified(line: bytes, before: int) -> int | None:
    """The checksum after a line, None if it differs from that of the line."""
    total = zlib.crc32(line[:-9], before)
    return total if line[-9:] == f" {total:08x}".encode() else None
