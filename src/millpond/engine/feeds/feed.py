"""A feed: a folder of numbered Parquet files, each one batch of a flow.

A source that Spark cannot read writes its records to the feed. A feed file is written in a separate folder; then its
number, its checksum and the position are written to the journal; then it is made visible by a rename. So a crash
between any two steps neither loses nor duplicates a record, and a repeated batch has the same records even if the
source has changed. A feed file is removed when its batch is committed."""

from __future__ import annotations

import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from millpond.disk import Writer, disk_errors, make_folder, open_beside, sync_folder
from millpond.engine.feeds.journal import HINT, Entry, Journal, read_journal
from millpond.engine.spark.transfer import to_spark_schema
from millpond.errors import StateError
from millpond.faults import reach

MARK = "-marked.parquet"
JOURNAL = "journal.jsonl"
# The folders whose files Spark reads.
SHARED = ("feed", "aside")
# Key in the journal: size and checksum of feed files by their numbers.
SUMS = "sums"
NUMBER_DIGITS = 12
# Rows per Parquet row group, so that several cores can read one feed file.
GROUP_ROWS = 65_536
# Bytes of rows that are held before they are written.
HELD_BYTES_MAX = 16 << 20


class Feed:
    """Writes and publishes feed files; used by one thread."""

    def __init__(self, folder: Path, summarise: Callable[[], Entry]) -> None:
        self._shown, self._aside = (folder / name for name in SHARED)
        for made in (self._shown, self._aside):
            make_folder(made)
        self._journal = Journal(folder / JOURNAL, lambda: {**summarise(), "feed": self._last, SUMS: self._sums_there()})
        self._last = 0
        self._sums: dict[str, list[int]] = {}
        self._written: list[int] = []
        self._marked = False
        # Number, rows and time of each feed file that waits for its batch.
        self._pending: deque[tuple[int, int, float]] = deque()
        self._watching: Callable[[], None] = lambda: None

    def recover(self) -> list[Entry]:
        """The stored entries, oldest first; a feed file that a crash left incomplete is finished or removed."""
        entries = self._journal.entries()
        self._last = max((entry["feed"] for entry in entries), default=0)
        self._sums = sums_of(entries)
        for file in self._aside.iterdir():
            if file.name == _name(self._last):
                self._show(entries[-1].get("marked", False))
            else:
                file.unlink()
        for file in self.files():
            self._pending.append((int(file.name[:NUMBER_DIGITS]), _rows(file), file.stat().st_mtime))
        return entries

    def writer(self, repeated: Sequence[str] = ()) -> FeedWriter:
        """A writer for the next feed file; `repeated` are columns with few distinct values."""
        if (self._aside / _name(self._last)).exists():
            # It is in the journal, but could not be renamed because of the disk.
            self._show(self._marked)
        return FeedWriter(self._aside / _name(self._last + 1), self._note, repeated)

    def _note(self, written: list[int]) -> None:
        self._written = written

    def publish(self, remember: Entry, *, marked: bool = False, rows: int | None = None) -> None:
        """Publish what the writer wrote, and store `remember` with it; whether a file is `marked` can be read while it
        waits. `rows` is given if a row of the file contains several records."""
        reach("feed.written")
        sums = {str(self._last + 1): self._written}
        self._journal.append({**remember, "feed": self._last + 1, "marked": marked, SUMS: sums})
        self._sums.update(sums)
        self._last, self._marked = self._last + 1, marked
        reach("feed.remembered")
        there = _rows(self._aside / _name(self._last)) if rows is None else rows
        self._pending.append((self._last, there, time.time()))
        self._show(marked)
        reach("feed.shown")
        self._watching()

    def watch(self, given: Callable[[], None]) -> None:
        self._watching = given

    def taken(self, batches: int) -> None:
        """Called when this many batches are committed, from the thread of the batches."""
        while self._pending and self._pending[0][0] <= batches:
            self._pending.popleft()

    def lag(self) -> tuple[int, float]:
        """The number of waiting rows, and the seconds that the oldest of them has waited; callable from any thread."""
        waiting = tuple(self._pending)
        return sum(rows for _, rows, _ in waiting), time.time() - waiting[0][2] if waiting else 0.0

    def remember(self, entry: Entry) -> None:
        """Store an entry without publishing anything."""
        self._journal.append({**entry, "feed": self._last})

    def _show(self, marked: bool) -> None:
        aside, shown = self._aside / _name(self._last), self._shown / _name(self._last, marked)
        with disk_errors(shown):
            aside.rename(shown)
            sync_folder(self._shown)

    @property
    def batches(self) -> int:
        return self._last

    def has(self, batches: int) -> bool:
        """One file is one batch, numbered from 1 without gaps; whether the batches after these are available."""
        unread = sum(1 for number in self._numbers().values() if number > batches)
        return unread == self._last - batches

    def file(self, batch: int) -> Path | None:
        """The file of a batch, counted from 0; None if there is none yet. MP804 if it is missing, which the next one
        shows."""
        if (found := self._shown_file(batch + 1)) is None and self._shown_file(batch + 2) is not None:
            self.verify(batch)
        return found

    def _shown_file(self, number: int) -> Path | None:
        files = (self._shown / _name(number), self._shown / _name(number, marked=True))
        return next((file for file in files if file.exists()), None)

    def verify(self, batch: int) -> None:
        """MP804 unless the file of a batch, counted from 0, has the content that was written."""
        file = self._shown_file(batch + 1) or self._shown / _name(batch + 1)
        if (wrong := _wrong(file, self._sums.get(str(batch + 1)))) is not None:
            raise StateError("MP804", wrong, hint=HINT)

    def _sums_there(self) -> dict[str, list[int]]:
        there = {str(number) for number in self._numbers().values()}
        return {number: sum_ for number, sum_ in self._sums.items() if number in there}

    def forget(self, batches: int) -> None:
        """Remove the files of committed batches."""
        self.taken(batches)
        for name, number in self._numbers().items():
            if number <= batches:
                with disk_errors(self._shown / name):
                    (self._shown / name).unlink(missing_ok=True)

    def _numbers(self) -> dict[str, int]:
        """The existing files, with their numbers."""
        names = [name for name in os.listdir(self._shown) if name[:NUMBER_DIGITS].isdigit()]
        return {name: int(name[:NUMBER_DIGITS]) for name in names}

    def files(self) -> list[Path]:
        """The existing feed files, in their order."""
        return [self._shown / name for name in sorted(self._numbers())]

    def waiting(self) -> int:
        """The number of existing feed files."""
        return sum(1 for name in os.listdir(self._shown) if name.endswith(".parquet"))

    def any_marked(self) -> bool:
        """Whether any of the existing feed files is marked, including the one that is being read."""
        return any(name.endswith(MARK) for name in os.listdir(self._shown))

    def rows_next(self) -> int:
        """The approximate number of rows of the next batch."""
        names = sorted(name for name in os.listdir(self._shown) if name.endswith(".parquet"))[:1]
        return max((_rows(self._shown / name) for name in names), default=0)

    def read(self, files: Sequence[Path], schema: pa.Schema) -> pa.Table | None:
        """The content of feed files, or None if one of them is missing."""
        try:
            return pa.concat_tables([pq.read_table(file, schema=schema, use_threads=False) for file in files])
        except (OSError, pa.ArrowInvalid):
            return None

    def first(self, schema: pa.Schema, rows_max: int) -> pa.Table:
        """The first rows that wait in the feed."""
        found = schema.empty_table()
        for name in sorted(self._numbers()):
            if found.num_rows >= rows_max:
                break
            found = pa.concat_tables([found, pq.read_table(self._shown / name, schema=schema)])
        return found.slice(0, rows_max)

    def frame(self, spark: SparkSession, files: Sequence[Path], schema: pa.Schema) -> DataFrame:
        """The content of feed files, as Spark reads it."""
        return spark.read.schema(to_spark_schema(schema)).parquet(*(f"file://{file.resolve()}" for file in files))


