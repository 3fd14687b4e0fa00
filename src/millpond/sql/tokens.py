"""Text to tokens: strings, quoted names, bare URIs, comments, hints and variables, each with its place in the text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from millpond.errors import Problem
from millpond.sql.literals import decode
from millpond.sql.text import SourceText, Splice
from millpond.sql.variables import variable_at

URI = TokenType.URI_START
HINT_END = TokenType.BLOCK_END

_SPECIAL = re.compile(
    r"(?P<quote>(?:(?<![A-Za-z0-9_])[rRxX])?['\"]|`)"
    r"|(?P<line>--)|(?P<hint>/\*\+)|(?P<block>/\*)|(?P<variable>\$\{)"
    r"|(?P<uri>(?<![A-Za-z0-9_])[A-Za-z][A-Za-z0-9+.\-]*://)"
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_URI_STOP = re.compile(r"\\\"|\"|\$\{|[\s,;)\]]")
_NOT_NEWLINE = re.compile(r"[^\n]")


@dataclass(frozen=True)
class Mistake:
    """A problem of the text that has no Place yet: the code is still growing."""

    code: str
    message: str
    start: int
    end: int
    hint: str = ""


@dataclass(frozen=True)
class Lexed:
    """The tokens of a text, the text they point into, and what was wrong with it, in order."""

    source: SourceText
    tokens: tuple[Token, ...]
    mistakes: tuple[Mistake, ...]

    def problem(self, mistake: Mistake) -> Problem:
        place = self.source.place(mistake.start, mistake.end)
        return Problem(mistake.code, mistake.message, place, mistake.hint)


def lex(text: str, file: str, values: Mapping[str, str], tokenizer: Tokenizer) -> Lexed:
    """Every token of the text; `tokenizer` cuts the plain code between strings, names, URIs and comments."""
    scanner = _Scanner(text, values, tokenizer)
    scanner.scan()
    source = SourceText(file, text, "".join(scanner.code), tuple(scanner.splices))
    return Lexed(source, tuple(scanner.tokens), tuple(scanner.mistakes))


@dataclass
class _Scanner:
    """`text` grows as variables of plain code are put in; `code` is what was read of it, comments blanked out."""

    text: str
    values: Mapping[str, str]
    tokenizer: Tokenizer
    at: int = 0
    grown: int = 0
    chunk: list[str] = field(default_factory=list)
    chunk_start: int = 0
    code: list[str] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    splices: list[Splice] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    _literal_until: int = 0

    def scan(self) -> None:
        take = {
            "quote": self._quote,
            "line": self._line,
            "hint": self._hint,
            "block": self._block,
            "variable": self._variable,
            "uri": self._uri,
        }
        while found := _SPECIAL.search(self.text, self.at):
            self.plain(found.start())
            take[str(found.lastgroup)](found)
        self.plain(len(self.text))
        self.flush()

    def plain(self, end: int) -> None:
        """Take code as it is, up to `end`."""
        self.chunk.append(self.text[self.at : end])
        self.at = end

    def blank(self, end: int) -> None:
        """Take a comment: spaces of the same length, so that what follows keeps its place."""
        self.chunk.append(_NOT_NEWLINE.sub(" ", self.text[self.at : end]))
        self.at = end

    def flush(self) -> None:
        """Cut the code gathered so far into tokens; comments between the words of one keyword are blanks by now."""
        code = "".join(self.chunk)
        for token in self.cut(code):
            written = code[token.start : token.end + 1]
            # The tokenizer writes keywords in capitals, but `Date` may yet turn out to be the name of a column.
            if written.upper() == token.text:
                token.text = written
            token.start += self.chunk_start
            token.end += self.chunk_start
            self.tokens.append(token)
        self.code.append(code)
        self.chunk = []
        self.chunk_start = self.at

    def cut(self, code: str) -> list[Token]:
        try:
            return self.tokenizer.tokenize(code) if code.strip() else []
        except TokenError:
            end = self.chunk_start + len(code)
            self.mistakes.append(Mistake("MP101", "This cannot be read as SQL.", self.chunk_start, end))
            return []

    def emit(self, kind: TokenType, text: str, end: int) -> None:
        """A token that stands from here to `end` and is no plain code."""
        self.flush()
        self.tokens.append(Token(kind, text, start=self.at, end=end - 1))
        self.code.append(self.text[self.at : end])
        self.at = self.chunk_start = end

    def _line(self, found: re.Match[str]) -> None:
        end = self.text.find("\n", self.at)
        self.blank(len(self.text) if end < 0 else end)

    def _block(self, found: re.Match[str]) -> None:
        self.blank(self.block_end(found))

    def block_end(self, found: re.Match[str]) -> int:
        """Behind the end of a comment, which may hold others."""
        depth, at = 1, found.end()
        while edge := _BLOCK_EDGE.search(self.text, at):
            depth += 1 if edge[0] == "/*" else -1
            at = edge.end()
            if not depth:
                return at
        self.unclosed(found[0], "comment", "*/")
        return len(self.text)

    def _hint(self, found: re.Match[str]) -> None:
        end = self.block_end(found)
        if not self.text.endswith("*/", found.end(), end):
            self.blank(end)
            return
        self.emit(TokenType.HINT, "/*+", found.end())
        self.plain(end - 2)
        self.emit(HINT_END, "*/", end)

    def _variable(self, found: re.Match[str]) -> None:
        variable = variable_at(self.text, self.at, self.values)
        if self.at < self._literal_until or variable is None:
            self.malformed(found)
            self.plain(found.end())
        elif variable.value is None:
            self.missing(variable.name, variable.start, variable.end)
            self.blank(variable.end)
        else:
            self.splice(variable.start, variable.end, variable.value)

    def splice(self, start: int, end: int, value: str) -> None:
        written = start + self.grown
        self.splices.append(Splice(start, start + len(value), written, written + end - start))
        self.text = self.text[:start] + value + self.text[end:]
        self.grown += (end - start) - len(value)
        self._literal_until = start + len(value)

    def _quote(self, found: re.Match[str]) -> None:
        prefix, quote = found[0][:-1].upper(), found[0][-1]
        value, end = self.quoted(found.end(), quote, raw=prefix == "R")
        if end < 0:
            self.unclosed(found[0], "name" if quote == "`" else "quote", quote)
            self.blank(len(self.text))
            return
        kinds = {"X": TokenType.HEX_STRING, "R": TokenType.STRING}
        plain = TokenType.STRING if quote == "'" else TokenType.IDENTIFIER
        self.emit(kinds.get(prefix, plain), value, end)

    def quoted(self, at: int, quote: str, raw: bool) -> tuple[str, int]:
        """The value between quotes and the offset behind the closing one, -1 when there is none."""
        parts, last = [], at
        escapes = quote != "`" and not raw
        stop = re.compile(
            rf"\\.|{quote}{quote}|{quote}|\$\{{" if escapes else rf"{quote}{quote}|{quote}|\$\{{", re.DOTALL
        )
        while found := stop.search(self.text, at):
            at = found.end()
            if found[0] == quote:
                parts.append(self.inner(last, found.start(), quote, escapes))
                return "".join(parts), at
            variable = variable_at(self.text, found.start(), self.values) if found[0] == "${" else None
            if variable:
                parts.append(self.inner(last, found.start(), quote, escapes))
                parts.append(self.value_of(variable.name, variable.start, variable.end, variable.value))
                last = at = variable.end
        return "", -1

    def inner(self, start: int, end: int, quote: str, escapes: bool) -> str:
        text = self.text[start:end]
        return decode(text, quote) if escapes else text.replace(quote * 2, quote)

    def _uri(self, found: re.Match[str]) -> None:
        parts, last, at, opened = [], self.at, found.end(), -1
        while stop := _URI_STOP.search(self.text, at):
            at = stop.end()
            variable = variable_at(self.text, stop.start(), self.values)
            if variable:
                parts.append(self.text[last : stop.start()])
                parts.append(self.value_of(variable.name, variable.start, variable.end, variable.value))
                last = at = variable.end
            elif stop[0] == '"':
                opened = stop.start() if opened < 0 else -1
            elif opened < 0 and stop[0] not in ('\\"', "${"):
                break
        if opened >= 0:
            self.unclosed('"', "quote", '"', opened)
            self.blank(len(self.text))
            return
        end = stop.start() if stop else len(self.text)
        self.emit(URI, "".join([*parts, self.text[last:end]]), end)

    def value_of(self, name: str, start: int, end: int, value: str | None) -> str:
        if value is None:
            self.missing(name, start, end)
        return value or ""

    def missing(self, name: str, start: int, end: int) -> None:
        hint = f"Pass --set {name}=..., set the environment variable {name}, or write ${{{name}:-default}}."
        self.mistakes.append(Mistake("MP104", f"Variable '{name}' has no value.", start, end, hint))

    def malformed(self, found: re.Match[str]) -> None:
        hint = "Write ${NAME} or ${NAME:-default}."
        self.mistakes.append(Mistake("MP104", "'${' does not start a variable.", found.start(), found.end(), hint))

    def unclosed(self, opening: str, what: str, closing: str, at: int | None = None) -> None:
        start = self.at if at is None else at
        message = f"This {what} is never closed."
        self.mistakes.append(Mistake("MP103", message, start, start + len(opening), f"Add the missing {closing}"))
