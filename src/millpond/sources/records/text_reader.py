"""Reads the records of a text file piece by piece, from a position on."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import SourceError
from millpond.sources.records.boundaries import Split, split_csv, splitter, unended
from millpond.sources.records.formats import FileFormat, is_compressed

# How much of a file is read and parsed at a time, unless one record is longer: so little that some pieces are parsed
# while the next is read, also in a file of a few megabytes.
PIECE_BYTES = 2 << 20
# A longer record is bad: most likely a quote or bracket was never closed.
RECORD_BYTES_MAX = 64 << 20
RAW_BYTES_MAX = 1 << 20
# The number of bytes by which the kind of line ends is determined.
HEAD_BYTES = 1 << 16

BOM = b"\xef\xbb\xbf"
BLANKS = b" \t\r\n"
CLOSING_BRACE = 125


class Tail(Enum):
    """What to do with bytes at the end of a file without a newline."""

    LEAVE = "leave"  # they may be an incomplete record: wait for its end
    COMPLETE = "complete"  # read them if they are a complete record
    TAKE = "take"  # read them as they are: nothing more will be added


@dataclass(frozen=True)
class Piece:
    """Some records of a file, in order. `suspect` marks those whose text must be checked when it is parsed; `problem`
    is the reason if these records cannot be read at all; `end` is where the next piece starts; `closed`: the array or
    object that contains them has ended."""

    values: pa.Array
    positions: npt.NDArray[np.int64]
    end: int
    suspect: npt.NDArray[np.bool_] | None = None
    problem: str | None = None
    closed: bool = False

    def __len__(self) -> int:
        return len(self.positions)

    def halves(self) -> tuple[Piece, Piece]:
        """The first rows and the others."""
        middle = len(self) // 2
        suspect = (None, None) if self.suspect is None else (self.suspect[:middle], self.suspect[middle:])
        first = replace(self, values=self.values[:middle], positions=self.positions[:middle], suspect=suspect[0])
        rest = replace(self, values=self.values[middle:], positions=self.positions[middle:], suspect=suspect[1])
        return replace(first, end=int(rest.positions[0]), closed=False), rest


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Read at most `size` bytes; empty at the end."""


@dataclass(frozen=True)
class Header:
    """The column names of a CSV file, and the position of its first row."""

    names: tuple[str, ...]
    end: int


def layout_of(path: Path, form: FileFormat) -> str | None:
    """The layout of the records in the file: lines, csv, array, object or parquet; None if it is empty."""
    if form.name == "parquet":
        return "parquet" if path.stat().st_size else None
    with opened(path, form, 0) as (stream, _):
        start = stream.read(PIECE_BYTES).lstrip(BLANKS)
    if not start:
        return None
    if form.name != "json":
        return "csv" if form.name == "csv" else "lines"
    if start.startswith(b"["):
        return "array"
    first, newline, rest = start.partition(b"\n")
    lines = not newline or not rest.strip(BLANKS) or not first.startswith(b"{") or is_json(first)
    return "lines" if lines else "object"


@contextmanager
def opened(path: Path, form: FileFormat, position: int) -> Iterator[tuple[Readable, int]]:
    """A file's bytes, decompressed, from a position on (after the byte order mark at the start), and that position. The
    bytes are in the file's own encoding if newlines are unambiguous in it, else UTF-8. A CSV file with only carriage
    returns gets newlines instead. A truncated compressed file ends where it was truncated."""
    with _Unzipped(path) if is_compressed(path) else path.open("rb") as file:
        returns = form.name == "csv" and _has_returns_alone(_transcoded(file, form).read(HEAD_BYTES))
        file.seek(0)
        stream = _transcoded(file, form)
        if not form.byte_wise:
            _skip(stream, position)
        else:
            # A compressed file has no random access; gzip reads up to the position by itself.
            file.seek(position)
            marked = position == 0 and file.peek(len(BOM)).startswith(BOM)
            position = len(file.read(len(BOM))) if marked else position
        yield _WithNewlines(stream) if returns else stream, position


def _transcoded(file: Readable, form: FileFormat) -> Readable:
    return file if form.byte_wise else _Transcoded(file, form.encoding)


