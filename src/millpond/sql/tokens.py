"""The tokenizer: strings, quoted names, bare URIs, comments, hints and variables, each with its place in the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from millpond.errors import Problem
from millpond.sql.string_literals import decode, encode
from millpond.sql.text import SourceText, Splice, variable_at

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
    """A problem of the text by offsets; its Place is computed at the end, because the code is still being built."""

    code: str
    message: str
    start: int
    end: int
    hint: str = ""


@dataclass(frozen=True)
class Lexed:
    """The tokens of a text, the text that their offsets refer to, and its mistakes in order."""

    source: SourceText
    tokens: tuple[Token, ...]
    mistakes: tuple[Mistake, ...]

    def problem(self, mistake: Mistake) -> Problem:
        place = self.source.place(mistake.start, mistake.end)
        return Problem(mistake.code, mistake.message, place, mistake.hint)


def lex(text: str, file: str, values: Mapping[str, str], tokenizer: Tokenizer) -> Lexed:
    """Every token of the text; `tokenizer` splits the code between strings, names, URIs and comments."""
    scanner = _Scanner(text, values, tokenizer)
    scanner.scan()
    source = SourceText(file, text, "".join(scanner.code), tuple(scanner.splices))
    return Lexed(source, tuple(scanner.tokens), tuple(scanner.mistakes))


@dataclass
class _Scanner:
    """`text` grows as variables outside of strings are substituted; `code` is the scanned part, with comments
    blanked."""

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
        """Copy code unchanged, up to `end`."""
        self.chunk.append(self.text[self.at : end])
        self.at = end

    def blank(self, end: int) -> None:
        """Replace a comment by spaces of the same length, so that what follows keeps its place."""
        self.chunk.append(_NOT_NEWLINE.sub(" ", self.text[self.at : end]))
        self.at = end

    def flush(self) -> None:
        """Split the code since the last flush into tokens. Comments are blanks by now, so that one may be inside of a
        keyword of two words."""
        code = "".join(self.chunk)
        for token in self.cut(code):
            written = code[token.start : token.end + 1]
            # The tokenizer changes keywords to capitals, but `Date` may be the name of a column, which keeps its case.
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
            self.mistakes.append(Mistake("MP101", "This is not valid SQL.", self.chunk_start, end))
            return []

    def emit(self, kind: TokenType, text: str, end: int) -> None:
        """Add a token from here to `end` that does not come from the tokenizer."""
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
        """The offset after the end of a comment, which may contain others."""
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
        """The value between quotes and the offset after the closing one, -1 when there is none."""
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


def normal_text(tokens: Iterable[Token]) -> str:
    """The tokens separated by one space; it may contain secrets."""
    return " ".join(_normal(token) for token in tokens)


def without_options(tokens: Sequence[Token]) -> tuple[list[Token], tuple[tuple[str, str], ...]]:
    """The tokens without their WITH (...), and the options in these, in order."""
    kept: list[Token] = []
    given: list[tuple[str, str]] = []
    at = 0
    while at < len(tokens):
        if _begins_options(tokens, at):
            end = next(i for i in range(at, len(tokens)) if tokens[i].token_type == TokenType.R_PAREN)
            given += _entries(tokens[at + 2 : end])
            at = end + 1
        else:
            kept.append(tokens[at])
            at += 1
    return kept, tuple(given)


def _begins_options(tokens: Sequence[Token], at: int) -> bool:
    """Whether a WITH (...) begins here; the WITH of a common table expression is followed by a name."""
    follows = [token.token_type for token in tokens[at : at + 2]] == [TokenType.WITH, TokenType.L_PAREN]
    return follows and any(token.token_type == TokenType.R_PAREN for token in tokens[at:])


def _entries(tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """Each `name = value`; a name may be several words separated by dots."""
    words: list[str] = []
    for i, token in enumerate(tokens):
        if token.token_type == TokenType.EQ and i + 1 < len(tokens):
            yield "".join(words).lower(), tokens[i + 1].text
        words = [] if token.token_type == TokenType.COMMA else [*words, token.text]


def _normal(token: Token) -> str:
    if token.token_type == TokenType.STRING:
        return encode(token.text)
    if token.token_type == TokenType.IDENTIFIER:
        return "`" + token.text.replace("`", "``") + "`"
    if token.token_type == TokenType.HEX_STRING:
        return f"X'{token.text}'"
    return token.text if token.token_type == URI else token.text.lower()
