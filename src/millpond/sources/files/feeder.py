"""The feeder of files: text that is added to files is written to a feed, in order, and the position in each is stored.

A line is read when it is complete. A last line without a newline is read if it may be a complete record: JSON that can
be parsed, when the file has not changed for `watch.debounce` or the flow catches up; a CSV row with all its fields,
with `--once` or after `UNENDED_S`. If such a row is continued later, it is read again. A rewritten file is read again
from its start when it has not changed for some time. Delivery: exactly once into the feed.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.feeder import Feeder, Polled, Position, Take
from millpond.contracts.source import HIDDEN_SOURCE, ORDER_MINOR, SourceSpec, SourceStatus
from millpond.errors import Problem, Severity, SourceError
from millpond.sources.files.contents import Chunk, Contents, Opening, cut_off
from millpond.sources.files.file_positions import (
    HEAD_BYTES,
    NEWLINES,
    Fate,
    FilePosition,
    Positions,
    Seen,
    byte_at,
    has_text,
    head_of,
)
from millpond.sources.files.listing import Where, require, unreadable
from millpond.sources.files.parquet import contents_of, settled
from millpond.sources.files.rejected import again, originals
from millpond.sources.files.stability import UNENDED_S, Clock, Stillness
from millpond.sources.records.column_types import PROBLEM
from millpond.sources.records.formats import is_compressed
from millpond.sources.records.text_reader import Tail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A poll of many files may take long; it never uses more than this share of the time.
LOOKING_SHARE = 0.2
PROBLEMS_MAX = 100


@dataclass(frozen=True)
class Task:
    """One file to read: its state at the poll, how to read it, and how far it was read before, if it is continued."""

    seen: Seen
    opening: Opening
    major: int
    tail: Tail
    known: FilePosition | None = None


@dataclass(frozen=True)
class Refusal:
    """A file that could not be read; `lasts`: nor can it be until it is changed."""

    seen: Seen
    lasts: bool


class FileFeeder(Feeder):
    """Reads files as a stream; a position states how far each file was read that has changed since the previous
    position."""

    repeated = (HIDDEN_SOURCE.name, PROBLEM)

    def __init__(self, spec: SourceSpec, clock: Clock = time.monotonic, where: Where | None = None) -> None:
        self._spec, self._clock = spec, clock
        self._where = where or Where.of(spec)
        require(self._where, spec)
        self._positions = Positions()
        self._contents: Contents
        # Headers that are stored, and that were yielded with a position.
        self._headers_kept = self._headers_given = 0
        # Positions that were yielded and are not stored yet, by path.
        self._given: dict[str, dict[str, Any]] = {}
        self._still = Stillness(spec.values.get("watch.debounce", 0) / 1e6, clock)
        self._ended = Stillness(UNENDED_S, clock)
        self._final = False
        # How a file was last read, and which files were reported as unreadable.
        self._tried: dict[str, tuple[Seen, Tail]] = {}
        self._refused: dict[str, Refusal] = {}
        self._caught_up = False
        self.interval_s = spec.values["watch.interval"] / 1e6
        self._exists = True
        self._problems: list[Problem] = []

    def begin(self, known: Sequence[Position], take: Take) -> None:
        self._where.use(self.folder)
        self._use(contents_of(self._spec, self._where, known[-1]["format"] if known else None))
        for position in known:
            self._contents.headers.extend(tuple(names) for names in position["headers"])
            self._positions.restore(files_of(position))
        self._headers_kept = self._headers_given = len(self._contents.headers)

    def _use(self, contents: Contents) -> None:
        self._contents = contents
        self.schema, self.may_be_bad = contents.schema, not contents.separates_bad

    def records(self, rows: DataFrame, *, raw: bool) -> DataFrame:
        return self._contents.records(rows, text=raw)

    def arrow_records(self, rows: pa.Table, *, raw: bool) -> pa.Table | None:
        return self._contents.arrow_records(rows, text=raw)

    def together(self, small: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
        yield from ((chunk.batch, chunk.text) for chunk in self._contents.parsed_together(small))

    def originals(self, records: pa.Table, fed: Callable[[], pa.Table]) -> list[bytes | None]:
        return originals(self._contents, self._positions.all(), records)

    def again(self, letters: pa.Table) -> pa.Table:
        return again(self._contents, self._positions.all(), letters)

    def status(self, known: SourceStatus) -> SourceStatus:
        return known if self._exists else replace(known, health="not_found")

    def problems(self) -> list[Problem]:
        found, self._problems = self._problems, []
        return found

    def poll(self, position: Position | None, *, final: bool = False) -> Iterator[Polled]:
        started, self._final, yielded = self._clock(), final, False
        if self._given:
            # It was not written to the feed: it is read again.
            self._given, self._headers_given = {}, self._headers_kept
            self._tried.clear()
        elif self._where.is_remote:
            self._where.confirm()
        seen = self._positions.settle(self._where.look())
        try:
            for part in self.parts_of(seen):
                yielded = yielded or part.count > 0
                yield part
        except GeneratorExit:
            # The limit of this poll is reached.
            self._caught_up = True
            raise
        self._exists = bool(seen) or self._where.exists()
        self._caught_up = True
        if not yielded:
            looked_s = self._clock() - started
            self.interval_s = max(self._spec.values["watch.interval"] / 1e6, looked_s / LOOKING_SHARE)

    def merge(self, before: Position, after: Position) -> Position:
        before["files"].update(after["files"])
        before["headers"].extend(after["headers"])
        return {**before, "format": after["format"]}

    def kept(self, position: Position) -> None:
        self._headers_kept += len(position["headers"])
        for path, file in position["files"].items():
            if self._given.get(path) == file:
                del self._given[path]
        self._positions.restore(position["files"].values())

    def whole(self) -> Position:
        headers = [list(names) for names in self._contents.headers[: self._headers_kept]]
        files = {file["path"]: file for file in self._positions.stored()}
        return {"files": files, "headers": headers, "format": self._contents.format}

    def positions(self) -> tuple[FilePosition, ...]:
        """How far each file has been read."""
        return self._positions.all()

    def parts_of(self, seen: list[Seen]) -> Iterator[Polled]:
        """The new records of these files."""
        if seen:
            self._use(settled(self._contents, self._spec, self._where))
        major = self._positions.next_major()
        passed_over: list[SourceError] = []
        for file in seen:
            try:
                task = self._task_unless_refused(file, major)
                if task is not None:
                    yield from self._read(task)
                    self._tried[file.path] = (file, task.tail)
                    major += task.major == major
                if self._where.is_remote:
                    self._where.release(file)
            except SourceError as error:
                if error.code == "MP503":
                    raise self._where.named(error) from error
                self._complain(file, error)
                passed_over.append(error)
        if not self._caught_up and passed_over and len(passed_over) == len(seen):
            # If some files cannot be read, the others are read; if none can, the source cannot be read.
            raise self._where.named(passed_over[0])
        self._forget_others(seen)

    def _forget_others(self, seen: list[Seen]) -> None:
        """Forget files that no longer exist."""
        self._still.keep(seen)
        self._ended.keep(seen)
        self._tried = {file.path: self._tried[file.path] for file in seen if file.path in self._tried}
        self._refused = {file.path: self._refused[file.path] for file in seen if file.path in self._refused}

    def _task_unless_refused(self, file: Seen, major: int) -> Task | None:
        """How to read a file, unless it was rejected in its current state."""
        before = self._refused.get(file.path)
        if before is not None and before.seen == file and before.lasts:
            return None
        if self._where.is_remote and not self._is_fetched(file):
            return None
        return self._task(file, major)

    def _is_fetched(self, file: Seen) -> bool:
        """Fetch a file with new content; False if there is none, or the file no longer exists."""
        known = self._positions.get(file.path)
        tried = self._tried.get(file.path, (None, None))[0] == file
        if tried or (known is not None and known.unchanged(file) and self._is_read(known)):
            return False
        try:
            self._where.fetch(file)
        except FileNotFoundError:
            return False
        return True

    def _read(self, task: Task) -> Iterator[Polled]:
        path = Path(task.seen.path)
        whole = self._contents.is_whole(path)
        source = self._where.shown(task.seen.path) if self._where.is_remote else ""
        opening = replace(task.opening, size=task.seen.size, source=source)
        try:
            position = _position(task)
            for chunk in self._contents.chunks(path, opening, task.tail, task.major):
                read = 0 if whole else chunk.end - position.position
                position = _behind(position, chunk, whole)
                yield self._polled(chunk, position, read)
        except FileNotFoundError:
            return
        except (OSError, UnicodeError) as error:
            raise unreadable(task.seen.path, error) from error
        nothing = Chunk(pa.RecordBatch.from_pylist([], self.schema), position.position)
        position = replace(position, done=True) if whole else position
        yield self._polled(nothing, position, task.seen.size if whole else 0)
        if self._final and not whole and not position.done and has_text(position.path, position.position):
            hint = "Look for a quote or bracket that is never closed."
            self._warn("MP504", f"The last record of '{path}' is incomplete: it is read when it is complete.", hint)

    def _polled(self, chunk: Chunk, position: FilePosition, read: int) -> Polled:
        """A chunk with the position after it, and the headers since the last one."""
        stored, headers = position.stored(), self._contents.headers[self._headers_given :]
        self._given[position.path] = stored
        self._headers_given = len(self._contents.headers)
        moved = {
            "files": {position.path: stored},
            "headers": [list(h) for h in headers],
            "format": self._contents.format,
        }

        def cut(rows: int) -> tuple[Polled, Polled]:
            first, rest = chunk.cut(rows)
            before = self._polled(first, replace(position, position=first.end, done=False, unended=-1), read)
            behind = self._polled(rest, position, 0)
            return replace(before, position={**before.position, "headers": moved["headers"]}), behind

        return Polled(chunk.batch, moved, raw=chunk.text, small=chunk.small, bytes=read, cut=cut)

    def _task(self, file: Seen, major: int) -> Task | None:
        """How to read a file, or None if it has nothing new."""
        fate, known = self._positions.fate(file)
        still = not self._caught_up or self._where.is_remote or self._still.is_still(file)
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
            hint = "To have each record read once, append to files or add new ones."
            self._warn("MP510", f"'{file.path}' was rewritten and is read again from its start.", hint)
        return Task(file, opening, major, tail)

    def _tail(self, file: Seen, still: bool) -> Tail:
        """What to do with a last line without a newline."""
        if self._where.is_remote:
            return Tail.TAKE
        if self._contents.format == "csv" and not self._contents.is_whole(Path(file.path)):
            still = self._ended.is_still(file) or self._final
        return Tail.COMPLETE if still else Tail.LEAVE

    def _going_on(self, known: FilePosition, fate: Fate) -> int:
        """Where to continue in a file: after what was read, unless its last row has been continued."""
        if known.unended < 0 or fate is Fate.SAME or not continues(known):
            return known.position
        hint = "Write each row together with its newline, or write to a file that is renamed when it is complete."
        self._warn(
            "MP510", f"The last row of '{known.path}' was incomplete and has been continued: it is read again.", hint
        )
        return known.unended

    def _is_read(self, known: FilePosition) -> bool:
        """Whether a file has been read completely and has not changed since."""
        if known.done:
            return True
        return not self._contents.is_whole(Path(known.path)) and known.position >= known.size

    def _opening(self, file: Seen, tail: Tail) -> Opening | None:
        path = Path(file.path)
        try:
            opening = self._contents.opening(path, tail)
            if opening is None and tail is not Tail.LEAVE and is_compressed(path) and file.size:
                # It may still be written, but that it was not read must be reported.
                self._complain(file, cut_off(path))
            return opening
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError) as error:
            raise unreadable(file.path, error) from error

    def _complain(self, file: Seen, error: SourceError) -> None:
        """A file that cannot be read does not delay the others. It is reported once, and tried again: at each poll
        where the failure may be temporary, else when the file has changed."""
        problem, before = error.problems[0], self._refused.get(file.path)
        if before is None or before.seen != file:
            self._refused[file.path] = Refusal(file, lasts=not _may_pass(error))
            self._warn(problem.code, problem.message, problem.hint)

    def _warn(self, code: str, message: str, hint: str) -> None:
        message = self._where.named_text(message)
        found = Problem(code, message, hint=hint, severity=Severity.WARNING)
        self._problems = [*self._problems, found][-PROBLEMS_MAX:]


def files_of(position: Position) -> Iterable[dict[str, Any]]:
    """The files of a position; in an earlier version they were a list."""
    files = position["files"]
    return files if isinstance(files, list) else files.values()


def _may_pass(error: SourceError) -> bool:
    """Whether the file may become readable without a change: the system rejected it, not its content."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, gzip.BadGzipFile)


