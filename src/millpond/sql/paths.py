"""Wildcard paths: `positions.*.shares`, `portfolio.**.price`, `orders[*].amount`."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millpond.sql import nodes
from millpond.sql.cursor import Cursor


def take_path(cursor: Cursor) -> nodes.Path | None:
    """The wildcard path that comes next; anything without a wildcard in it is left to the ordinary columns."""
    if not cursor.sees_name() or not (cursor.sees_kind(TokenType.DOT, 1) or cursor.sees_kind(TokenType.L_BRACKET, 1)):
        return None
    steps, length = _steps(cursor)
    if not any(step.name in ("*", "**", "[*]") for step in steps) or _is_plain_star(steps):
        return None
    first = cursor.take_token()
    for _ in range(length - 1):
        cursor.take_token()
    return nodes.Path(this=_identifier(first), steps=steps).update_positions(first)


def _is_plain_star(steps: list[exp.Expression]) -> bool:
    """`t.*`: all columns of a relation."""
    return steps[-1].name == "*" and all(isinstance(step, exp.Identifier) for step in steps[:-1])


def _steps(cursor: Cursor) -> tuple[list[exp.Expression], int]:
    """The steps behind the first name, and the number of tokens they take with it."""
    steps: list[exp.Expression] = []
    ahead = 1
    while True:
        step, width = _dotted(cursor, ahead) if cursor.sees_kind(TokenType.DOT, ahead) else _bracketed(cursor, ahead)
        if step is None:
            return steps, ahead
        steps.append(step)
        ahead += width


def _dotted(cursor: Cursor, ahead: int) -> tuple[exp.Expression | None, int]:
    if cursor.sees_kind(TokenType.STAR, ahead + 1):
        if cursor.sees_kind(TokenType.STAR, ahead + 2):
            return exp.Var(this="**"), 3
        return exp.Var(this="*"), 2
    if cursor.sees_kind(TokenType.DSTAR, ahead + 1):
        return exp.Var(this="**"), 2
    if cursor.sees_name(ahead + 1):
        return _identifier(cursor.token_ahead(ahead + 1)), 2
    return None, 0


def _bracketed(cursor: Cursor, ahead: int) -> tuple[exp.Expression | None, int]:
    kinds = (TokenType.STAR, TokenType.NUMBER)
    if not cursor.sees_kind(TokenType.L_BRACKET, ahead) or not cursor.sees_kind(TokenType.R_BRACKET, ahead + 2):
        return None, 0
    inner = cursor.token_ahead(ahead + 1)
    return (exp.Var(this=f"[{inner.text}]"), 3) if inner.token_type in kinds else (None, 0)


def _identifier(token: Token) -> exp.Identifier:
    found = exp.Identifier(this=token.text, quoted=token.token_type == TokenType.IDENTIFIER)
    return found.update_positions(token)
