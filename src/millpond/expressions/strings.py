"""Functions of text, counted in code points as Spark does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.arrays import concat_ws, joined_lists
from millpond.expressions.coercion import BIGINT, BOOLEAN, INT, STRING, is_list
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import Datum, Frame, Node
from millpond.expressions.nested_rules import concat_ws_rule
from millpond.expressions.rules import concat_rule, length_rule, reverse_rule
from millpond.expressions.signatures import (
    Function,
    Functions,
    Kernel,
    Run,
    Site,
    SpecialForm,
    elementwise,
    on_arrays,
    simple,
    takes,
)

REPEATED_BYTES_MAX = 1 << 26


# Letters whose other case is the same in every Unicode version from 14 to 17: lower-case sigma has two forms, and two
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
    """UPPER and LOWER; Arrow maps one letter to one letter, but the capital of \u00df is SS."""
    slow = elementwise(lambda text: change(_settled(text)), STRING)

    def run(array: pa.Array) -> pa.Array:
        # `all` of only NULLs is NULL.
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
    if is_list(site.gives):
        return elementwise(joined_lists, site.gives)
    if site.gives != STRING:
        raise NotCompilable("concatenation of binaries")
    separator = pa.scalar("", STRING)
    return lambda *texts: pc.binary_join_element_wise(*texts, separator) if texts else separator


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
    """LOCATE; without a start it is NULL for NULL, with a start that is NULL it is 0."""
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


def _substring_index(text: str, delimiter: str, count: int) -> str:
    """Occurrences may overlap, because Spark searches for the next one from the next character."""
    if not delimiter or count == 0:
        return ""
    if count > 0:
        place = -1
        for _ in range(count):
            place = text.find(delimiter, place + 1)
            if place < 0:
                return text
        return text[:place]
    place = len(text) - len(delimiter) + 1
    for _ in range(-count):
        place = text.rfind(delimiter, 0, max(place - 1, 0) + len(delimiter)) if place > 0 else -1
        if place < 0:
            return text
    return text[place + len(delimiter) :]


def _overlay(text: str, part: str, start: int, length: int = -1) -> str:
    if not 0 < start < REPEATED_BYTES_MAX:
        raise NotCompilable("OVERLAY from a position before the start")
    replaced = length if length >= 0 else len(part)
    return _substring(text, 1, start - 1) + part + _substring(text, start + replaced)


def _translate(text: str, characters: str, others: str) -> str:
    table: dict[int, str | None] = {}
    for place, character in enumerate(characters):
        other = others[place] if place < len(others) else None
        table.setdefault(ord(character), None if other == "\0" else other)
    return text.translate(table)


def _chr(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def _find_in_set(word: str, words: str) -> int:
    parts = words.split(",")
    return parts.index(word) + 1 if word in parts else 0


def _levenshtein(left: str, right: str) -> int:
    costs = list(range(len(right) + 1))
    for row, one in enumerate(left, 1):
        diagonal, costs[0] = costs[0], row
        for column, other in enumerate(right, 1):
            change = diagonal + (one != other)
            diagonal = costs[column]
            costs[column] = min(change, diagonal + 1, costs[column - 1] + 1)
    return costs[-1]


def _bytes(value: Datum) -> Datum:
    return pc.cast(pc.binary_length(value), INT)


def _found(by_arrow: Run, by_python: Callable[[str, str], bool]) -> Kernel:
    slow = elementwise(by_python, BOOLEAN)

    def run(text: Datum, searched: Datum) -> Datum:
        if isinstance(searched, pa.Scalar) and searched.is_valid:
            return by_arrow(text, searched.as_py())
        return slow(text, searched)

    return simple(run)


_TEXT = takes(STRING, STRING)
_TRIM = takes(STRING, STRING, STRING, optional=1)
_COUNTED = takes(STRING, STRING, INT)
_PADDED = takes(STRING, STRING, INT, STRING, optional=1)
_SEARCH = takes(BOOLEAN, STRING, STRING)


def _uuid(_: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    return lambda frame: pa.array([str(uuid4()) for _ in range(frame.length)], STRING)


FUNCTIONS: Functions = {
    "uuid": takes(STRING).by(SpecialForm(_uuid), "a new random UUID for each row"),
    "upper": _TEXT.by(_cased(pc.ascii_upper, str.upper), "the text in upper case"),
    "lower": _TEXT.by(_cased(pc.ascii_lower, str.lower), "the text in lower case"),
    "initcap": _TEXT.by_rows(_initcap, "each word with an upper-case first letter"),
    "length": Function(length_rule, INT).by(Kernel(_length), "the number of characters, or of bytes of a binary"),
    "trim": _TRIM.by(_trim(pc.utf8_trim, str.strip), "without blanks, or the given characters, at both ends"),
    "ltrim": _TRIM.by(_trim(pc.utf8_ltrim, str.lstrip), "without blanks, or the given characters, at the start"),
    "rtrim": _TRIM.by(_trim(pc.utf8_rtrim, str.rstrip), "without blanks, or the given characters, at the end"),
    "reverse": Function(reverse_rule).by_rows(lambda value: value[::-1], "a text or an array in reverse order"),
    "concat": Function(concat_rule).by(Kernel(_concat, lazy=False), "concatenated texts or arrays"),
    "concat_ws": Function(concat_ws_rule, STRING).by_columns(
        concat_ws, "texts and arrays of texts with a separator; NULLs are skipped", lazy=False
    ),
    "substring": takes(STRING, STRING, INT, INT, optional=1).by(Kernel(_slice), "a part of a text, counted from 1"),
    "left": _COUNTED.by_rows(_left, "the first characters"),
    "right": _COUNTED.by_rows(_right, "the last characters"),
    "repeat": _COUNTED.by_rows(_repeat, "the repeated text"),
    "replace": takes(STRING, STRING, STRING, STRING, optional=1).by_rows(_replace, "every occurrence replaced"),
    "lpad": _PADDED.by_rows(_lpad, "padded at the start, or truncated, to a length"),
    "rpad": _PADDED.by_rows(_rpad, "padded at the end, or truncated, to a length"),
    "locate": takes(INT, STRING, STRING, INT, optional=1).by_columns(
        _located, "the position of a text in another, from 1; 0 if it is not found", lazy=False
    ),
    "split_part": takes(STRING, STRING, STRING, INT).by_rows(
        _split_part, "one part of a text split at a delimiter, from 1 or from the end", fallible=True
    ),
    "startswith": _SEARCH.by(_found(pc.starts_with, str.startswith), "whether a text begins with another"),
    "endswith": _SEARCH.by(_found(pc.ends_with, str.endswith), "whether a text ends with another"),
    "contains": _SEARCH.by(
        _found(pc.match_substring, lambda text, searched: searched in text), "whether a text contains another"
    ),
    "substring_index": takes(STRING, STRING, STRING, INT).by_rows(
        _substring_index, "the text before the n-th delimiter, or after the n-th from the end"
    ),
    "overlay": takes(STRING, STRING, STRING, INT, INT, optional=1).by_rows(_overlay, "a part of a text replaced"),
    "translate": takes(STRING, STRING, STRING, STRING).by_rows(_translate, "single characters replaced or removed"),
    "space": takes(STRING, INT).by_rows(lambda count: _repeat(" ", count), "a number of blanks"),
    "ascii": takes(INT, STRING).by_rows(lambda text: ord(text[0]) if text else 0, "the code of the first character"),
    "chr": takes(STRING, BIGINT).by_rows(_chr, "the character of a code"),
    "find_in_set": takes(INT, STRING, STRING).by_rows(
        _find_in_set, "the position of a word in a comma-separated list, or 0"
    ),
    "levenshtein": takes(INT, STRING, STRING).by_rows(_levenshtein, "the number of edits between two texts"),
    "octet_length": Function(length_rule, INT).by_columns(_bytes, "the number of bytes"),
    "bit_length": Function(length_rule, INT).by_columns(
        lambda value: pc.multiply(_bytes(value), pa.scalar(8, INT)), "the number of bits"
    ),
}
