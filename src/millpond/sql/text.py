"""The text of a SQL file with its variables, the code that the parser reads, and how offsets map between the two."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from millpond.errors import Place, SqlError
from millpond.redact import mask

_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_.]*)(?::-(?P<default>[^}]*))?\}")


@dataclass(frozen=True)
class Variable:
    """A reference to a variable: its offsets, and its value, or None if it has none."""

    name: str
    start: int
    end: int
    value: str | None


def variable_at(text: str, offset: int, values: Mapping[str, str]) -> Variable | None:
    """The variable that starts at `offset`, if one does."""
    found = _REFERENCE.match(text, offset)
    if not found:
        return None
    return Variable(found["name"], found.start(), found.end(), values.get(found["name"], found["default"]))


def with_variables(text: str, values: Mapping[str, str]) -> str:
    """A text with its variables substituted; MP104 for one that has no value."""

    def value(found: re.Match[str]) -> str:
        known = values.get(found["name"], found["default"])
        if known is None:
            hint = f"Set it in the environment, or give it a default: ${{{found['name']}:-value}}."
            raise SqlError("MP104", f"Variable '{found['name']}' has no value.", hint=hint)
        return known

    return _REFERENCE.sub(value, text)


@dataclass(frozen=True)
class Splice:
    """A substituted variable: `code_start` to `code_end` of the code replaces `start` to `end` of the text."""

    code_start: int
    code_end: int
    start: int
    end: int


@dataclass(frozen=True)
class SourceText:
    """`text` is the file as written; `code` is the same without comments, with variables outside of strings
    substituted."""

    file: str
    text: str = field(repr=False)
    code: str = field(repr=False)
    splices: tuple[Splice, ...] = field(default=(), repr=False)

    @classmethod
    def plain(cls, text: str, file: str) -> SourceText:
        """A text that is its own code."""
        return cls(file, text, text)

    @cached_property
    def line_starts(self) -> list[int]:
        return [0, *(i + 1 for i, char in enumerate(self.text) if char == "\n")]

    @cached_property
    def masked(self) -> str:
        """The text with secrets masked, as a whole, because a value may extend over several lines."""
        return mask(self.text)

    def place(self, start: int, end: int | None = None) -> Place:
        """The place of the code from `start` up to, not including, `end`."""
        first = self.original(start)
        last = self.original((start + 1 if end is None else end) - 1, at_end=True) + 1
        return self.place_in_text(first, last)

    def place_in_text(self, start: int, end: int) -> Place:
        """The place of a span of the text as written."""
        start = min(max(start, 0), len(self.text))
        line = bisect_right(self.line_starts, start)
        line_start = self.line_starts[line - 1]
        line_end = self.text.find("\n", line_start)
        line_end = len(self.text) if line_end < 0 else line_end
        length = max(1, min(end, line_end) - start)
        excerpt = printable(self.masked[line_start:line_end].rstrip("\r"))
        return Place(self.file, line, start - line_start + 1, length, excerpt)

    def original(self, offset: int, at_end: bool = False) -> int:
        """The offset in the text of a character of the code; inside a variable's value, the start or end of the
        variable."""
        shift = 0
        for splice in self.splices:
            if offset < splice.code_start:
                break
            if offset < splice.code_end:
                return splice.end - 1 if at_end else splice.start
            shift = splice.end - splice.code_end
        return offset + shift


def printable(text: str) -> str:
    """The text with control characters, except tabs, replaced by question marks, so that they cannot affect a
    terminal."""
    return "".join(char if char.isprintable() or char == "\t" else "?" for char in text)
