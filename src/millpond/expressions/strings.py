"""Functions of text, counted in code points as Spark does."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import BOOLEAN, INT, STRING
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import Datum
from millpond.expressions.kernels import Kernel, Run, Site, elementwise, on_arrays, simple
from millpond.expressions.patterns import like, rlike

PATTERNS_MAX = 256
REPEATED_BYTES_MAX = 1 << 26


# Letters whose other case is the same in every Unicode version from 14 to 17: the small sigma has two forms, and two
# letters got a capital later.
_SETTLED = re.compile("[^\u019b\u0264\u03a3\u1c80-\u1dff\ua640-\uabff\ue000-\U0001efff\U0001fb00-\U0010ffff]*")


def has_settled_case(text: str) -> bool:
    """Whether Java and Python, each with its own Unicode, agree on the other case of all letters."""
    return _SETTLED.fullmatch(text) is not None


def _settled(text: str) -> str:
    if not has_settled_case(text):
        raise NotCompilable("letters whose case depends on the version of Unicode")
    return text


def _cased(for_ascii: Run, change: Callable[[str], str]) -> Kernel:
    """UPPER and LOWER; Arrow's own have one letter for one, but the capital of \u00df is SS."""
    slow = elementwise(lambda text: change(_settled(text)), STRING)

    def run(array: pa.Array) -> pa.Array:
        # Of nothing but NULLs, `all` says NULL.
        return for_ascii(array) if pc.all(pc.string_is_ascii(array)).as_py() is not False else slow(array)

    return Kernel(lambda _: on_arrays(run))


def _length(site: Site) -> Run:
    count = pc.binary_length if site.takes[0] == pa.binary() else pc.utf8_length
    return lambda value: pc.cast(count(value), INT)


def _trim(both: Run, python: Callable[[str, str], str]) -> Kernel:
    def make(site: Site) -> Run:
        if len(site.takes) == 1:
            return lambda value: both(value, " ")
        return elementwise(lambda text, characters: python(text, characters) if characters else text, STRING)

    return Kernel(make)


def _concat(site: Site) -> Run:
    if site.gives != STRING:
        raise NotCompilable("concatenation of binaries")
    separator = pa.scalar("", STRING)
    return lambda *texts: pc.binary_join_element_wise(*texts, separator) if texts else separator


def _concat_ws(separator: Datum, *texts: Datum) -> Datum:
    """CONCAT_WS; Arrow's own loses rows when all texts of a row are NULL."""
    arguments = (separator, *texts)
    lengths = [len(a) for a in arguments if isinstance(a, pa.Array)]
    length = lengths[0] if lengths else 1
    columns = [a.to_pylist() if isinstance(a, pa.Array) else [a.as_py()] * length for a in arguments]
    found = [
        None if between is None else between.join(text for text in row if text is not None)
        for between, *row in zip(*columns, strict=True)
    ]
    return pa.array(found, STRING) if lengths else pa.scalar(found[0], STRING)


def _substring(text: str, start: int, length: int = 2**31 - 1) -> str:
    begin = start - 1 if start > 0 else (len(text) + start if start < 0 else 0)
    end = begin + length
    return text[max(begin, 0) : max(end, 0)] if end > begin else ""


def _slice(site: Site) -> Run:
    """SUBSTRING; by Arrow when it counts from the front by literals."""
    slow = elementwise(_substring, STRING)
    places = site.constants[1:]
    if any(place is None or not place.is_valid for place in places):
        return slow
    start = places[0].as_py()
    length = places[1].as_py() if len(places) == 2 else None
    if start < 1 or (length is not None and not 0 < length < REPEATED_BYTES_MAX):
        return slow
    stop = None if length is None else start - 1 + length
    return lambda text, *_: pc.utf8_slice_codeunits(text, start - 1, stop)


def _left(text: str, length: int) -> str:
    return text[: max(0, length)]


def _right(text: str, length: int) -> str:
    return text[-length:] if length > 0 else ""


def _replace(text: str, search: str, replacement: str = "") -> str:
    return text.replace(search, replacement) if search else text


