"""String literals by Spark's rules: decoding the characters between the quotes, and encoding a value."""

from __future__ import annotations

import re

# `\%` and `\_` keep their backslash: they are patterns of LIKE, not characters.
_SIMPLE = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)

_WRITTEN = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\x1a": "\\Z", "\b": "\\b"}


def decode(inner: str, quote: str) -> str:
    """The value of the text between two quotes: backslash escapes, and a doubled quote for one."""
    if "\\" not in inner:
        return inner.replace(quote * 2, quote)
    parts, last = [], 0
    for found in _ESCAPE.finditer(inner):
        parts.append(inner[last : found.start()].replace(quote * 2, quote))
        parts.append(_escaped(found))
        last = found.end()
    return _paired("".join([*parts, inner[last:].replace(quote * 2, quote)]))


def encode(value: str) -> str:
    """The value as a literal in single quotes that Spark reads back as the same value."""
    return "'" + "".join(_WRITTEN.get(char, char) for char in value) + "'"


def _escaped(found: re.Match[str]) -> str:
    utf16, utf32, octal, other = found.groups()
    if utf16 or utf32:
        code = int(utf16 or utf32, 16)
        return chr(code) if code <= 0x10FFFF else "?"
    return chr(int(octal, 8)) if octal else _SIMPLE.get(other, other)


def _paired(value: str) -> str:
    # Two \\uXXXX escapes may be the halves of one character, as in Java's strings.
    if any("\ud800" <= char <= "\udfff" for char in value):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value