class FeedWriter:
    """Writes one feed file, which is not visible until it is published. `closed` is called with its size and
    checksum."""

    def __init__(self, path: Path, closed: Callable[[list[int]], None], repeated: Sequence[str]) -> None:
        self._path, self._closed, self._repeated = path, closed, repeated
        self._file = -1
        self._out: Writer | None = None
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; small batches are combined, because each row group of a file has a cost."""
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= HELD_BYTES_MAX:
            self._flush()

    def close(self) -> None:
        """Sync it to disk; called before it is published."""
        self._flush()
        assert self._writer is not None
        assert self._out is not None
        with self._given_up_on_error():
            self._writer.close()
            os.fsync(self._file)
            sync_folder(self._path.parent)
        os.close(self._file)
        self._closed([self._out.size, self._out.checksum])

    def _flush(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        with self._given_up_on_error():
            if self._writer is None:
                options = {"compression": "lz4", "write_statistics": False}
                words = [name for name in table.schema.names if name in self._repeated]
                # A new file instead of a truncated one, because a writer that failed may still have that one open.
                self._path.unlink(missing_ok=True)
                self._file = open_beside(self._path)
                self._out = Writer(self._file)
                self._writer = pq.ParquetWriter(self._out, table.schema, use_dictionary=words, **options)
            self._writer.write_table(table, row_group_size=GROUP_ROWS)

    @contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        """An error inside the block ends the file: Parquet's writer would otherwise complete it when it is
        collected."""
        try:
            with disk_errors(self._path):
                yield
        except BaseException:
            if self._out is not None:
                self._out.abandon()
                os.close(self._file)
            raise


def sums_of(entries: Sequence[Entry]) -> dict[str, list[int]]:
    """Size and checksum of feed files, by their numbers, from the journal."""
    return {number: sum_ for entry in entries for number, sum_ in entry.get(SUMS, {}).items()}


def has_feed(folder: Path) -> bool:
    """Whether a source's folder has a feed."""
    return (folder / "feed").is_dir() or (folder / JOURNAL).exists()