def _has_returns_alone(head: bytes) -> bool:
    """Whether lines end with a carriage return only, as old programs write them. One at the very end does not count,
    because its newline may still be to come."""
    return b"\n" not in head and b"\r" in head[:-1]


def read_header(path: Path, form: FileFormat, tail: Tail) -> Header | None:
    """The names in a CSV file's first row; None while that row is incomplete."""
    with opened(path, form, 0) as (stream, start):
        data = stream.read(RECORD_BYTES_MAX // 64)
    split = split_csv(data, form)
    if len(split.starts) == 0:
        if tail is Tail.LEAVE or not data.strip(BLANKS):
            return None
        return Header(_names(path, data, form), start + len(data))
    end = int(split.starts[1]) if len(split.starts) > 1 else split.used
    return Header(_names(path, data[int(split.starts[0]) : int(split.ends[0])], form), start + end)


def _names(path: Path, row: bytes, form: FileFormat) -> tuple[str, ...]:
    try:
        return fields(row, form)
    except csv.Error as error:
        message = f"The header of '{path}' cannot be parsed: {error}."
        raise SourceError(
            "MP502", message, hint="Check that it is a CSV file whose first row contains the column names."
        ) from error


def fields(row: bytes, form: FileFormat) -> tuple[str, ...]:
    """The fields of one CSV row as text."""
    text = row.decode(form.encoding if form.byte_wise else "utf-8").strip("\r\n")
    doubled = form.escape == form.quote or not form.escape
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=form.delimiter[0],
        quotechar=form.quote or None,
        quoting=csv.QUOTE_MINIMAL if form.quote else csv.QUOTE_NONE,
        doublequote=doubled,
        escapechar=None if doubled else form.escape,
    )
    return tuple(next(reader, []))


@dataclass(frozen=True)
class ReadSpec:
    """How to read a file: its layout, the position (at the start of a record), and what to do with its tail. `width` is
    the number of fields of a CSV row, to recognize an incomplete row; `end` is where to stop, because reading would
    never end while another process writes faster."""

    form: FileFormat
    layout: str
    start: int
    tail: Tail
    width: int | None = None
    end: int | None = None


def pieces(path: Path, reading: ReadSpec) -> Iterator[Piece]:
    """The records of a text file from a position on."""
    with opened(path, reading.form, reading.start) as (stream, position):
        if reading.end is not None:
            stream = _Limited(stream, reading.end - position)
        if reading.layout == "object":
            yield from _whole_object(stream, position, reading.tail)
            return
        if reading.layout == "array" and reading.start == 0:
            position += _skip_bracket(stream)
        yield from _split_pieces(stream, position, reading)


def _split_pieces(stream: Readable, position: int, reading: ReadSpec) -> Iterator[Piece]:
    split, held, pending, closed = splitter(reading.layout, reading.form), b"", b"", False
    while not closed and (more := pending or stream.read(PIECE_BYTES)):
        held, pending = held + more, b""
        found = split(held)
        closed = found.closed
        if found.used == 0 and len(held) > RECORD_BYTES_MAX:
            skipped, size = _skip_record(stream, held, reading)
            if skipped is None and reading.tail is not Tail.TAKE:
                return
            yield _too_long(held, position, size)
            held, pending, position = b"", skipped or b"", position + size
            continue
        piece = _piece(held, found, position, reading)
        if piece.end > position:
            yield piece
        held, position = held[piece.end - position :], piece.end
    if closed:
        yield from _after_array(held + stream.read(PIECE_BYTES), position)
    elif held.strip(BLANKS) or reading.layout == "array":
        yield from _last(held, position, reading)


def _last(held: bytes, position: int, reading: ReadSpec) -> Iterator[Piece]:
    """The incomplete record at the end of a file, as the rule for tails requires."""
    if reading.layout == "array":
        if reading.tail is Tail.TAKE:
            yield _bad(held, position, "the JSON array is never closed")
        return
    whole = _is_whole(held, reading)
    if whole and reading.tail is not Tail.LEAVE:
        yield _piece(held, Split(np.array([0]), np.array([len(held)]), len(held)), position, reading)
    elif reading.tail is Tail.TAKE:
        if reading.layout == "csv" and split_csv(held + b"\n", reading.form).used == 0:
            yield _bad(held, position, "a quote is never closed")
        else:
            yield _piece(held, Split(np.array([0]), np.array([len(held)]), len(held)), position, reading)


