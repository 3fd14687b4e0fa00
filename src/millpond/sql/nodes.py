"""The node types that Millpond adds to sqlglot's trees, and the place of a node in the text."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millpond.errors import Place
from millpond.sql import nodes
from millpond.sql.cursor import Cursor
from millpond.sql.statements import NO_OPTIONS, OptionGroup
from millpond.sql.text import SourceText


def place_of(node: exp.Expr, source: SourceText) -> Place:
    """The place of the node, else of its parts, else of the node that contains it."""
    span = _span(node)
    around: exp.Expr | None = node
    while span is None and around is not None:
        span = _span(around)
        around = around.parent
    return source.place(*span) if span else source.place(0)


def _span(node: exp.Expr) -> tuple[int, int] | None:
    """From the first to the last character that the node or one of its parts has recorded."""
    own = [n.meta for n in node.walk() if "start" in n.meta and "end" in n.meta]
    if not own:
        return None
    return min(meta["start"] for meta in own), max(meta["end"] for meta in own) + 1


class Uri(exp.Expression):
    """A URI in place of a relation's name: `this` of an exp.Table, whose alias is the relation's alias."""

    arg_types = {"this": True}

    @property
    def text_(self) -> str:
        """The URI as written, with variables substituted and quotes removed."""
        return str(self.this)


class Changes(exp.Expression):
    """CHANGES(table), a table's changes as a stream: `this` of an exp.Table; its own `this` is an Identifier."""

    arg_types = {"this": True}


class Window(exp.Expression):
    """TUMBLING | SLIDING | SESSION: one member of GROUP BY, in either spelling; `column` is None in the clause form."""

    arg_types = {"kind": True, "column": False, "size_us": True, "slide_us": False}


class Default(exp.Expression):
    """The keyword DEFAULT in place of a value."""


class Path(exp.Expression):
    """A wildcard path such as `positions.*.shares` or `orders[*].amount`."""

    arg_types = {"this": True, "steps": True}


def relation_options(table: exp.Expression) -> OptionGroup:
    """The WITH (...) right after a relation of FROM or JOIN."""
    return _group(table.args.get("mp_options"))


def join_options(join: exp.Expression) -> OptionGroup:
    """The WITH (...) right after the ON or USING of a join."""
    return _group(join.args.get("mp_options"))


def _group(found: Any) -> OptionGroup:
    return found if isinstance(found, OptionGroup) else NO_OPTIONS


# The names of a column before its star: catalog, database and table.
NAMES_MAX = 3


def take_path(cursor: Cursor) -> nodes.Path | None:
    """Consume a wildcard path if one comes next; a path without a wildcard is an ordinary column."""
    if not cursor.sees_name() or not (cursor.sees_kind(TokenType.DOT, 1) or cursor.sees_kind(TokenType.L_BRACKET, 1)):
        return None
    steps, length = _steps(cursor)
    if not any(isinstance(step, exp.Var) and "*" in step.name for step in steps) or _is_plain_star(steps):
        return None
    first = cursor.take_token()
    for _ in range(length - 1):
        cursor.take_token()
    return nodes.Path(this=_identifier(first), steps=steps).update_positions(first)


def _is_plain_star(steps: list[exp.Expression]) -> bool:
    """`t.*`: all columns of a relation, or `a.b.*`; the parser of columns reads no more names than these."""
    *before, last = steps
    return (
        len(before) < NAMES_MAX - 1
        and isinstance(last, exp.Var)
        and last.name == "*"
        and all(isinstance(step, exp.Identifier) for step in before)
    )


def _steps(cursor: Cursor) -> tuple[list[exp.Expression], int]:
    """The steps after the first name, and the number of tokens of the whole path."""
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
            return exp.Var(this="**").update_positions(cursor.token_ahead(ahead + 1)), 3
        return exp.Var(this="*").update_positions(cursor.token_ahead(ahead + 1)), 2
    if cursor.sees_kind(TokenType.DSTAR, ahead + 1):
        return exp.Var(this="**").update_positions(cursor.token_ahead(ahead + 1)), 2
    if cursor.sees_name(ahead + 1):
        return _identifier(cursor.token_ahead(ahead + 1)), 2
    return None, 0


def _bracketed(cursor: Cursor, ahead: int) -> tuple[exp.Expression | None, int]:
    kinds = (TokenType.STAR, TokenType.NUMBER)
    if not cursor.sees_kind(TokenType.L_BRACKET, ahead) or not cursor.sees_kind(TokenType.R_BRACKET, ahead + 2):
        return None, 0
    inner = cursor.token_ahead(ahead + 1)
    if inner.token_type == TokenType.STRING:
        return exp.Literal.string(inner.text).update_positions(inner), 3
    whole = inner.token_type in kinds and (inner.text == "*" or inner.text.isdigit())
    return (exp.Var(this=f"[{inner.text}]").update_positions(inner), 3) if whole else (None, 0)


def _identifier(token: Token) -> exp.Identifier:
    found = exp.Identifier(this=token.text, quoted=token.token_type == TokenType.IDENTIFIER)
    return found.update_positions(token)
