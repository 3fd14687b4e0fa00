"""Positions in files, and what has happened to a file since: grown, rewritten, renamed or new."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

# A file is identified by its first bytes, as many of them as were read, up to this number.
HEAD_BYTES = 1024
NEWLINES = (b"\n", b"\r")
# Removed files that are remembered by name; the oldest are forgotten first.
GONE_MAX = 10_000


@dataclass(frozen=True)
class Seen:
    """A file as a poll found it; the inode distinguishes a renamed file from a new one."""

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str, stat: os.stat_result) -> Seen:
        return cls(path, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode


@dataclass(frozen=True)
class FilePosition:
    """How far a file was read. `major` is its arrival number; `done`: it was read as a whole and has an end; `size` and
    `mtime_ns` are those of the file when it was last read; `unended` is the start of its last row if that was read
    without a newline, else -1."""

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    major: int
    position: int
    head: str
    head_bytes: int
    layout: str
    header: int = -1
    done: bool = False
    unended: int = -1

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode

    def stored(self) -> dict[str, Any]:
        """The values from which it is created again; there may be very many."""
        return dict(vars(self))

    def unchanged(self, seen: Seen) -> bool:
        return (self.size, self.mtime_ns) == (seen.size, seen.mtime_ns) and self.identity == seen.identity


class Fate(Enum):
    """What has happened to a file since it was last read."""

    SAME = "same"
    NEW = "new"
    GROWN = "grown"
    REWRITTEN = "rewritten"


class Positions:
    """The positions of all files, by path."""

    def __init__(self) -> None:
        self._by_path: dict[str, FilePosition] = {}
        # Files that the last poll no longer found: their inodes may belong to other files by now.
        self._gone: set[str] = set()

    def __len__(self) -> int:
        return len(self._by_path)

    def get(self, path: str) -> FilePosition | None:
        return self._by_path.get(path)

    def put(self, position: FilePosition) -> None:
        self._by_path[position.path] = position
        self._gone.discard(position.path)

    def restore(self, entries: Iterable[dict[str, Any]]) -> None:
        for entry in entries:
            self.put(FilePosition(**entry))

    def stored(self) -> list[dict[str, Any]]:
        return [position.stored() for position in self._by_path.values()]

    def all(self) -> tuple[FilePosition, ...]:
        return tuple(self._by_path.values())

    def next_major(self) -> int:
        return max((position.major for position in self._by_path.values()), default=-1) + 1

    def settle(self, seen: list[Seen]) -> list[Seen]:
        """Register renamed and removed files; returns each file once, under one name."""
        here = {file.path: file for file in seen}
        by_identity = {p.identity: p for p in self._by_path.values() if p.path not in self._gone}
        for file in seen:
            old = by_identity.get(file.identity)
            moved = old is not None and old.path != file.path and not self._still_there(old, here)
            if old is not None and moved and _is_renamed(old, file):
                self._by_path.pop(old.path, None)
                self.put(replace(old, path=file.path))
        self._note_gone(here)
        return self._once_each(seen)

    def _still_there(self, old: FilePosition, here: dict[str, Seen]) -> bool:
        return old.path in here and here[old.path].identity == old.identity

    def _note_gone(self, here: dict[str, Seen]) -> None:
        self._gone = {path for path in self._by_path if path not in here}
        if len(self._gone) > GONE_MAX:
            oldest = sorted(self._gone, key=lambda path: self._by_path[path].major)
            for path in oldest[: len(oldest) - GONE_MAX]:
                del self._by_path[path]
                self._gone.discard(path)

    def _once_each(self, seen: list[Seen]) -> list[Seen]:
        """A file with two names, because of a link, is read under its known name, else under the first."""
        chosen: dict[tuple[int, int], Seen] = {}
        for file in seen:
            kept = chosen.get(file.identity)
            if kept is None or (file.path in self._by_path and kept.path not in self._by_path):
                chosen[file.identity] = file
        return [file for file in seen if chosen[file.identity] is file]

    def fate(self, seen: Seen) -> tuple[Fate, FilePosition | None]:
        """What has happened to a file, and how far it was read."""
        known = self._by_path.get(seen.path)
        if known is None:
            return Fate.NEW, None
        if known.unchanged(seen):
            return Fate.SAME, known
        if known.done or seen.size < known.position or not begins_alike(known, seen.path):
            return Fate.REWRITTEN, known
        return Fate.GROWN, known


def head_of(path: str, read: int) -> tuple[str, int]:
    """The fingerprint of a file's first bytes, at most `read` of them, and their number."""
    head = b""
    if read:
        with open(path, "rb") as file:
            head = file.read(min(read, HEAD_BYTES))
    return hashlib.blake2b(head, digest_size=16).hexdigest(), len(head)


def byte_at(path: str, position: int) -> bytes:
    """One byte of a file; empty after its end."""
    with open(path, "rb") as file:
        file.seek(position)
        return file.read(1)


def has_text(path: str, position: int) -> bool:
    """Whether a file has more than blanks after a position."""
    with open(path, "rb") as file:
        file.seek(position)
        return bool(file.read(HEAD_BYTES).strip())


def begins_alike(known: FilePosition, path: str) -> bool:
    """Whether a file starts with the bytes that identify it."""
    return head_of(path, known.head_bytes) == (known.head, known.head_bytes)


def _is_renamed(old: FilePosition, seen: Seen) -> bool:
    """Whether the file under a new name is the old one. A rename does not change the modification time; if that has
    changed, the file must have grown, because the inode of a removed file is soon used again."""
    grown = seen.size > old.size and seen.size >= old.position
    return (seen.mtime_ns == old.mtime_ns or grown) and begins_alike(old, seen.path)
