"""Which state of its files a table counts as their content: not one that is just being written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.sources.files.positions import NEWLINES, Seen, byte_at, head_of
from millpond.sources.files.stillness import UNENDED_S, Clock, Stillness


@dataclass(frozen=True)
class Counted:
    """A file as it counts; `head` is what it begins with, `unended`: no newline ends it, `waits`: what stands behind
    its last newline may still go on."""

    seen: Seen
    head: str
    unended: bool
    waits: bool = False


class Counting:
    """Looks at the files of a table, again and again."""

    def __init__(self, debounce_s: float, clock: Clock) -> None:
        self._counted: dict[str, Counted] = {}
        self._still = Stillness(debounce_s, clock)
        self._ended = Stillness(UNENDED_S, clock)
        self._is_first = True

    def fingerprint(self, now: Sequence[Seen]) -> str:
        """Of the files as they count; what is there at the first look counts as it is."""
        self._counted = {seen.path: self._counts_as(seen) for seen in now}
        self._is_first = False
        self._still.keep(now)
        self._ended.keep(now)
        digest = hashlib.blake2b(digest_size=16)
        for counted in self._counted.values():
            digest.update(f"{counted.seen!r}{' waits' * counted.waits}".encode())
        return digest.hexdigest()

    def waits(self, seen: Seen) -> bool:
        """Whether what stands behind the last newline of a file must not be read yet."""
        counted = self._counted.get(seen.path)
        return counted is not None and counted.waits

    def _counts_as(self, seen: Seen) -> Counted:
        """The file as it counts: as it is, but one that is being rewritten as it was before, until it is still."""
        before = self._counted.get(seen.path)
        if before is not None and before.seen == seen:
            return replace(before, waits=before.waits and not self._ended.is_still(seen))
        added = before is None or _is_added_to(before, seen)
        if before is not None and not added and not self._still.is_still(seen):
            return before
        unended = _is_unended(seen)
        waits = unended and added and not self._is_first and not self._ended.is_still(seen)
        return Counted(seen, _head(seen.path, seen.size), unended, waits)


def _is_added_to(before: Counted, seen: Seen) -> bool:
    """Whether a file has only become longer; a last row that counted as whole and goes on was rewritten."""
    if seen.size < before.seen.size or _head(seen.path, before.seen.size) != before.head:
        return False
    return not before.unended or before.waits or _byte(seen.path, before.seen.size) in (*NEWLINES, b"")


def _is_unended(seen: Seen) -> bool:
    return seen.size > 0 and _byte(seen.path, seen.size - 1) not in NEWLINES


def _byte(path: str, position: int) -> bytes:
    try:
        return byte_at(path, position)
    except OSError:
        return b""


def _head(path: str, size: int) -> str:
    try:
        return head_of(path, size)[0]
    except OSError:
        return ""
