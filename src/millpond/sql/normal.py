"""The normal form of a statement: the same for texts that differ only in comments, spacing and case of words."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot.tokenizer_core import Token, TokenType

from millpond.sql.literals import encode
from millpond.sql.tokens import URI


def normal_text(tokens: Iterable[Token]) -> str:
    """The tokens with one space between them; it may hold secrets."""
    return " ".join(_normal(token) for token in tokens)


def _normal(token: Token) -> str:
    if token.token_type == TokenType.STRING:
        return encode(token.text)
    if token.token_type == TokenType.IDENTIFIER:
        return "`" + token.text.replace("`", "``") + "`"
    if token.token_type == TokenType.HEX_STRING:
        return f"X'{token.text}'"
    return token.text if token.token_type == URI else token.text.lower()
