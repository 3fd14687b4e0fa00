"""Files as a table: their whole content, read again whenever a file is added, removed or changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.feeder import Content, Polled, TableReader
from millpond.contracts.source import Progress, SourceSpec, SourceStatus
from millpond.errors import SourceError
from millpond.sources.files.contents import Chunk, Contents, cut_off, is_whole_gzip
from millpond.sources.files.file_positions import Seen
from millpond.sources.files.listing import Where, missing, require, unreadable
from millpond.sources.files.parquet import contents_of
from millpond.sources.files.stability import Clock, Counting
from millpond.sources.records.formats import is_compressed
from millpond.sources.records.text_reader import Tail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FileTable(TableReader):
    """The content of files as they are when they are read."""

    may_be_bad = True

    def __init__(self, spec: SourceSpec, clock: Clock = time.monotonic, where: Where | None = None) -> None:
        self._spec = spec
        self._where = where or Where.of(spec)
        require(self._where, spec)
        # Known when it is read.
        self._contents: Contents
        self._bytes = 0
        self._progress = Progress()
        self.interval_s = spec.values["watch.interval"] / 1e6 if spec.values["watch"] else None
        # While its files are watched, half a line at the end waits for its end; else it is a bad record.
        self._tail = Tail.COMPLETE if spec.values["watch"] else Tail.TAKE
        self._counting = Counting(spec.values.get("watch.debounce", 0) / 1e6, clock)

    def records(self, rows: DataFrame, *, raw: bool) -> DataFrame:
        return self._contents.records(rows, text=raw)

    def arrow_records(self, rows: pa.Table, *, raw: bool) -> pa.Table | None:
        return self._contents.arrow_records(rows, text=raw)

    def together(self, small: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
        yield from ((chunk.batch, chunk.text) for chunk in self._contents.parsed_together(small))

    def fingerprint(self) -> str:
        if not self._where.exists():
            raise missing(self._where, self._spec)
        if self._where.is_remote:
            # The rows of a table are read again from the whole bucket: no message is needed for them.
            self._where.confirm()
            found = [replace(seen, path="") for seen in self._where.look()]
            return hashlib.blake2b(repr(found).encode(), digest_size=16).hexdigest()
        return self._counting.fingerprint(self._where.look())

    def read(self, mark: Any) -> Content:
        if not self._where.exists():
            raise missing(self._where, self._spec)
        self._contents = contents_of(self._spec, self._where)
        self.schema = self._contents.schema
        return Content(self._parts())

    def _parts(self) -> Iterator[Polled]:
        files = self._where.look()
        total, done = sum(seen.size for seen in files), 0
        self._progress = Progress(0, total, "bytes")
        for major, seen in enumerate(files):
            for chunk in self._chunks(seen, major):
                within = 0 if self._contents.is_whole(Path(seen.path)) else min(chunk.end, seen.size)
                self._progress = Progress(done + within, total, "bytes")
                yield Polled(chunk.batch, raw=chunk.text, small=chunk.small)
            done += seen.size
            self._progress = Progress(done, total, "bytes")
        self._bytes = total

    def _chunks(self, seen: Seen, major: int) -> Iterator[Chunk]:
        """The records of one file; those of a file that is elsewhere are read from a copy."""
        if not self._where.is_remote:
            yield from _chunks(self._contents, seen, major, self._tail_of(seen))
            return
        try:
            self._where.fetch(seen)
            yield from _chunks(self._contents, seen, major, Tail.TAKE, self._where.shown(seen.path))
        except FileNotFoundError:
            # It was replaced or removed since; the next look sees that.
            return
        except SourceError as error:
            raise self._where.named(error) from error
        finally:
            self._where.release(seen)

    def _tail_of(self, seen: Seen) -> Tail:
        """A last CSV row without newline may be half a row although it has all its fields: while it is being added to
        its file, it waits."""
        waits = self._contents.format == "csv" and self._tail is Tail.COMPLETE and self._counting.waits(seen)
        return Tail.LEAVE if waits and not self._contents.is_whole(Path(seen.path)) else self._tail

    def close(self) -> None:
        self._where.close()

    def progress(self) -> Progress:
        return self._progress

    def status(self, known: SourceStatus) -> SourceStatus:
        return replace(known, bytes=self._bytes)


def _chunks(contents: Contents, seen: Seen, major: int, tail: Tail, source: str = "") -> Iterator[Chunk]:
    """The records of one file; one that has gone since it was seen has none."""
    path = Path(seen.path)
    try:
        opening = contents.opening(path, tail)
        if opening is None and is_compressed(path) and seen.size and not is_whole_gzip(path):
            raise cut_off(path)
        if opening is not None:
            for chunk in contents.chunks(path, replace(opening, source=source), tail, major):
                if chunk.batch.num_rows:
                    yield chunk
    except FileNotFoundError:
        return
    except (OSError, UnicodeError) as error:
        raise unreadable(seen.path, error) from error
