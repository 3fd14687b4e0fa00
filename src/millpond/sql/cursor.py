"""A position in the tokens of one statement, with the basic steps that every statement parser uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from millpond.errors import Place, did_you_mean
from millpond.redact import MASK, redact
from millpond.sql.statements import Name
from millpond.sql.text import SourceText, printable
from millpond.sql.words import RESERVED, TYPES

T = TypeVar("T")

NOTHING = Token(TokenType.SENTINEL, "")

_WORD = re.compile(r"\w+\Z")
_TOO_MANY = re.compile(r"provided arguments \((?P<given>\d+)\) .* supported arguments \((?P<most>\d+)\)")
_EXPECTED = re.compile(r"Expect(?:ing|ed) (?P<what>.+?)(?: after .*| but got .*)?\Z", re.DOTALL)


class Refusal(ParseError):
    """A syntax error and its token; a ParseError, so that sqlglot's trial parsing can catch it."""

    def __init__(self, code: str, message: str, token: Token, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.token = token
        self.hint = hint


class Cursor(SparkParser):
    """sqlglot's parser with our errors, and names for the steps that the statement parsers take."""

    source: SourceText

    def start(self, source: SourceText, tokens: list[Token]) -> None:
        """Start before the first token of a statement."""
        self.reset()
        self.source = source
        self.sql = source.code
        self._tokens = tokens
        self._tokens_size = len(tokens)
        self._index = -1
        self._advance()

    @property
    def here(self) -> Token:
        """The token that comes next, or the last one when there is none."""
        return self._curr or self._tokens[-1]

    @property
    def before(self) -> Token:
        """The last token that was consumed."""
        return self._prev

    def remaining(self) -> list[Token]:
        return self._tokens[self._index :]

    @property
    def position(self) -> int:
        return int(self._index)

    @property
    def at_end(self) -> bool:
        return not self._curr

    def tokens_since(self, position: int) -> list[Token]:
        return self._tokens[position : self._index]

    def place_of_token(self, token: Token) -> Place:
        return self.source.place(token.start, token.end + 1)

    def place_since(self, position: int) -> Place:
        """The place from the token at `position` to the last one consumed."""
        tokens = self.tokens_since(position)
        return self.source.place(tokens[0].start, tokens[-1].end + 1)

    def sees(self, *words: str) -> bool:
        """Whether these words come next, none of them quoted."""
        return self._match_text_seq(*words, advance=False)

    def take(self, *words: str) -> bool:
        """Consume these words if they come next."""
        return self._match_text_seq(*words)

    def expect(self, *words: str) -> None:
        """Consume these words, or raise."""
        for word in words:
            if not self.take(word):
                self.refuse_unexpected(word)

    def take_token(self) -> Token:
        """Consume the next token, whatever it is."""
        token = self._curr
        self._advance()
        return token

    def token_ahead(self, ahead: int) -> Token:
        """The token that many after the next one; it must exist."""
        return self._tokens[self._index + ahead]

    def sees_kind(self, kind: TokenType, ahead: int = 0) -> bool:
        index = self._index + ahead
        return index < self._tokens_size and self._tokens[index].token_type == kind

    def sees_name(self, ahead: int = 0) -> bool:
        """Whether the token can be a name, in a position where only a name is valid."""
        index = self._index + ahead
        if index >= self._tokens_size:
            return False
        token = self._tokens[index]
        if token.token_type == TokenType.IDENTIFIER:
            return True
        is_word = token.token_type not in self.TEXT_MATCH_EXCLUDED_TOKENS and _WORD.match(token.text)
        return bool(is_word) and token.token_type != TokenType.NUMBER and token.text.upper() not in RESERVED

    def name(self, what: str) -> Name:
        """Consume a name; the error names `what` was expected."""
        if not self.sees_name():
            self.refuse_unexpected(what)
        token = self.take_token()
        return Name(token.text, self.place_of_token(token), token.token_type == TokenType.IDENTIFIER)

    def names(self, what: str) -> tuple[Name, ...]:
        """(a, b, c)"""
        return self.in_brackets(lambda: self.name(what))

    def in_brackets(self, one: Callable[[], T]) -> tuple[T, ...]:
        """(one, one, ...)"""
        self.expect("(")
        found = self.listed(one)
        self.expect(")")
        return found

    def listed(self, one: Callable[[], T]) -> tuple[T, ...]:
        """one, one, ..."""
        found = [one()]
        while self.take(","):
            found.append(one())
        return tuple(found)

    def refuse(self, message: str, *, token: Token | None = None, code: str = "MP101", hint: str = "") -> NoReturn:
        raise Refusal(code, message, token or self.here, hint)

    def refuse_unexpected(self, wanted: str, hint: str = "") -> NoReturn:
        """Raise an error with what was expected and what was found."""
        expected = f"'{wanted}'" if wanted.upper() == wanted else wanted
        if self.at_end:
            self.refuse(f"Expected {expected} after {self.shown_token(self.here)}, but the statement ends.", hint=hint)
        self.refuse(f"Expected {expected}, found {self.shown_token(self.here)}.", hint=hint)

    def shown_token(self, token: Token) -> str:
        """A token as a message shows it; one that contains a secret is masked."""
        text = printable(redact(token.text))
        place = slice(self.source.original(token.start), self.source.original(token.end, at_end=True) + 1)
        if self.source.masked[place] != self.source.text[place]:
            text = MASK
        return f"the text '{text}'" if token.token_type == TokenType.STRING else f"'{text}'"

    def raise_error(self, message: str, token: Token = NOTHING) -> None:
        """sqlglot's errors in our words, because its texts show tokens and class names."""
        found = _EXPECTED.match(message)
        if found and found["what"].lower() == "type":
            self.refuse(
                f"{self.shown_token(self.here)} is not a type.", code="MP108", hint=did_you_mean(self.here.text, TYPES)
            )
        if found:
            self.refuse_unexpected(_wording(found["what"]))
        if (many := _TOO_MANY.search(message)) is not None:
            self.refuse(f"This call has {many['given']} arguments, but the function takes at most {many['most']}.")
        if token:
            self.refuse(f"{self.shown_token(token)} is not allowed here.", token=token)
        if self.at_end:
            self.refuse(f"Something is missing after {self.shown_token(self.here)}: the statement ends too early.")
        self.refuse(f"Something is missing before {self.shown_token(self.here)}, or it is not allowed here.")


def _wording(what: str) -> str:
    words = {"table name": "a table name", "cte to have alias": "a name"}
    return words.get(what.lower(), what)