def _is_whole(held: bytes, reading: ReadSpec) -> bool:
    """Whether the end of a file is a complete record: valid JSON, or a CSV row with all its fields."""
    if reading.layout != "csv":
        return is_json(held)
    if split_csv(held + b"\n", reading.form).used == 0:
        return False
    try:
        return reading.width is None or len(fields(held, reading.form)) == reading.width
    except (UnicodeDecodeError, csv.Error):
        return False


def _skip_record(stream: Readable, held: bytes, reading: ReadSpec) -> tuple[bytes | None, int]:
    """Skip to the end of the record that begins with `held`: returns what was read after it, None if it has no end, and
    the size of the record."""
    size, begun = len(held), unended(held, reading.layout, reading.form)
    split = splitter(reading.layout, reading.form)
    while more := stream.read(PIECE_BYTES):
        size += len(more)
        data = begun + more
        found = split(data)
        if found.used:
            rest = data[_behind_first(data, found, reading) :]
            return rest, size - len(rest)
        begun = unended(data, reading.layout, reading.form)
    return None, size


def _behind_first(data: bytes, found: Split, reading: ReadSpec) -> int:
    """The offset after the first record; the closing bracket of an array is not skipped."""
    if reading.layout == "array":
        end = len(data) - len(data[int(found.ends[0]) :].lstrip(BLANKS))
        return end if data[end : end + 1] == b"]" else end + 1
    return int(found.starts[1]) if len(found.starts) > 1 else found.used


def _whole_object(stream: Readable, position: int, tail: Tail) -> Iterator[Piece]:
    data = stream.read(RECORD_BYTES_MAX + 1)
    if len(data) > RECORD_BYTES_MAX:
        size = len(data)
        while more := stream.read(PIECE_BYTES):
            size += len(more)
        yield replace(_too_long(data, position, size), closed=True)
    elif is_json(data) or tail is Tail.TAKE:
        end = position + len(data)
        yield Piece(pa.array([data], pa.binary()), np.array([position]), end, np.array([True]), closed=True)


def _after_array(rest: bytes, position: int) -> Iterator[Piece]:
    if rest.strip(BLANKS):
        yield replace(_bad(rest, position, "text after the end of the JSON array"), closed=True)


def _too_long(beginning: bytes, position: int, size: int) -> Piece:
    """A record that is too long, of which a dead letter contains the beginning."""
    bad = _bad(beginning, position, f"a record longer than {RECORD_BYTES_MAX >> 20} MB")
    return replace(bad, end=position + size)


def _bad(data: bytes, position: int, problem: str) -> Piece:
    value = pa.array([data[:RAW_BYTES_MAX]], pa.binary())
    return Piece(value, np.array([position]), position + len(data), None, problem)


def _piece(data: bytes, found: Split, position: int, reading: ReadSpec) -> Piece:
    end = position + found.used
    if len(found.starts) == 0:
        return Piece(pa.array([], pa.binary()), np.zeros(0, np.int64), end, closed=found.closed)
    values = _values_between(data, found) if reading.layout == "array" else _values(data, found)
    if reading.layout == "csv" and _has_blank_lines(found):
        values = _lines(data, found)
    suspect = None if reading.layout == "csv" else _suspect(data, found)
    if not reading.form.is_utf8 and reading.form.byte_wise:
        values = _to_utf8(values, reading.form.encoding)
    elif not is_utf8(values):
        suspect = np.ones(len(values), bool)
    return Piece(values, found.starts + position, end, suspect, closed=found.closed)


