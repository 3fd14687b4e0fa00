"""Following files: what is added to them goes, in order, into a feed; each file's position is remembered.

Lines are read when they have ended. A last line without newline waits. It is taken if it is a whole record as it
stands: JSON that parses, when the file has been still for `watch.debounce` or the flow is catching up; a CSV row with
all its fields, which may be half a row all the same, under `--once` or after `UNENDED_S`. If such a row goes on after
all, it is read again. A rewritten file is read again from its start when it has been still. Delivery: exactly once into
the feed.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.source import ORDER_MINOR, SourceSpec, SourceStatus
from millpond.errors import Problem, Severity, SourceError, StateError
from millpond.sources.ddl import table_ddl
from millpond.sources.feed import FILES_MAX, Feed, is_marked, rows_of
from millpond.sources.files.batching import Batching, Kind
from millpond.sources.files.choosing import contents_of, settled
from millpond.sources.files.contents import Chunk, Contents, Opening, cut_off
from millpond.sources.files.formats import is_compressed
from millpond.sources.files.letters import again, originals
from millpond.sources.files.looking import Where, require, unreadable
from millpond.sources.files.positions import (
    HEAD_BYTES,
    NEWLINES,
    Fate,
    Position,
    Positions,
    Seen,
    byte_at,
    has_text,
    head_of,
)
from millpond.sources.files.reading import Tail
from millpond.sources.files.stillness import UNENDED_S, Clock, Stillness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A look at many files may take long; it is never more than this share of the time.
LOOKING_SHARE = 0.2
PROBLEMS_MAX = 100
# Rows of a batch while the app runs; catching up takes what is there in one.
LIVE_ROWS = 200_000


@dataclass(frozen=True)
class Task:
    """One file to read: what was seen of it, how to read it, and how far it was read before, if it goes on."""

    seen: Seen
    opening: Opening
    major: int
    tail: Tail
    known: Position | None = None


@dataclass(frozen=True)
class Refusal:
    """A file that could not be read; `lasts`: nor will it be as long as it is as it was seen."""

    seen: Seen
    lasts: bool


class FileStream:
    """A StreamReader over files; see the contract."""

    def __init__(self, spec: SourceSpec, folder: Path, clock: Clock = time.monotonic) -> None:
        self._spec, self._clock = spec, clock
        self._where = Where.of(spec)
        require(self._where, spec)
        self._positions = Positions()
        self._feed = Feed(folder, self._summary)
        entries = self._feed.recover()
        known = entries[-1]["format"] if entries else None
        self._contents: Contents = contents_of(spec, self._where, known)
        for entry in entries:
            self._contents.headers.extend(tuple(names) for names in entry["headers"])
            self._positions.restore(entry["files"])
        self._headers_known = len(self._contents.headers)
        self._still = Stillness(spec.values["watch.debounce"] / 1e6, clock)
        self._ended = Stillness(UNENDED_S, clock)
        self._final = False
        # How a file was last read, and which files were complained of.
        self._tried: dict[str, tuple[Seen, Tail]] = {}
        self._told: dict[str, Refusal] = {}
        self._caught_up = False
        self._look_s = 0.0
        self._bytes_read = 0
        self._problems: list[Problem] = []
        self._status = SourceStatus()

    def stream(self, spark: SparkSession) -> DataFrame:
        return self._feed.stream(spark, self._contents.schema)

    def records(self, batch: DataFrame) -> DataFrame:
        return self._contents.records(batch, text=self._feed.any_marked())

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        if files is None or any(is_marked(file) for file in files):
            return None
        rows = self._feed.read(files, self._contents.schema)
        return None if rows is None else self._contents.arrow_records(rows)

    def all_good(self, files: Sequence[Path]) -> int | None:
        if any(is_marked(file) for file in files) or not self._contents.tells_bad_apart:
            return None
        return rows_of(files)

    def size_hint(self, batch: DataFrame) -> int:
        return self._feed.rows_next()

    def originals(self, batch: DataFrame, records: pa.Table) -> list[bytes | None]:
        return originals(self._contents, self._positions.all(), records)

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        return again(self._contents, self._positions.all(), spark, letters)

    def committed(self, batch_id: int) -> None:
        """Spark removes the feed file itself."""
        self._feed.taken()

    def status(self) -> SourceStatus:
        lag, lag_s = self._feed.lag()
        return replace(self._status, lag=lag, lag_s=lag_s)

    @property
    def given(self) -> Feed:
        return self._feed

    def problems(self) -> list[Problem]:
        found, self._problems = self._problems, []
        return found

    @property
    def interval_s(self) -> float:
        wanted: float = self._spec.values["watch.interval"] / 1e6
        return max(wanted, self._look_s / LOOKING_SHARE)

    def poll(self, *, final: bool = False) -> bool:
        started, self._final = self._clock(), final
        try:
            seen = self._positions.settle(self._where.look())
            rows = self._take(seen)
        except SourceError as error:
            if not self._caught_up or error.code == "MP503":
                raise
            self._status = replace(self._status, health="disconnected", detail=error.problems[0].message)
            return False
        except StateError:
            # What was read is not in the feed: the next poll reads it again.
            self._tried.clear()
            raise
        there = bool(seen) or self._where.there()
        self._status = replace(
            self._status,
            health="healthy" if there else "not_found",
            rows=self._status.rows + rows,
            bytes=self._status.bytes + self._bytes_read,
            updated_at=time.time() if rows else self._status.updated_at,
            detail="",
        )
        self._bytes_read = 0
        self._caught_up = True
        if not rows:
            self._look_s = self._clock() - started
        return rows > 0

    def positions(self) -> tuple[Position, ...]:
        """How far each file has been read."""
        return self._positions.all()

    def all_of(self, files: list[Seen], spark: Callable[[], SparkSession]) -> Iterator[tuple[Path, pa.Table]]:
        """The records of files, in this order, without a stream over the feed: each feed file with what it holds."""
        self._take(files)
        for file in self._feed.files():
            records = None if is_marked(file) else self._feed.read([file], self._contents.schema)
            if records is not None:
                yield file, self._contents.arrow_records(records)
            else:
                fed = spark().read.schema(table_ddl(self._contents.schema)).parquet(str(file))
                yield file, self._contents.records(fed, text=True).toArrow()

    def _take(self, seen: list[Seen]) -> int:
        """Read what is new in these files into the feed; returns the rows."""
        if seen:
            self._contents = settled(self._contents, self._spec, self._where)
        most = self._spec.values["max.rows.per.batch"]
        # While the app runs the flow works on the first records of many as the rest is still being read.
        rows_max = min(most, LIVE_ROWS) if self._caught_up else most
        batching = Batching(self._feed, self._contents, rows_max, self._publish)
        major = self._positions.next_major()
        passed_over: list[SourceError] = []
        for file in seen:
            if self._feed.waiting() >= FILES_MAX:
                break
            try:
                major += self._take_file(file, major, batching)
            except SourceError as error:
                if error.code == "MP503":
                    raise
                self._complain(file, error)
                passed_over.append(error)
        if not self._caught_up and passed_over and len(passed_over) == len(seen):
            # Of one bad file among others the others are read; a source of which nothing can be read is no source.
            raise passed_over[0]
        batching.finish()
        self._forget_others(seen)
        return batching.rows

    def _forget_others(self, seen: list[Seen]) -> None:
        """What is kept about files is kept about those that are there."""
        self._still.keep(seen)
        self._ended.keep(seen)
        self._tried = {file.path: self._tried[file.path] for file in seen if file.path in self._tried}
        self._told = {file.path: self._told[file.path] for file in seen if file.path in self._told}

    def _take_file(self, file: Seen, major: int, batching: Batching) -> bool:
        """Read what is new in a file; returns whether it has taken the arrival number."""
        before = self._told.get(file.path)
        if before is not None and before.seen == file and before.lasts:
            return False
        task = self._task(file, major)
        if task is None:
            return False
        self._read(task, batching)
        self._tried[file.path] = (file, task.tail)
        return task.major == major

    def _read(self, task: Task, batching: Batching) -> None:
        path = Path(task.seen.path)
        whole = self._contents.is_whole(path)
        opening = replace(task.opening, size=task.seen.size)
        try:
            position = _position(task)
            for chunk in self._contents.chunks(path, opening, task.tail, task.major):
                self._bytes_read += 0 if whole else chunk.end - position.position
                position = _behind(position, chunk, whole)
                batching.add(position, chunk)
        except FileNotFoundError:
            return
        except (OSError, UnicodeError) as error:
            raise unreadable(task.seen.path, error) from error
        self._bytes_read += task.seen.size if whole else 0
        batching.moved(replace(position, done=True) if whole else position)
        if self._final and not whole and not position.done and has_text(position.path, position.position):
            hint = "Look for a quote or bracket that is never closed."
            self._warn("MP504", f"The last record of '{path}' has no end: it is read when it has one.", hint)

    def _publish(self, positions: list[Position], kind: Kind) -> None:
        headers = [list(names) for names in self._contents.headers[self._headers_known :]]
        entry = {"files": [p.stored() for p in positions], "headers": headers, "format": self._contents.format}
        if kind is Kind.NONE:
            self._feed.remember(entry)
        else:
            self._feed.publish(entry, marked=kind is Kind.TEXT)
        # Only now: a summary of the journal must not run ahead of what it has.
        self._headers_known = len(self._contents.headers)
        for position in positions:
            self._positions.put(position)

    def _task(self, file: Seen, major: int) -> Task | None:
        """How to read a file, or None when it has nothing new."""
        fate, known = self._positions.fate(file)
        still = not self._caught_up or self._still.is_still(file)
        tail = self._tail(file, still)
        if self._tried.get(file.path) == (file, tail) or (known and fate is Fate.SAME and self._is_read(known)):
            return None
        if known is not None and fate in (Fate.SAME, Fate.GROWN):
            start = self._going_on(known, fate)
            return Task(file, Opening(known.layout, start, known.header), known.major, tail, known)
        if fate is Fate.REWRITTEN and not still:
            return None
        opening = self._opening(file, tail)
        if opening is None:
            self._tried[file.path] = (file, tail)
            return None
        if fate is Fate.REWRITTEN:
            hint = "Add to files, or write new ones, to have each record read once."
            self._warn("MP510", f"'{file.path}' was rewritten and is read again from its start.", hint)
        return Task(file, opening, major, tail)

    def _tail(self, file: Seen, still: bool) -> Tail:
        """What to do with a last line that has no newline."""
        if self._contents.format == "csv" and not self._contents.is_whole(Path(file.path)):
            still = self._ended.is_still(file) or self._final
        return Tail.COMPLETE if still else Tail.LEAVE

    def _going_on(self, known: Position, fate: Fate) -> int:
        """Where to go on in a file: behind what was read, unless that ended in a row which has become longer."""
        if known.unended < 0 or fate is Fate.SAME or not continues(known):
            return known.position
        hint = "Write rows with their newline at once, or into a file that is renamed when it is whole."
        self._warn("MP510", f"The last row of '{known.path}' had no end and went on: it is read again.", hint)
        return known.unended

    def _is_read(self, known: Position) -> bool:
        """Whether nothing is left of a file that has not changed since."""
        if known.done:
            return True
        return not self._contents.is_whole(Path(known.path)) and known.position >= known.size

    def _opening(self, file: Seen, tail: Tail) -> Opening | None:
        path = Path(file.path)
        try:
            opening = self._contents.opening(path, tail)
            if opening is None and tail is not Tail.LEAVE and is_compressed(path) and file.size:
                # It may still be written; that it was not read must not go unsaid.
                self._complain(file, cut_off(path))
            return opening
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError) as error:
            raise unreadable(file.path, error) from error

    def _complain(self, file: Seen, error: SourceError) -> None:
        """A file that cannot be read does not hold up the others; it is told of once, and tried again: at each look
        where it may be readable as it is, else when it has changed."""
        problem, before = error.problems[0], self._told.get(file.path)
        if before is None or before.seen != file:
            self._told[file.path] = Refusal(file, lasts=not _may_pass(error))
            self._warn(problem.code, problem.message, problem.hint)

    def _warn(self, code: str, message: str, hint: str) -> None:
        found = Problem(code, message, hint=hint, severity=Severity.WARNING)
        self._problems = [*self._problems, found][-PROBLEMS_MAX:]

    def _summary(self) -> dict[str, Any]:
        headers = [list(names) for names in self._contents.headers[: self._headers_known]]
        return {"files": self._positions.stored(), "headers": headers, "format": self._contents.format}


def _may_pass(error: SourceError) -> bool:
    """Whether the file may become readable without being changed: the system refused it, not its content."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, gzip.BadGzipFile)


