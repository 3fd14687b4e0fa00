"""The normal form of a statement: the same for texts that differ only in comments, spacing and case of words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from millpond.sql.literals import encode
from millpond.sql.tokens import URI


def normal_text(tokens: Iterable[Token]) -> str:
    """The tokens with one space between them; it may hold secrets."""
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
    """A WITH ( that is closed; that of a common table expression is followed by a name."""
    follows = [token.token_type for token in tokens[at : at + 2]] == [TokenType.WITH, TokenType.L_PAREN]
    return follows and any(token.token_type == TokenType.R_PAREN for token in tokens[at:])


def _entries(tokens: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """Each `name = value`; a name may be several words with dots between them."""
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
