"""Record boundaries: where each line, CSV row or array element starts and ends, found without a loop per line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.sources.records.formats import FileFormat

NEWLINE, RETURN, COMMA, BACKSLASH, JSON_QUOTE = 10, 13, 44, 92, 34
OPENING, CLOSING = (123, 91), (125, 93)
_BLANK = np.zeros(256, bool)
_BLANK[[9, 10, 13, 32]] = True

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """The complete records of some bytes: their starts and ends, and the number of bytes up to the end of the last one.
    `closed`: the array that contains them has ended."""

    starts: Offsets
    ends: Offsets
    used: int
    closed: bool = False


Splitter = Callable[[bytes], Split]


def splitter(layout: str, form: FileFormat) -> Splitter:
    """The function that splits bytes of this layout; they must start at a record."""
    if layout == "csv":
        return lambda data: split_csv(data, form)
    return split_elements if layout == "array" else split_lines


def split_lines(data: bytes) -> Split:
    """Complete lines, without line ends and without blank lines."""
    return _between(data, _newlines(np.frombuffer(data, np.uint8)))


def split_csv(data: bytes, form: FileFormat) -> Split:
    """Complete CSV rows; a newline inside quotes belongs to the row."""
    delimiter, quote, escape = (form.encoded(text) for text in (form.delimiter, form.quote, form.escape))
    if not quote or quote not in data:
        return split_lines(data)
    bytes_ = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(bytes_ == quote[0])
    plain = len(quote) == 1 and (escape in (quote, b"") or escape not in data)
    if not plain or not _quotes_pair_up(bytes_, quotes, delimiter[-1]):
        return _between(data, _row_ends_one_by_one(data, _row_pattern(delimiter, quote, escape)))
    newlines = _newlines(bytes_)
    outside = np.searchsorted(quotes, newlines) % 2 == 0
    return _between(data, newlines[outside])


def split_elements(data: bytes) -> Split:
    """The complete elements of a JSON array; `data` starts after the opening bracket or after a comma."""
    bytes_ = np.frombuffer(data, np.uint8)
    code = _outside_strings(bytes_)
    depth = np.cumsum(np.isin(bytes_, OPENING) & code, dtype=np.int32)
    depth -= np.cumsum(np.isin(bytes_, CLOSING) & code, dtype=np.int32)
    closing = np.flatnonzero(depth < 0)
    last = int(closing[0]) if len(closing) else None
    commas = np.flatnonzero((bytes_ == COMMA) & code & (depth == 0))
    if last is not None:
        commas = np.append(commas[commas < last], last)
    split = _between(data, commas)
    return Split(split.starts, split.ends, split.used, closed=last is not None)


def unended(data: bytes, layout: str, form: FileFormat) -> bytes:
    """A short text in the same parser state as the incomplete record `data`: inside or outside of quotes and, in an
    array, in as many brackets. What follows `data` continues it in the same way."""
    if layout == "lines":
        return b"-"
    if layout == "array":
        bytes_ = np.frombuffer(data, np.uint8)
        code = _outside_strings(bytes_)
        depth = int((np.isin(bytes_, OPENING) & code).sum()) - int((np.isin(bytes_, CLOSING) & code).sum())
        # A byte other than a quote is outside of quotes if the text up to it is.
        in_text = not _outside_strings(np.append(bytes_, NEWLINE))[-1]
        return b"[" * depth + (b'"' + _last_of(data, b"\\") if in_text else b"-")
    delimiter, quote, escape = (form.encoded(text) for text in (form.delimiter, form.quote, form.escape))
    # The meaning of quotes and escapes at the end depends on what follows, so they are kept.
    before = data.rstrip(quote + escape)
    last = _shortened(data[len(before) :])
    if quote and split_csv(before + b"\n", form).used == 0:
        return quote + b"-" + last
    return b"-" + (delimiter if before.endswith(delimiter) else b"") + last


def _last_of(data: bytes, mark: bytes) -> bytes:
    """The mark if `data` ends in an odd number of them, because two cancel each other."""
    return mark * ((len(data) - len(data.rstrip(mark))) % 2)


def _shortened(marks: bytes) -> bytes:
    """A run of one byte, of which two cancel each other, shortened."""
    alike = len(set(marks)) == 1
    return marks[: 2 + len(marks) % 2] if alike else marks


def are_single_objects(data: bytes, offsets: npt.NDArray[np.int32]) -> bool:
    """Whether each of the records that start at `offsets` (the last is the end) is one JSON object and nothing else.
    A record with one closing brace, as its last byte, is; where there are more, brackets are counted."""
    bytes_ = np.frombuffer(data, np.uint8)
    if len(offsets) < 2 or not (bytes_[offsets[:-1]] == OPENING[0]).all():
        return False
    last = _last_bytes(bytes_, offsets)
    closing = np.flatnonzero(bytes_ == CLOSING[0])
    if len(closing) == len(last) and np.array_equal(closing, last):
        return True
    code = _outside_strings(bytes_)
    depth = np.cumsum(np.isin(bytes_, OPENING) & code, dtype=np.int32)
    depth -= np.cumsum(np.isin(bytes_, CLOSING) & code, dtype=np.int32)
    ends = np.flatnonzero((depth == 0) & np.isin(bytes_, CLOSING) & code)
    return np.array_equal(ends, last) and bool((depth >= 0).all())


def _last_bytes(bytes_: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> Offsets:
    """The last byte of each record, without its line end."""
    last = offsets[1:].astype(np.int64) - 1
    for _ in range(2):
        last = np.where((last > offsets[:-1]) & _BLANK[bytes_[last]], last - 1, last)
    return last


def quotes_close_fields(data: bytes, form: FileFormat) -> bool:
    """Whether every quote opens a field, closes it or is doubled inside one, so that all CSV parsers agree."""
    delimiter, quote, escape = (form.encoded(text) for text in (form.delimiter, form.quote, form.escape))
    if not quote or quote not in data:
        return True
    if escape != quote and escape and escape in data:
        return False
    bytes_ = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(bytes_ == quote[0])
    if len(quotes) % 2 or not _quotes_pair_up(bytes_, quotes, delimiter[-1]):
        return False
    closing = quotes[1::2]
    behind = bytes_[np.minimum(closing + 1, len(data) - 1)]
    enders = (delimiter[0], NEWLINE, RETURN, quote[0])
    return bool((np.isin(behind, enders) | (closing == len(data) - 1)).all())


def _newlines(bytes_: npt.NDArray[np.uint8]) -> Offsets:
    return np.flatnonzero(bytes_ == NEWLINE)


def _between(data: bytes, ends: Offsets) -> Split:
    """The records that end before each of `ends`, stripped of blanks, without empty ones."""
    if len(ends) == 0:
        empty = np.zeros(0, np.int64)
        return Split(empty, empty, 0)
    bytes_ = np.frombuffer(data, np.uint8)
    starts = np.empty(len(ends), np.int64)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    used = int(ends[-1]) + 1
    stops = np.where((ends > starts) & (bytes_[ends - 1] == RETURN), ends - 1, ends)
    # Only a record that starts with a blank can be blank; there are few of them.
    doubtful = np.flatnonzero((stops == starts) | _BLANK[bytes_[np.minimum(starts, len(data) - 1)]])
    keep = np.ones(len(ends), bool)
    for row in doubtful:
        keep[row] = bool(data[starts[row] : stops[row]].strip(b" \t\r\n"))
    return Split(starts[keep], stops[keep], used)


def _quotes_pair_up(bytes_: npt.NDArray[np.uint8], quotes: Offsets, delimiter: int) -> bool:
    """Whether every second quote opens a field or follows the one that closed it, so that counting quotes is enough."""
    opening = quotes[::2]
    before = bytes_[np.maximum(opening - 1, 0)]
    quote = bytes_[quotes[0]]
    fits = (opening == 0) | (before == delimiter) | (before == NEWLINE) | (before == quote)
    return bool(fits.all())


def _row_ends_one_by_one(data: bytes, pattern: re.Pattern[bytes]) -> Offsets:
    """The ends of rows if quotes are also inside unquoted fields or escaped: parsed field by field. A quote that opens
    a field and is never closed leaves the rest of the data incomplete."""
    ends: list[int] = []
    at = 0
    while True:
        found = pattern.match(data, at)
        if found is None:
            return np.array(ends, np.int64)
        at = found.end()
        ends.append(at - 1)


def _row_pattern(delimiter: bytes, quote: bytes, escape: bytes) -> re.Pattern[bytes]:
    d, q, e = map(re.escape, (delimiter, quote, escape))
    inside = rb"(?:(?!" + q + rb").|" + q + q + rb")*+"
    if escape and escape != quote:
        inside = rb"(?:" + e + rb".|(?!" + q + rb").|" + q + q + rb")*+"
    other = rb"(?:(?!" + d + rb")[^\n])*+"
    field = rb"(?:" + q + inside + q + other + rb"|(?!" + q + rb")" + other + rb")"
    return re.compile(field + rb"(?:" + d + field + rb")*+\n", re.DOTALL)


def _outside_strings(bytes_: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which bytes of JSON text are outside of strings."""
    quotes = np.flatnonzero(bytes_ == JSON_QUOTE)
    escaped = quotes[(quotes > 0) & (bytes_[np.maximum(quotes - 1, 0)] == BACKSLASH)]
    unreal = [at for at in escaped if _backslashes_before(bytes_, int(at)) % 2]
    marks = np.zeros(len(bytes_), np.int8)
    marks[np.setdiff1d(quotes, np.array(unreal, np.int64), assume_unique=True)] = 1
    inside = np.cumsum(marks, dtype=np.int64) % 2
    outside: npt.NDArray[np.bool_] = (inside == 0) & (marks == 0)
    return outside


def _backslashes_before(bytes_: npt.NDArray[np.uint8], at: int) -> int:
    first = at
    while first > 0 and bytes_[first - 1] == BACKSLASH:
        first -= 1
    return at - first
