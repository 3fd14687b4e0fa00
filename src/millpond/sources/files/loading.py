"""Files as a table: their whole content, read again whenever a file came, went or changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.contracts.source import Progress, SourceSpec, SourceStatus
from millpond.sources.files.choosing import contents_of
from millpond.sources.files.contents import Chunk, Contents
from millpond.sources.files.looking import Where, missing, require, unreadable
from millpond.sources.files.positions import Seen, head_of
from millpond.sources.files.reading import Tail
from millpond.sources.files.spooling import Spool
from millpond.sources.files.stillness import Clock, Stillness
from millpond.sources.limits import BulkLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileTable:
    """A TableReader over files; see the contract."""

    def __init__(self, spec: SourceSpec, folder: Path, clock: Clock = time.monotonic) -> None:
        self._spec, self._folder = spec, folder / "load"
        self._where = Where.of(spec)
        require(self._where, spec)
        self._status = SourceStatus()
        self._progress = Progress()
        self._counted: dict[str, tuple[Seen, str]] = {}
        self._still = Stillness(spec.values["watch.debounce"] / 1e6, clock)
        # While its files are watched, half a line at the end waits for its end; else it is a bad record.
        self._tail = Tail.COMPLETE if spec.values["watch"] else Tail.TAKE

    def fingerprint(self) -> str:
        if not self._where.there():
            raise missing(self._where, self._spec)
        now = self._where.look()
        self._counted = {seen.path: self._counts_as(seen) for seen in now}
        self._still.keep(now)
        digest = hashlib.blake2b(digest_size=16)
        for seen, _ in self._counted.values():
            digest.update(repr(seen).encode())
        return digest.hexdigest()

    def _counts_as(self, seen: Seen) -> tuple[Seen, str]:
        """The file as it counts: as it is, but one that is being rewritten as it was before, until it is still."""
        before = self._counted.get(seen.path)
        if before is not None and before[0] == seen:
            return before
        if before is not None and not _is_added_to(*before, seen) and not self._still.is_still(seen):
            return before
        return seen, _head(seen.path, seen.size)

    def read(self, spark: Callable[[], SparkSession]) -> pa.Table:
        if not self._where.there():
            raise missing(self._where, self._spec)
        contents = contents_of(self._spec, self._where)
        spool = Spool(self._folder, contents)
        limits = BulkLimits(self._spec)
        files = self._where.look()
        total, done, rows = sum(seen.size for seen in files), 0, 0
        self._progress = Progress(0, total, "bytes")
        parsed = [pa.Table.from_batches([], contents.schema)]
        for major, seen in enumerate(files):
            for chunk in _chunks(contents, seen, major, self._tail):
                rows += chunk.batch.num_rows
                limits.check(rows)
                if chunk.text:
                    spool.write(chunk)
                else:
                    parsed.append(pa.Table.from_batches([chunk.batch], contents.schema))
                within = 0 if contents.is_whole(Path(seen.path)) else min(chunk.end, seen.size)
                self._progress = Progress(done + within, total, "bytes", rows)
            done += seen.size
            self._progress = Progress(done, total, "bytes", rows)
        self._status = replace(self._status, rows=rows, bytes=total, updated_at=time.time())
        found = contents.arrow_records(pa.concat_tables(parsed))
        return found if spool.is_empty else spool.merged_into(found, spark())

    def progress(self) -> Progress:
        return self._progress

    def status(self) -> SourceStatus:
        return self._status


def _is_added_to(before: Seen, head: str, seen: Seen) -> bool:
    return seen.size >= before.size and _head(seen.path, before.size) == head


def _head(path: str, size: int) -> str:
    try:
        return head_of(Path(path), size)[0]
    except OSError:
        return ""


def _chunks(contents: Contents, seen: Seen, major: int, tail: Tail) -> Iterator[Chunk]:
    """The records of one file; one that has gone since it was seen has none."""
    path = Path(seen.path)
    try:
        opening = contents.opening(path, tail)
        if opening is not None:
            for chunk in contents.chunks(path, opening, tail, major):
                if chunk.batch.num_rows:
                    yield chunk
    except FileNotFoundError:
        return
    except (OSError, UnicodeError) as error:
        raise unreadable(seen.path, error) from error
