"""Files as a table: their whole content, read again whenever a file came, went or changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.contracts.source import Progress, SourceSpec, SourceStatus
from millpond.sources.files.choosing import contents_of
from millpond.sources.files.contents import Chunk, Contents, cut_off, is_whole_gzip
from millpond.sources.files.counting import Counting
from millpond.sources.files.formats import is_compressed
from millpond.sources.files.gathering import Gathering
from millpond.sources.files.looking import Where, missing, require, unreadable
from millpond.sources.files.positions import Seen
from millpond.sources.files.reading import Tail
from millpond.sources.files.spooling import Spool
from millpond.sources.files.stillness import Clock
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
        # While its files are watched, half a line at the end waits for its end; else it is a bad record.
        self._tail = Tail.COMPLETE if spec.values["watch"] else Tail.TAKE
        self._counting = Counting(spec.values["watch.debounce"] / 1e6, clock)

    def fingerprint(self) -> str:
        if not self._where.there():
            raise missing(self._where, self._spec)
        return self._counting.fingerprint(self._where.look())

    def read(self, spark: Callable[[], SparkSession]) -> pa.Table:
        if not self._where.there():
            raise missing(self._where, self._spec)
        contents = contents_of(self._spec, self._where)
        spool = Spool(self._folder, contents)
        limits = BulkLimits(self._spec)
        files = self._where.look()
        total, done, rows = sum(seen.size for seen in files), 0, 0
        self._progress = Progress(0, total, "bytes")
        parsed = Parsed(contents, spool)
        for major, seen in enumerate(files):
            for chunk in _chunks(contents, seen, major, self._tail_of(seen, contents)):
                rows += chunk.batch.num_rows
                limits.check(rows)
                parsed.add(chunk)
                within = 0 if contents.is_whole(Path(seen.path)) else min(chunk.end, seen.size)
                self._progress = Progress(done + within, total, "bytes", rows)
            done += seen.size
            self._progress = Progress(done, total, "bytes", rows)
        self._status = replace(self._status, rows=rows, bytes=total, updated_at=time.time())
        found = contents.arrow_records(parsed.table())
        return found if spool.is_empty else spool.merged_into(found, spark())

    def _tail_of(self, seen: Seen, contents: Contents) -> Tail:
        """A last CSV row without newline may be half a row although it has all its fields: while it is being added to
        its file, it waits."""
        waits = contents.format == "csv" and self._tail is Tail.COMPLETE and self._counting.waits(seen)
        return Tail.LEAVE if waits and not contents.is_whole(Path(seen.path)) else self._tail

    def progress(self) -> Progress:
        return self._progress

    def status(self) -> SourceStatus:
        return self._status


class Parsed:
    """The records of a load that Arrow has parsed; what it could not goes into the spool."""

    def __init__(self, contents: Contents, spool: Spool) -> None:
        self._schema, self._spool = contents.schema, spool
        self._gathering = Gathering(contents)
        self._batches: list[pa.RecordBatch] = []

    def add(self, chunk: Chunk) -> None:
        self._keep(self._gathering.add(chunk))

    def table(self) -> pa.Table:
        """All of them, when there are no more."""
        self._keep(self._gathering.all())
        return pa.Table.from_batches(self._batches, self._schema)

    def _keep(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if chunk.text:
                self._spool.write(chunk)
            else:
                self._batches.append(chunk.batch)


def _chunks(contents: Contents, seen: Seen, major: int, tail: Tail) -> Iterator[Chunk]:
    """The records of one file; one that has gone since it was seen has none."""
    path = Path(seen.path)
    try:
        opening = contents.opening(path, tail)
        if opening is None and is_compressed(path) and seen.size and not is_whole_gzip(path):
            raise cut_off(path)
        if opening is not None:
            for chunk in contents.chunks(path, opening, tail, major):
                if chunk.batch.num_rows:
                    yield chunk
    except FileNotFoundError:
        return
    except (OSError, UnicodeError) as error:
        raise unreadable(seen.path, error) from error