def _position(task: Task) -> Position:
    """Where a file stands before it is read."""
    seen, opening = task.seen, task.opening
    if task.known is not None:
        return replace(task.known, size=seen.size, mtime_ns=seen.mtime_ns, position=opening.start)
    # What comes before the records, such as a header, is what a file without any is known by.
    head, head_bytes = head_of(seen.path, opening.start)
    return Position(
        path=seen.path,
        device=seen.device,
        inode=seen.inode,
        size=seen.size,
        mtime_ns=seen.mtime_ns,
        major=task.major,
        position=opening.start,
        head=head,
        head_bytes=head_bytes,
        layout=opening.layout,
        header=opening.header,
    )


def _behind(position: Position, chunk: Chunk, whole: bool) -> Position:
    """The position behind a chunk; the file is known by the bytes that were read, a whole one by its first ones."""
    unended = -1 if whole or position.layout != "csv" else _unended(position.path, chunk)
    head = position.head, position.head_bytes
    if position.head_bytes < HEAD_BYTES:
        head = head_of(position.path, HEAD_BYTES if whole else chunk.end)
    return replace(position, position=chunk.end, done=chunk.closed, unended=unended, head=head[0], head_bytes=head[1])


def _unended(path: str, chunk: Chunk) -> int:
    """Where the last row of a chunk starts if no newline ends it, else -1."""
    if not chunk.batch.num_rows or byte_at(path, chunk.end - 1) in NEWLINES:
        return -1
    return int(chunk.batch.column(ORDER_MINOR)[-1].as_py())


def continues(known: Position) -> bool:
    """Whether a row that was taken without its end has become longer."""
    return byte_at(known.path, known.position) not in (*NEWLINES, b"")
