"""Files as a table: their whole content, read again whenever a file came, went or changed."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.contracts.source import Progress, SourceSpec, SourceStatus
from millpond.sources.ddl import table_ddl
from millpond.sources.feed import FeedWriter
from millpond.sources.files.choosing import contents_of
from millpond.sources.files.contents import Chunk, Contents
from millpond.sources.files.looking import Where, missing, require, unreadable
from millpond.sources.files.positions import Seen, head_of
from millpond.sources.files.reading import Tail
from millpond.sources.files.stillness import Clock, Stillness
from millpond.sources.journal import disk_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows per spooled file.
SPOOL_ROWS = 1_000_000


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

    def read(self, spark: SparkSession) -> DataFrame:
        if not self._where.there():
            raise missing(self._where, self._spec)
        contents = contents_of(self._spec, self._where)
        shutil.rmtree(self._folder, ignore_errors=True)
        with disk_errors(self._folder):
            self._folder.mkdir(parents=True)
        text = self._spool(contents, self._where.look())
        fed = spark.read.schema(table_ddl(contents.schema)).parquet(str(self._folder))
        return contents.records(fed, text)

    def _spool(self, contents: Contents, files: list[Seen]) -> bool:
        """The records of all files, put where Spark can read them with all its cores; whether some are still text."""
        total, done, rows, number, writer, text = sum(seen.size for seen in files), 0, 0, 0, None, False
        self._progress = Progress(0, total)
        for major, seen in enumerate(files):
            for chunk in _chunks(contents, seen, major, self._tail):
                writer = writer or FeedWriter(self._folder / f"{number:06d}.parquet")
                writer.write(chunk.batch)
                rows += chunk.batch.num_rows
                text |= chunk.text
                if writer.rows >= SPOOL_ROWS:
                    writer.close()
                    number, writer = number + 1, None
            done += seen.size
            self._progress = Progress(done, total)
        if writer is not None:
            writer.close()
        self._status = replace(self._status, rows=rows)
        return text

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