def _values(data: bytes, found: Split) -> pa.Array:
    """The records without copying: each extends to the next one, including its line end."""
    offsets = np.append(found.starts, found.used).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(found.starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _has_blank_lines(found: Split) -> bool:
    """Whether there is more than a line end between two records or after the last: blanks there are not part of a CSV
    field."""
    behind = np.append(found.starts[1:], found.used)
    return bool((behind - found.ends > len(b"\r\n")).any())


def _lines(data: bytes, found: Split) -> pa.Array:
    """The records, each with one line end."""
    places = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    return pa.array([data[a:b] + b"\n" for a, b in places], pa.binary())


def _values_between(data: bytes, found: Split) -> pa.Array:
    """The records without the commas and blanks between them, each as one line: a newline in JSON is only between
    values and can be replaced by a space."""
    places = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    return pa.array([data[a:b].strip(BLANKS).replace(b"\n", b" ") + b"\n" for a, b in places], pa.binary())


def _suspect(data: bytes, found: Split) -> npt.NDArray[np.bool_] | None:
    """Which texts may contain more than one JSON value: a parser that stops after the first would lose the others. A
    text with one closing brace, as its last byte, cannot."""
    bytes_ = np.frombuffer(data, np.uint8)
    closing = np.flatnonzero(bytes_[: found.used] == CLOSING_BRACE)
    at_end = bytes_[found.ends - 1] == CLOSING_BRACE
    if len(closing) == len(found.starts) and at_end.all():
        return None
    count = np.searchsorted(closing, found.ends) - np.searchsorted(closing, found.starts)
    suspect: npt.NDArray[np.bool_] = ~((count == 1) & at_end)
    return suspect


def is_utf8(values: pa.Array) -> bool:
    """Whether all texts are UTF-8."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _to_utf8(values: pa.Array, encoding: str) -> pa.Array:
    """Texts of another encoding as UTF-8; one that is not valid in that encoding stays unchanged and fails later."""
    texts = []
    for value in values.to_pylist():
        try:
            texts.append(value.decode(encoding).encode())
        except UnicodeDecodeError:
            texts.append(value)
    return pa.array(texts, pa.binary())


def is_json(data: bytes) -> bool:
    """Whether the bytes are one whole JSON object."""
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False
    except RecursionError:
        # It is complete, or the parser would have failed there; whether it is valid is determined later.
        return data.rstrip(BLANKS).endswith(b"}")


class _Unzipped(gzip.GzipFile):
    """A compressed file that may be truncated: callers that need all of it check before that it is complete."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")

    def read(self, size: int | None = -1, /) -> bytes:
        found = bytearray()
        wanted = -1 if size is None else size
        while wanted < 0 or len(found) < wanted:
            try:
                more = self.read1(wanted - len(found) if wanted >= 0 else PIECE_BYTES)
            except EOFError:
                break
            except zlib.error as error:
                raise gzip.BadGzipFile(str(error)) from error
            if not more:
                break
            found += more
        return bytes(found)

    def peek(self, n: int) -> bytes:
        try:
            return super().peek(n)
        except EOFError:
            return b""
        except zlib.error as error:
            raise gzip.BadGzipFile(str(error)) from error


class _Limited:
    """The first bytes of a stream."""

    def __init__(self, stream: Readable, size: int) -> None:
        self._stream, self._left = stream, max(size, 0)

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data


class _WithNewlines:
    """A stream with newlines instead of carriage returns, so that positions stay those of the file."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        return self._stream.read(size).replace(b"\r", b"\n")


class _Transcoded:
    """A stream of another encoding, read as UTF-8."""

    def __init__(self, file: Readable, encoding: str) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder(encoding)()
        self._held, self._ended = b"", False

    def read(self, size: int, /) -> bytes:
        while len(self._held) < size and not self._ended:
            data = self._file.read(size)
            self._ended = not data
            self._held += self._decoder.decode(data, final=self._ended).replace("\ufeff", "").encode()
        found, self._held = self._held[:size], self._held[size:]
        return found


def _skip(stream: Readable, size: int) -> None:
    while size > 0 and (data := stream.read(min(size, PIECE_BYTES))):
        size -= len(data)


def _skip_bracket(stream: Readable) -> int:
    """Skip the opening bracket of an array; returns the number of bytes read."""
    read = 0
    while data := stream.read(1):
        read += 1
        if data == b"[":
            break
    return read
