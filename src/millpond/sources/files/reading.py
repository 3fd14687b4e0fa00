"""One file's records: read piece by piece from a position, each piece as Arrow columns."""

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
from millpond.sources.files.formats import FileFormat, is_compressed
from millpond.sources.files.splitting import Split, split_csv, splitter, unended

# What is held of a file at a time, unless one record is longer.
PIECE_BYTES = 8 << 20
# A longer record is a bad one: most likely a quote or bracket that is never closed.
RECORD_BYTES_MAX = 64 << 20
RAW_BYTES_MAX = 1 << 20
# By so many bytes it is decided what the lines of a file end with.
HEAD_BYTES = 1 << 16

BOM = b"\xef\xbb\xbf"
BLANKS = b" \t\r\n"
CLOSING_BRACE = 125


class Tail(Enum):
    """What to do with bytes at the end of a file that no newline follows."""

    LEAVE = "leave"  # they may be half a record: wait for its end
    COMPLETE = "complete"  # take them if they are a whole record as they stand
    TAKE = "take"  # take them as they are: nothing more will come


@dataclass(frozen=True)
class Piece:
    """Some records of a file, in order. `suspect` marks those whose text needs a closer look when it is parsed,
    `problem` says why these records cannot be read at all; `end` is where the next piece starts; `closed`: the array or
    object that they are in has ended, nothing can follow."""

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
    """What pieces are read from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""


@dataclass(frozen=True)
class Header:
    """A CSV file's column names, and where its rows start."""

    names: tuple[str, ...]
    end: int


def layout_of(path: Path, form: FileFormat) -> str | None:
    """How records lie in the file: lines, csv, array, object or parquet; None when there is nothing in it yet."""
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
    """A file's bytes, decompressed, standing at a position (behind the byte order mark at the start), and that
    position. The bytes are of the file's own encoding where newlines can be told in it, else UTF-8; a newline ends the
    lines of a CSV file that has only carriage returns. A compressed file that is cut off ends where it is cut."""
    with _Unzipped(path) if is_compressed(path) else path.open("rb") as file:
        returns = form.name == "csv" and _has_returns_alone(_transcoded(file, form).read(HEAD_BYTES))
        file.seek(0)
        stream = _transcoded(file, form)
        if not form.byte_wise:
            _skip(stream, position)
        else:
            # A compressed file can only be reached by reading up to the position; gzip does so by itself.
            file.seek(position)
            marked = position == 0 and file.peek(len(BOM)).startswith(BOM)
            position = len(file.read(len(BOM))) if marked else position
        yield _WithNewlines(stream) if returns else stream, position


def _transcoded(file: Readable, form: FileFormat) -> Readable:
    return file if form.byte_wise else _Transcoded(file, form.encoding)


def _has_returns_alone(head: bytes) -> bool:
    """Whether lines end with a carriage return, as old programs write them. One at the very end may have its newline
    still to come."""
    return b"\n" not in head and b"\r" in head[:-1]


def read_header(path: Path, form: FileFormat, tail: Tail) -> Header | None:
    """The names in a CSV file's first row; None while that row has no end."""
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
        message = f"The header of '{path}' cannot be read: {error}."
        raise SourceError("MP502", message, hint="Is it a CSV file? Its first row must name the columns.") from error


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
class Reading:
    """How a file is to be read: its layout, from which position (where a record starts), what to do with its tail.
    `width` is the number of fields of a CSV row, for telling a whole row from half of one; `end` is where to stop, or
    reading would never end while another process writes faster."""

    form: FileFormat
    layout: str
    start: int
    tail: Tail
    width: int | None = None
    end: int | None = None


def pieces(path: Path, reading: Reading) -> Iterator[Piece]:
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


def _split_pieces(stream: Readable, position: int, reading: Reading) -> Iterator[Piece]:
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