def damage_in(folder: Path, done: int) -> Iterator[str]:
    """The damage of the journal and the feed files of a source's folder when this many batches are committed, a
    sentence for each file; nothing is changed."""
    try:
        entries, _, _ = read_journal(folder / JOURNAL)
    except StateError as error:
        yield error.problems[0].message
        return
    last, sums = max((entry["feed"] for entry in entries), default=0), sums_of(entries)
    if last < done:
        yield f"{folder / JOURNAL} has {last} batches, but {done} are in the tables."
    files = {int(file.name[:NUMBER_DIGITS]): file for file in (folder / "feed").glob("[0-9]*.parquet")}
    for number in range(done + 1, max(last, *files, 0) + 1):
        file = files.get(number, folder / "feed" / _name(number))
        # The last one may not have been renamed yet.
        wrong = _wrong(file if file.exists() else folder / "aside" / _name(number), sums.get(str(number)))
        if wrong is not None:
            yield wrong


def _wrong(file: Path, expected: list[int] | None) -> str | None:
    """The damage of a feed file with this size and checksum, as a sentence."""
    try:
        found = file.read_bytes()
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}."
    if expected is None:
        return f"{file} is not in the journal of its source."
    same = expected == [len(found), zlib.crc32(found)]
    return None if same else f"{file} is damaged: its checksum does not match."


def is_marked(file: Path) -> bool:
    """Whether a feed file was published as marked."""
    return file.name.endswith(MARK)


def rows_of(files: Sequence[Path]) -> int:
    """The number of rows in feed files."""
    return sum(_rows(file) for file in files)


def _name(number: int, marked: bool = False) -> str:
    return f"{number:0{NUMBER_DIGITS}d}{MARK if marked else '.parquet'}"


def _rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        # Its batch is committed.
        return 0
