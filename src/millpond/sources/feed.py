"""A feed: a folder of numbered Parquet files, one per batch, that Spark's own file stream follows.

A source that Spark cannot follow itself writes the records it found into the feed. A feed file is written aside, then
its number, its checksum and what the reader must remember go into the journal, then it is shown by a rename: a crash
between any two steps neither loses nor doubles a record, and a batch asked for again gives the same records even when
the place they came from has changed. Spark removes a feed file when its batch is done.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.contracts.source import HIDDEN_SOURCE
from millpond.disk import Writer, disk_errors, make_folder, open_private, sync_folder
from millpond.errors import StateError
from millpond.faults import reach
from millpond.sources.ddl import table_ddl
from millpond.sources.journal import HINT, Entry, Journal, read_journal
from millpond.sources.raw import PROBLEM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Modification times are a count of feed files, not of seconds: strictly increasing whatever the clock does.
FIRST_TIME_MS = 1_577_836_800_000
# Spark forgets files this much older than the newest; at one millisecond per file it must exceed FILES_MAX.
REMEMBERED = "100s"
# Feed files that wait to be read; a poll that would add more stops and goes on next time.
FILES_MAX = 10_000
# Columns with few different values.
REPEATED = (HIDDEN_SOURCE.name, PROBLEM)
MARK = "-marked.parquet"
JOURNAL = "journal.jsonl"
# In the journal: size and checksum of feed files by their numbers.
SUMS = "sums"
NUMBER_DIGITS = 12
# Rows per Parquet row group, so that several cores can read one feed file.
GROUP_ROWS = 65_536
# Bytes of rows held before they are written.
HELD_BYTES_MAX = 16 << 20


class Feed:
    """Writes and shows feed files; used by one thread."""

    def __init__(self, folder: Path, summarise: Callable[[], Entry]) -> None:
        self._shown, self._aside = folder / "feed", folder / "aside"
        for made in (self._shown, self._aside):
            make_folder(made)
        self._journal = Journal(folder / JOURNAL, lambda: {**summarise(), "feed": self._last, SUMS: self._sums_there()})
        self._last = 0
        self._sums: dict[str, list[int]] = {}
        self._written: list[int] = []
        self._marked = False
        # Rows and time of each feed file of this run that waits for its batch.
        self._pending: deque[tuple[int, float]] = deque()

    def recover(self) -> list[Entry]:
        """What was remembered, oldest first; a feed file that a crash left half made is finished or removed."""
        entries = self._journal.entries()
        self._last = max((entry["feed"] for entry in entries), default=0)
        self._sums = sums_of(entries)
        for file in self._aside.iterdir():
            if file.name == _name(self._last):
                self._show(entries[-1].get("marked", False))
            else:
                file.unlink()
        return entries

    def writer(self) -> FeedWriter:
        """A writer for the next feed file."""
        if (self._aside / _name(self._last)).exists():
            # It is in the journal, and the disk refused to move it.
            self._show(self._marked)
        return FeedWriter(self._aside / _name(self._last + 1), self._note)

    def _note(self, written: list[int]) -> None:
        self._written = written

    def publish(self, remember: Entry, *, marked: bool = False, rows: int | None = None) -> None:
        """Show what the writer wrote, and remember `remember` with it; `marked` can be asked for while it waits. `rows`
        where a row of the file stands for several records."""
        reach("feed.written")
        sums = {str(self._last + 1): self._written}
        self._journal.append({**remember, "feed": self._last + 1, "marked": marked, SUMS: sums})
        self._sums.update(sums)
        self._last, self._marked = self._last + 1, marked
        reach("feed.remembered")
        self._pending.append((_rows(self._aside / _name(self._last)) if rows is None else rows, time.time()))
        self._show(marked)
        reach("feed.shown")

    def taken(self) -> None:
        """A feed file's batch is done; called from the thread of the batches."""
        if self._pending:
            self._pending.popleft()

    def lag(self) -> tuple[int, float]:
        """How many rows wait, and for how many seconds the oldest of them; callable from any thread."""
        waiting = tuple(self._pending)
        return sum(rows for rows, _ in waiting), time.time() - waiting[0][1] if waiting else 0.0

    def remember(self, entry: Entry) -> None:
        """Remember something without showing anything."""
        self._journal.append({**entry, "feed": self._last})

    def _show(self, marked: bool) -> None:
        aside, shown = self._aside / _name(self._last), self._shown / _name(self._last, marked)
        time_ns = (FIRST_TIME_MS + self._last) * 1_000_000
        with disk_errors(shown):
            os.utime(aside, ns=(time_ns, time_ns))
            aside.rename(shown)
            sync_folder(self._shown)

    @property
    def batches(self) -> int:
        return self._last

    def has(self, batches: int) -> bool:
        """One file is one batch, and they are numbered from 1 without gaps; what comes after these was not read yet."""
        unread = sum(1 for number in self._numbers().values() if number > batches)
        return unread == self._last - batches

    def verify(self, batch: int) -> None:
        """MP804 unless the file of a batch, counted from 0, is what was written."""
        number = batch + 1
        names = [name for name, found in self._numbers().items() if found == number]
        file = self._shown / (names[0] if names else _name(number))
        if (wrong := _wrong(file, self._sums.get(str(number)))) is not None:
            raise StateError("MP804", wrong, hint=HINT)

    def _sums_there(self) -> dict[str, list[int]]:
        there = {str(number) for number in self._numbers().values()}
        return {number: sum_ for number, sum_ in self._sums.items() if number in there}

    def forget(self, batches: int) -> None:
        """Remove the files of batches that are done; Spark leaves the last ones."""
        for name, number in self._numbers().items():
            if number <= batches:
                with disk_errors(self._shown / name):
                    (self._shown / name).unlink(missing_ok=True)

    def _numbers(self) -> dict[str, int]:
        """The files that are there, with their numbers."""
        names = [name for name in os.listdir(self._shown) if name[:NUMBER_DIGITS].isdigit()]
        return {name: int(name[:NUMBER_DIGITS]) for name in names}

    def files(self) -> list[Path]:
        """The feed files that are there, in their order."""
        return [self._shown / name for name in sorted(self._numbers())]

    def waiting(self) -> int:
        """How many feed files are there; those that Spark has just read may still be among them."""
        return sum(1 for name in os.listdir(self._shown) if name.endswith(".parquet"))

    def any_marked(self) -> bool:
        """Whether any of the feed files that are there is marked; the one that is being read is there."""
        return any(name.endswith(MARK) for name in os.listdir(self._shown))

    def rows_next(self) -> int:
        """About how many rows the next batch has."""
        names = sorted(name for name in os.listdir(self._shown) if name.endswith(".parquet"))[:2]
        return max((_rows(self._shown / name) for name in names), default=0)

    def read(self, files: Sequence[Path], schema: pa.Schema) -> pa.Table | None:
        """What feed files hold, or None when one of them is gone."""
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

    def stream(self, spark: SparkSession, schema: pa.Schema) -> DataFrame:
        """The streaming DataFrame over the feed, whose files have this schema: one file is one batch."""
        reader = spark.readStream.schema(table_ddl(schema)).format("parquet")
        options = {"maxFilesPerTrigger": "1", "maxFileAge": REMEMBERED, "cleanSource": "delete"}
        return reader.options(**options).load(str(self._shown))