def _last(held: bytes, position: int, reading: Reading) -> Iterator[Piece]:
    """The record at the end of a file that has no end itself, as far as the rule for tails lets it be taken."""
    if reading.layout == "array":
        if reading.tail is Tail.TAKE:
            yield _bad(held, position, "the JSON array has no end")
        return
    whole = _is_whole(held, reading)
    if whole and reading.tail is not Tail.LEAVE:
        yield _piece(held, Split(np.array([0]), np.array([len(held)]), len(held)), position, reading)
    elif reading.tail is Tail.TAKE:
        if reading.layout == "csv" and split_csv(held + b"\n", reading.form).used == 0:
            yield _bad(held, position, "a quote is never closed")
        else:
            yield _piece(held, Split(np.array([0]), np.array([len(held)]), len(held)), position, reading)


def _is_whole(held: bytes, reading: Reading) -> bool:
    """Whether what stands at the end of a file is a whole record: JSON that parses, a CSV row with all its fields."""
    if reading.layout != "csv":
        return is_json(held)
    if split_csv(held + b"\n", reading.form).used == 0:
        return False
    try:
        return reading.width is None or len(fields(held, reading.form)) == reading.width
    except (UnicodeDecodeError, csv.Error):
        return False


def _skip_record(stream: Readable, held: bytes, reading: Reading) -> tuple[bytes | None, int]:
    """Read on to the end of a record of which `held` is the beginning: what was read behind it, None when it has no
    end, and how many bytes the record has."""
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


def _behind_first(data: bytes, found: Split, reading: Reading) -> int:
    """Where what follows the first record begins; the bracket that ends an array is still to be seen."""
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
    """A record of so many bytes, of which a dead letter keeps the beginning."""
    bad = _bad(beginning, position, f"a record longer than {RECORD_BYTES_MAX >> 20} MB")
    return replace(bad, end=position + size)


def _bad(data: bytes, position: int, problem: str) -> Piece:
    value = pa.array([data[:RAW_BYTES_MAX]], pa.binary())
    return Piece(value, np.array([position]), position + len(data), None, problem)


def _piece(data: bytes, found: Split, position: int, reading: Reading) -> Piece:
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
    """The records without copying: each runs on to the next, its line end still on it."""
    offsets = np.append(found.starts, found.used).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(found.starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _has_blank_lines(found: Split) -> bool:
    """Whether more than a line end stands between two records, or behind the last: blanks there are no part of a CSV
    field."""
    behind = np.append(found.starts[1:], found.used)
    return bool((behind - found.ends > len(b"\r\n")).any())


def _lines(data: bytes, found: Split) -> pa.Array:
    """The records alone, each with one line end."""
    places = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    return pa.array([data[a:b] + b"\n" for a, b in places], pa.binary())


def _values_between(data: bytes, found: Split) -> pa.Array:
    """The records without the commas and blanks between them, each a line of its own: a newline in JSON stands between
    values only and may as well be a space."""
    places = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    return pa.array([data[a:b].strip(BLANKS).replace(b"\n", b" ") + b"\n" for a, b in places], pa.binary())


def _suspect(data: bytes, found: Split) -> npt.NDArray[np.bool_] | None:
    """Which texts may hold more than one JSON value: a parser that stops after the first would lose the others.
    A text with one closing brace, as its last byte, cannot."""
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
    """Texts of another encoding as UTF-8; one that is not in that encoding stays as it is and fails as UTF-8 does."""
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
        # It has an end, or the parser would have complained of that; whether it can be read is found out later.
        return data.rstrip(BLANKS).endswith(b"}")


class _Unzipped(gzip.GzipFile):
    """A compressed file as far as it goes: whoever needs all of it asks before whether it is whole."""

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
    """A stream with newlines in place of carriage returns, byte for byte, so that positions are those of the file."""

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
    """Read past the bracket that opens an array; returns the bytes read."""
    read = 0
    while data := stream.read(1):
        read += 1
        if data == b"[":
            break
    return read
