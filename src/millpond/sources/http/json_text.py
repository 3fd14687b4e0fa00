"""JSON text in bounded memory: whether it is whole, and where a value is in it. Nothing is parsed into objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from mmap import mmap
from typing import Any

Text = bytes | mmap

BLANK = re.compile(rb"[ \t\r\n]*+")
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# Up to the next bracket, past whole strings; the brackets in them do not count.
TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{}])', re.DOTALL)
SCALAR = re.compile(rb"[^,\]}\s]++")
OPENING, CLOSING = (b"[", b"{"), (b"]", b"}")
BOM = b"\xef\xbb\xbf"


class NotJson(ValueError):
    """The text is not JSON, or is cut off."""


def start_of(text: Text) -> int:
    """Where the first value begins."""
    return skip_blank(text, len(BOM) if text[: len(BOM)] == BOM else 0)


def skip_blank(text: Text, at: int) -> int:
    found = BLANK.match(text, at)
    return at if found is None else found.end()


def end_of_value(text: Text, at: int) -> int:
    """The offset behind the value that begins here; NotJson if it has no end."""
    first = text[at : at + 1]
    if first in OPENING:
        return _end_of_brackets(text, at)
    found = STRING.match(text, at) if first == b'"' else SCALAR.match(text, at)
    if found is None:
        raise NotJson(f"there is no value at byte {at:,}")
    if first != b'"':
        try:
            json.loads(found[0])
        except ValueError as error:
            raise NotJson(f"there is no value at byte {at:,}") from error
    return found.end()


def _end_of_brackets(text: Text, at: int) -> int:
    depth, opened = 0, bytearray()
    while True:
        found = TO_BRACKET.match(text, at)
        if found is None:
            raise NotJson(f"it ends within {depth} open brackets" if depth else "it has no value")
        bracket, at = found[1], found.end()
        if bracket in OPENING:
            opened += bracket
            depth += 1
            continue
        depth -= 1
        if (opened.pop(), bracket[0]) not in ((91, 93), (123, 125)):
            raise NotJson(f"a bracket at byte {at - 1:,} closes one of another kind")
        if depth == 0:
            return at


def values_of(text: Text) -> Iterator[tuple[int, int]]:
    """Where each value is that follows the one before: one of JSON, several of JSON lines."""
    at = start_of(text)
    while at < len(text):
        end = end_of_value(text, at)
        yield at, end
        at = skip_blank(text, end)


def locate(text: Text, path: Sequence[str]) -> tuple[int, int] | None:
    """Where the value of a path is; None if it is absent. A number is the index of an element."""
    at = start_of(text)
    for name in path:
        first = text[at : at + 1]
        if first == b"{":
            found = _member(text, at, name)
        elif first == b"[" and name.isdigit():
            found = _element(text, at, int(name))
        else:
            found = None
        if found is None:
            return None
        at = found
    return at, end_of_value(text, at)


def _member(text: Text, at: int, name: str) -> int | None:
    """Where the value of a name begins in the object that begins here."""
    at = skip_blank(text, at + 1)
    while text[at : at + 1] != b"}":
        key = STRING.match(text, at)
        colon = skip_blank(text, key.end()) if key is not None else at
        if key is None or text[colon : colon + 1] != b":":
            raise NotJson(f"there is no name at byte {at:,}")
        at = skip_blank(text, colon + 1)
        if _text(key[0]) == name:
            return at
        at = _behind_comma(text, end_of_value(text, at), b"}")
    return None


def _element(text: Text, at: int, index: int) -> int | None:
    at = skip_blank(text, at + 1)
    while text[at : at + 1] != b"]":
        if index == 0:
            return at
        index -= 1
        at = _behind_comma(text, end_of_value(text, at), b"]")
    return None


def _behind_comma(text: Text, at: int, closing: bytes) -> int:
    at = skip_blank(text, at)
    if text[at : at + 1] == b",":
        return skip_blank(text, at + 1)
    if text[at : at + 1] != closing:
        raise NotJson(f"there is no comma at byte {at:,}")
    return at


def _text(quoted: bytes) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError as error:
        raise NotJson("a name is not text in UTF-8") from error


def value_at(text: Text, place: tuple[int, int]) -> Any:
    """The value at a place, which should be small."""
    try:
        return json.loads(text[place[0] : place[1]])
    except ValueError as error:
        raise NotJson(f"there is no value at byte {place[0]:,}") from error