def _padding(length: int, have: int, fill: str) -> str:
    missing = length - have
    if missing * 4 > REPEATED_BYTES_MAX:
        raise NotCompilable("a very long padding")
    return (fill * (missing // len(fill) + 1))[:missing] if fill and missing > 0 else ""


def _lpad(text: str, length: int, fill: str = " ") -> str:
    return _padding(length, len(text), fill) + text[: max(0, length)]


def _rpad(text: str, length: int, fill: str = " ") -> str:
    return text[: max(0, length)] + _padding(length, len(text), fill)


def _repeat(text: str, times: int) -> str:
    if len(text) * max(times, 0) * 4 > REPEATED_BYTES_MAX:
        raise NotCompilable("a very long repetition")
    return text * max(times, 0)


def _locate(searched: str, text: str, start: int = 1) -> int:
    if start < 1:
        return 0
    return text.find(searched, start - 1) + 1 if searched else 1


_found_at = elementwise(_locate, INT)


def _located(searched: Datum, text: Datum, *start: Datum) -> Datum:
    """LOCATE; without a start it is NULL for a NULL, and 0 for a start that is NULL."""
    found = _found_at(searched, text, *start)
    return pc.if_else(pc.is_null(start[0]), pa.scalar(0, INT), found) if start else found


def _initcap(text: str) -> str:
    return " ".join(word[:1].title() + word[1:].lower() for word in _settled(text).split(" "))


def _split_part(text: str, delimiter: str, place: int) -> str:
    if place == 0:
        raise RowError("the part of SPLIT_PART is 0")
    parts = text.split(delimiter) if delimiter else [text]
    index = place - 1 if place > 0 else len(parts) + place
    return parts[index] if 0 <= index < len(parts) else ""


def _rows(function: Callable[..., Any], type_: pa.DataType, *, fallible: bool = False) -> Kernel:
    return Kernel(lambda _: elementwise(function, type_), fallible=fallible)


_like = lru_cache(PATTERNS_MAX)(like)
_rlike = lru_cache(PATTERNS_MAX)(rlike)


def _by_pattern(translate: Callable[..., str]) -> Kernel:
    """A match against a pattern; one pattern for all rows is one regular expression."""

    def match(text: Datum, pattern: Datum, escape: pa.Scalar | None) -> Datum:
        nothing = text.null_count == len(text) if isinstance(text, pa.Array) else not text.is_valid
        if nothing or not pattern.is_valid:
            return pa.nulls(len(text), BOOLEAN) if isinstance(text, pa.Array) else pa.scalar(None, BOOLEAN)
        mark = () if escape is None else (escape.as_py(),)
        try:
            return pc.match_substring_regex(text, translate(pattern.as_py(), *mark))
        except pa.ArrowInvalid as error:
            raise NotCompilable("a regular expression that Arrow does not read") from error

    def run(text: Datum, pattern: Datum, escape: pa.Scalar | None = None) -> Datum:
        if isinstance(pattern, pa.Scalar):
            return match(text, pattern, escape)
        texts = text if isinstance(text, pa.Array) else pa.repeat(text, len(pattern))
        pairs = zip(texts, pattern, strict=True)
        return pa.array([match(one, wanted, escape).as_py() for one, wanted in pairs], BOOLEAN)

    return Kernel(lambda site: _constant_escape(site, run), fallible=True)


def _constant_escape(site: Site, run: Run) -> Run:
    if len(site.takes) == 3:
        site.constant(2)
    return run


def _found(by_arrow: Run, by_python: Callable[[str, str], bool]) -> Kernel:
    slow = elementwise(by_python, BOOLEAN)

    def run(text: Datum, searched: Datum) -> Datum:
        if isinstance(searched, pa.Scalar) and searched.is_valid:
            return by_arrow(text, searched.as_py())
        return slow(text, searched)

    return simple(run)


KERNELS: dict[str, Any] = {
    "upper": _cased(pc.ascii_upper, str.upper),
    "lower": _cased(pc.ascii_lower, str.lower),
    "initcap": _rows(_initcap, STRING),
    "length": Kernel(_length),
    "trim": _trim(pc.utf8_trim, str.strip),
    "ltrim": _trim(pc.utf8_ltrim, str.lstrip),
    "rtrim": _trim(pc.utf8_rtrim, str.rstrip),
    "concat": Kernel(_concat, lazy=False),
    "concat_ws": Kernel(lambda _: _concat_ws, lazy=False),
    "substring": Kernel(_slice),
    "left": _rows(_left, STRING),
    "right": _rows(_right, STRING),
    "replace": _rows(_replace, STRING),
    "lpad": _rows(_lpad, STRING),
    "rpad": _rows(_rpad, STRING),
    "repeat": _rows(_repeat, STRING),
    "reverse": _rows(lambda text: text[::-1], STRING),
    "locate": Kernel(lambda _: _located, lazy=False),
    "split_part": _rows(_split_part, STRING, fallible=True),
    "startswith": _found(pc.starts_with, str.startswith),
    "endswith": _found(pc.ends_with, str.endswith),
    "contains": _found(pc.match_substring, lambda text, searched: searched in text),
    "like": _by_pattern(_like),
    "rlike": _by_pattern(_rlike),
}
