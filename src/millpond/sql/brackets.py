"""Brackets: each one opened in a statement must be closed in it."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot.tokenizer_core import Token, TokenType

from millpond.sql.cursor import Refusal

_CLOSING = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
}
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def unbalanced(tokens: Iterable[Token]) -> Refusal | None:
    """The first bracket without its partner, as a refusal."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type in _CLOSING:
            opened.append(token)
        elif token.token_type in _CLOSING.values():
            if not opened:
                return Refusal(
                    "MP103", f"'{token.text}' closes nothing.", token, "Remove it, or open a bracket before it."
                )
            if _CLOSING[opened[-1].token_type] != token.token_type:
                return _unclosed(opened[-1])
            opened.pop()
    return _unclosed(opened[-1]) if opened else None


def _unclosed(token: Token) -> Refusal:
    return Refusal("MP103", f"'{token.text}' is never closed.", token, f"Add the missing {_PAIRS[token.text]}")
