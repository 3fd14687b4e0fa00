"""Files as a table: their whole content, read again whenever a file came, went or changed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.contracts.source import Progress, SourceSpec, SourceStatus
from millpond.sources.ddl import table_ddl
from millpond.sources.feed import FeedWriter
from millpond.sources.files.choosing import contents_of
from millpond.sources.files.contents import Contents
from millpond.sources.files.looking import Where, missing, unreadable, wait_for
from millpond.sources.files.positions import Seen
from millpond.sources.files.reading import Tail
from millpond.sources.journal import disk_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows per spooled file.
SPOOL_ROWS = 1_000_000


class FileTable:
    """A TableReader over files; see the contract."""

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        self._spec, self._folder = spec, folder / "load"
        self._where = Where.of(spec)
        self._status = SourceStatus(retries=wait_for(self._where, spec))
        self._progress = Progress()

    def fingerprint(self) -> str:
        if not self._where.there():
            raise missing(self._where, self._spec)
        digest = hashlib.blake2b(digest_size=16)
        for seen in self._where.look():
            digest.update(repr(seen).encode())
        return digest.hexdigest()

    def read(self, spark: SparkSession) -> DataFrame:
        if not self._where.there():
            raise missing(self._where, self._spec)
        contents = contents_of(self._spec, self._where)
        shutil.rmtree(self._folder, ignore_errors=True)
        with disk_errors(self._folder):
            self._folder.mkdir(parents=True)
        self._spool(contents, self._where.look())
        raw = spark.read.schema(table_ddl(contents.schema)).parquet(str(self._folder))
        return contents.records(raw)

    def _spool(self, contents: Contents, files: list[Seen]) -> None:
        """The raw records of all files, put where Spark can read them with all its cores."""
        total, done, rows, number, writer = sum(seen.size for seen in files), 0, 0, 0, None
        self._progress = Progress(0, total)
        for major, seen in enumerate(files):
            for batch in _batches(contents, seen, major):
                writer = writer or FeedWriter(self._folder / f"{number:06d}.parquet")
                writer.write(batch)
                rows += batch.num_rows
                if writer.rows >= SPOOL_ROWS:
                    writer.close()
                    number, writer = number + 1, None
            done += seen.size
            self._progress = Progress(done, total)
        if writer is not None:
            writer.close()
        self._status = replace(self._status, rows=rows)

    def progress(self) -> Progress:
        return self._progress

    def status(self) -> SourceStatus:
        return self._status


def _batches(contents: Contents, seen: Seen, major: int) -> Iterator[pa.RecordBatch]:
    """The records of one file; one that has gone since it was seen has none."""
    path = Path(seen.path)
    try:
        opening = contents.opening(path, Tail.TAKE)
        if opening is not None:
            for chunk in contents.chunks(path, opening, Tail.TAKE, major):
                if chunk.batch.num_rows:
                    yield chunk.batch
    except FileNotFoundError:
        return
    except (OSError, UnicodeError) as error:
        raise unreadable(seen.path, error) from error