def _position(task: Task) -> FilePosition:
    """The position of a file before it is read."""
    seen, opening = task.seen, task.opening
    if task.known is not None:
        known = replace(task.known, device=seen.device, inode=seen.inode, size=seen.size, mtime_ns=seen.mtime_ns)
        return replace(known, position=opening.start)
    # A file without records is identified by what comes before them, such as a header.
    head, head_bytes = head_of(seen.path, opening.start)
    return FilePosition(
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


def _behind(position: FilePosition, chunk: Chunk, whole: bool) -> FilePosition:
    """The position after a chunk; the file is identified by the bytes that were read, or by its first ones."""
    unended = -1 if whole or position.layout != "csv" else _unended(position.path, chunk)
    head = position.head, position.head_bytes
    if position.head_bytes < HEAD_BYTES:
        head = head_of(position.path, HEAD_BYTES if whole else chunk.end)
    return replace(position, position=chunk.end, done=chunk.closed, unended=unended, head=head[0], head_bytes=head[1])


def _unended(path: str, chunk: Chunk) -> int:
    """The start of the last row of a chunk if it does not end with a newline, else -1."""
    if not chunk.batch.num_rows or byte_at(path, chunk.end - 1) in NEWLINES:
        return -1
    return int(chunk.batch.column(ORDER_MINOR)[-1].as_py())


def continues(known: FilePosition) -> bool:
    """Whether a row that was read without its end has been continued."""
    return byte_at(known.path, known.position) not in (*NEWLINES, b"")
