"""The version of its files that a table uses as their content, which must not be one that is still being written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from millpond.sources.files.file_positions import NEWLINES, Seen, byte_at, head_of

# A last CSV row without a newline is complete when its file has not changed for this time.
UNENDED_S = 10.0

Clock = Callable[[], float]


class Stillness:
    """Separates files that have not changed for a while from those that are being written."""

    def __init__(self, wait_s: float, clock: Clock) -> None:
        self._wait_s, self._clock = wait_s, clock
        self._since: dict[str, tuple[Seen, float]] = {}

    def is_still(self, file: Seen) -> bool:
        """Whether the file has not changed for the time, since it was first passed here."""
        now = self._clock()
        before, since = self._since.get(file.path, (None, now))
        if before != file:
            self._since[file.path], since = (file, now), now
        return now - since >= self._wait_s

    def keep(self, files: Iterable[Seen]) -> None:
        """Forget all other files."""
        self._since = {file.path: self._since[file.path] for file in files if file.path in self._since}


@dataclass(frozen=True)
class Counted:
    """The version of a file that is used; `head` is its beginning, `unended`: it does not end with a newline, `waits`:
    the text after its last newline may be continued."""

    seen: Seen
    head: str
    unended: bool
    waits: bool = False


class Counting:
    """Polls the files of a table, and decides which version of each is used."""

    def __init__(self, debounce_s: float, clock: Clock) -> None:
        self._counted: dict[str, Counted] = {}
        self._still = Stillness(debounce_s, clock)
        self._ended = Stillness(UNENDED_S, clock)
        self._is_first = True

    def fingerprint(self, now: Sequence[Seen]) -> str:
        """The fingerprint of the used versions; files that exist at the first poll are used as they are."""
        self._counted = {seen.path: self._counts_as(seen) for seen in now}
        self._is_first = False
        self._still.keep(now)
        self._ended.keep(now)
        digest = hashlib.blake2b(digest_size=16)
        for counted in self._counted.values():
            digest.update(f"{counted.seen!r}{' waits' * counted.waits}".encode())
        return digest.hexdigest()

    def waits(self, seen: Seen) -> bool:
        """Whether the text after the last newline of a file must not be read yet."""
        counted = self._counted.get(seen.path)
        return counted is not None and counted.waits

    def _counts_as(self, seen: Seen) -> Counted:
        """The version of a file to use: the current one, but the previous one while the file is being rewritten."""
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
    """Whether a file has only become longer; if a last row that was read as complete is continued, it was rewritten."""
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
