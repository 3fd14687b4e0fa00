"""A text of several statements: where each ends, without reading what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass

# A string, a quoted name or a comment, in which a semicolon ends nothing; or one that ends the statement.
_PIECES = re.compile(
    r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|(?P<open>['\"`]|/\*)|(?P<end>;)", re.S
)
_LEADING_COMMENTS = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.S)


@dataclass(frozen=True)
class Portion:
    """A statement, and where in the text it begins."""

    text: str
    start: int


def split_statements(text: str) -> tuple[list[Portion], str]:
    """The statements that a semicolon ends, and the rest, which is empty if it has only comments."""
    found, start = [], 0
    for piece in _PIECES.finditer(text):
        if piece["open"]:
            break
        if piece["end"]:
            found.append(_portion(text, start, piece.start()))
            start = piece.end()
    rest = text[start:].strip()
    return [portion for portion in found if first_word(portion.text)], rest if first_word(rest) else ""


def _portion(text: str, start: int, end: int) -> Portion:
    inside = text[start:end]
    return Portion(inside.strip(), start + len(inside) - len(inside.lstrip()))


def first_word(statement: str) -> str:
    """The first word after comments, in upper case; empty if there is none."""
    return (_LEADING_COMMENTS.sub("", statement, count=1).split(None, 1) or [""])[0].upper()


def outside_strings(text: str, pattern: re.Pattern[str], replacement: str | None = None) -> str:
    """The text with what matches a pattern replaced, but not in strings, quoted names and comments; by spaces of the
    same length if there is no replacement."""
    made, start = [], 0
    for piece in _PIECES.finditer(text):
        if not piece["end"] and not piece["open"]:
            made += [_replaced(text[start : piece.start()], pattern, replacement), piece[0]]
            start = piece.end()
    return "".join([*made, _replaced(text[start:], pattern, replacement)])


def _replaced(text: str, pattern: re.Pattern[str], replacement: str | None) -> str:
    return pattern.sub(lambda found: (replacement or "").ljust(len(found[0])), text)