class FeedWriter:
    """Writes one feed file; nobody sees it until it is published. `closed` is given its size and checksum."""

    def __init__(self, path: Path, closed: Callable[[list[int]], None] = lambda written: None) -> None:
        self._path, self._closed = path, closed
        self._file = -1
        self._out: Writer | None = None
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; small batches are put together, because each row group of a file costs something."""
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= HELD_BYTES_MAX:
            self._flush()

    def close(self) -> None:
        """Put it on disk; call before it is published."""
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
                options = {"compression": "zstd", "compression_level": 1, "write_statistics": False}
                words = [name for name in table.schema.names if name in REPEATED]
                # A new file, not an old one made empty: whoever failed to write that may still hold it.
                self._path.unlink(missing_ok=True)
                self._file = open_private(self._path)
                self._out = Writer(self._file)
                self._writer = pq.ParquetWriter(self._out, table.schema, use_dictionary=words, **options)
            self._writer.write_table(table, row_group_size=GROUP_ROWS)

    @contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        """What fails inside ends the file: Parquet's writer would write its end when it is forgotten."""
        try:
            with disk_errors(self._path):
                yield
        except BaseException:
            if self._out is not None:
                self._out.abandon()
                os.close(self._file)
            raise


def sums_of(entries: Sequence[Entry]) -> dict[str, list[int]]:
    """Size and checksum of feed files, by their numbers, as the journal has them."""
    return {number: sum_ for entry in entries for number, sum_ in entry.get(SUMS, {}).items()}


def has_feed(folder: Path) -> bool:
    """Whether a source's folder has a feed."""
    return (folder / "feed").is_dir() or (folder / JOURNAL).exists()


def damage_in(folder: Path, done: int) -> Iterator[str]:
    """What is wrong with the journal and the feed files of a source's folder after this many batches are done, a
    sentence for each file; nothing is changed."""
    try:
        entries, _, _ = read_journal(folder / JOURNAL)
    except StateError as error:
        yield error.problems[0].message
        return
    last, sums = max((entry["feed"] for entry in entries), default=0), sums_of(entries)
    if last < done:
        yield f"{folder / JOURNAL} has {last} batches, and {done} are in the tables."
    files = {int(file.name[:NUMBER_DIGITS]): file for file in (folder / "feed").glob("[0-9]*.parquet")}
    for number in range(done + 1, max(last, *files, 0) + 1):
        file = files.get(number, folder / "feed" / _name(number))
        # The last one may still have to be moved to its place.
        wrong = _wrong(file if file.exists() else folder / "aside" / _name(number), sums.get(str(number)))
        if wrong is not None:
            yield wrong


def _wrong(file: Path, expected: list[int] | None) -> str | None:
    """What is wrong with a feed file that has this size and checksum, as a sentence."""
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
    """How many rows feed files hold."""
    return sum(_rows(file) for file in files)


def _name(number: int, marked: bool = False) -> str:
    return f"{number:0{NUMBER_DIGITS}d}{MARK if marked else '.parquet'}"


def _rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        # Spark removes files that it has read.
        return 0
