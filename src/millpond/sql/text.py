"""The text of a SQL file: what the user wrote, the code that the parser reads, and the way back to the former."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from millpond.errors import Place
from millpond.redact import mask


@dataclass(frozen=True)
class Splice:
    """A variable's value put into the code: `code_start` to `code_end` stands for `start` to `end` of the text."""

    code_start: int
    code_end: int
    start: int
    end: int


@dataclass(frozen=True)
class SourceText:
    """`text` is the file as written; `code` the same without comments and with the variables of plain code put in."""

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
        """The text with secrets starred out; a value may go over several lines."""
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
        """Where in the text a character of the code comes from; inside a variable's value, the variable's own ends."""
        shift = 0
        for splice in self.splices:
            if offset < splice.code_start:
                break
            if offset < splice.code_end:
                return splice.end - 1 if at_end else splice.start
            shift = splice.end - splice.code_end
        return offset + shift


def printable(text: str) -> str:
    """The text with every character that a terminal would obey, but for tabs, as a question mark."""
    return "".join(char if char.isprintable() or char == "\t" else "?" for char in text)
