"""Objects of a bucket as the files of a source: listed by ETag and size, and copied when they are read.

An object is read from a copy on this machine, which is removed afterwards; the code that reads files does the rest. An
object that is replaced or removed between listing and reading is not read: the next listing shows what became of it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from millpond.contracts.source import SourceSpec
from millpond.disk import make_folder
from millpond.errors import SourceError
from millpond.objects.bucket import Bucket, Listed
from millpond.objects.queue import Queue
from millpond.sources.files.file_positions import Seen
from millpond.sources.files.listing import WILDCARDS, Where, is_pattern

# A listing is used again for so long, because opening a source looks several times.
FRESH_S = 0.5
NAME_CHARACTERS_MAX = 120


class ObjectWhere(Where):
    """The objects that a URI names: `key` is an object or a folder, or a pattern."""

    is_remote = True

    def __init__(self, spec: SourceSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = spec.uri.path.strip("/")
        super().__init__(Path(self.key), is_pattern(self.key), spec.values.get("format"))
        self._bucket = Bucket(spec.uri, spec.values, _failure)
        self._fits = pattern_of(self.key)
        self._clock = clock
        self._copies: Path | None = None
        # What the last listing showed, by the paths of copies; and when it was made, or completed by a queue.
        self._listed: dict[str, Listed] = {}
        self._looked = self._listed_at = float("-inf")
        self._queue = Queue(spec.values, _failure) if spec.values["s3.notifications"] else None
        # Keys that the queue has announced and that could not be looked at yet.
        self._unread: set[str] = set()
        self._list_interval_s = spec.values["s3.list.interval"] / 1e6

    def use(self, folder: Path | None) -> None:
        self.close()
        if folder is not None:
            # What a crash has left is of no use.
            shutil.rmtree(folder / "objects", ignore_errors=True)
        self._copies = None if folder is None else make_folder(folder / "objects")
        self._looked = self._listed_at = float("-inf")

    def close(self) -> None:
        """Remove all copies."""
        if self._copies is not None:
            shutil.rmtree(self._copies, ignore_errors=True)
            self._copies, self._looked = None, float("-inf")
            self._listed_at = float("-inf")

    def look(self) -> list[Seen]:
        if self._clock() - self._looked > FRESH_S:
            if self._queue is None or self._clock() - self._listed_at > self._list_interval_s:
                self._set(self._objects())
                self._unread.clear()
                self._listed_at = self._clock()
            else:
                self._follow(self._queue)
            self._looked = self._clock()
        return [_seen(path, one) for path, one in self._listed.items()]

    def _set(self, found: Iterable[Listed]) -> None:
        ordered = sorted(found, key=lambda one: (one.modified_ns, one.key))
        self._listed = {self._copy_of(one.key): one for one in ordered}

    def _follow(self, queue: Queue) -> None:
        """Look at what a queue announces, in place of a listing."""
        # What could not be looked at in the last poll comes first, so that not more than one poll's messages are kept.
        for one in () if self._unread else queue.receive():
            if one.bucket == self._bucket.name and self._is_wanted(one.key):
                self._unread.add(one.key)
        if not self._unread:
            return
        found = {one.key: one for one in self._listed.values()}
        try:
            for key in sorted(self._unread):
                # A message may be late: what became of the object since is what counts.
                now = self._bucket.head(key)
                self._unread.remove(key)
                found.pop(key, None)
                if now is not None:
                    found[key] = now
        finally:
            # Where a request fails, the objects before it were found, and the others are looked at in the next poll.
            self._set(found.values())

    def _is_wanted(self, key: str) -> bool:
        """Whether the URI names an object of this key."""
        if self.pattern:
            return self._fits(key) and self._is_named(key)
        return key == self.key or (key.rpartition("/")[0] == self.key and self._is_named(key))

    def confirm(self) -> None:
        if self._queue is not None:
            self._queue.confirm(self._unread)

    def exists(self) -> bool:
        return bool(self.look())

    def _objects(self) -> Iterable[Listed]:
        if self.pattern:
            return [one for one in self._bucket.list(folder_of(self.key)) if self._is_wanted(one.key)]
        single = self._bucket.head(self.key) if self.key else None
        if single is not None:
            return [single]
        depth = self.key.count("/") + bool(self.key)
        found = [one for one in self._bucket.list(self.key) if one.key.count("/") == depth]
        return [one for one in found if self._is_named(one.key)]

    def _is_named(self, key: str) -> bool:
        return not key.endswith("/") and self._is_data(key)

    def fetch(self, seen: Seen) -> None:
        path = Path(seen.path)
        if not path.exists():
            self._bucket.get(self._listed[seen.path], path)

    def release(self, seen: Seen) -> None:
        Path(seen.path).unlink(missing_ok=True)

    def shown(self, path: str) -> str:
        listed = self._listed.get(path)
        return path if listed is None else self._bucket.url(listed.key)

    def named_text(self, text: str) -> str:
        copies = re.escape(str(self._copies))
        return re.sub(rf"{copies}/[0-9a-f]{{16}}-[\w.\-]*", lambda found: self.shown(found[0]), text)

    def _copy_of(self, key: str) -> str:
        """Where an object is copied to: the same path each time, with its ending, which shows the format."""
        if self._copies is None:
            self._copies = Path(tempfile.mkdtemp(prefix="millpond-s3-"))
        name = re.sub(r"[^\w.\-]", "_", key.rpartition("/")[2])[-NAME_CHARACTERS_MAX:]
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        return str(self._copies / f"{digest}-{name}")


def _failure(code: str, message: str, hint: str) -> SourceError:
    return SourceError(code, message, hint=hint)


def _seen(path: str, listed: Listed) -> Seen:
    """An object is another one when its ETag is; a copy of it under another key is an object of its own."""
    etag, key = (_number(text) for text in (listed.etag, listed.key))
    return Seen(path, etag, key, listed.size, listed.modified_ns)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big")


def folder_of(pattern: str) -> str:
    """The folder that everything is in which a pattern can match."""
    parts: list[str] = []
    for part in pattern.split("/")[:-1]:
        if WILDCARDS & set(part):
            break
        parts.append(part)
    return "/".join(parts)


def pattern_of(pattern: str) -> Callable[[str], bool]:
    """Whether a key matches a pattern: `*` and `?` within a folder, `**` any folders, `[...]` characters."""
    found = ""
    for part in pattern.split("/"):
        if part == "**":
            found += "(?:[^/]+/)*"
            continue
        found += _segment(part) + "/"
    compiled = re.compile(found.removesuffix("/") if not pattern.endswith("**") else found + "[^/]+", re.DOTALL)
    return lambda key: compiled.fullmatch(key) is not None


def _segment(text: str) -> str:
    found, at = "", 0
    while at < len(text):
        char = text[at]
        end = text.find("]", at + 2) if char == "[" else -1
        if char == "*":
            found += "[^/]*"
        elif char == "?":
            found += "[^/]"
        elif end > 0:
            inside = text[at + 1 : end].replace("\\", "\\\\")
            found += "[" + ("^" + inside[1:] if inside.startswith("!") else inside) + "]"
            at = end
        else:
            found += re.escape(char)
        at += 1
    return found
