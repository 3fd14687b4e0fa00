"""The types of bound expressions: columns carry theirs, the rest follows by Spark's rules."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.expressions.types import infer

TYPE = "mp_type"
# What a merged column of USING is called: it is an expression that the user wrote as a name.
NAME = "mp_name"


def as_expression(node: exp.Expr) -> exp.Expression:
    """What the parser makes is always an Expression; sqlglot's own signatures say less."""
    assert isinstance(node, exp.Expression)
    return node


class _Carried:
    """Columns of a bound tree know their type."""

    def resolve(self, column: exp.Column) -> pa.DataType | None:
        return _carried(column)


_CARRIED = _Carried()


def with_type(node: exp.Expr, type_: pa.DataType | None) -> exp.Expr:
    """The node, remembering its type."""
    if type_ is not None:
        node.meta[TYPE] = _Held(type_)
    return node


class _Held:
    """A type in a node's meta; copying a tree copies its meta deeply, and a type need not be."""

    __slots__ = ("type",)

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_

    def __deepcopy__(self, memo: object) -> _Held:
        return self


def _carried(node: exp.Expr) -> pa.DataType | None:
    held = node.meta_get(TYPE)
    return held.type if isinstance(held, _Held) else None


def type_of(expr: exp.Expr) -> pa.DataType | None:
    """The type of a bound expression, or None when only Spark can tell."""
    carried = _carried(expr)
    if carried is not None:
        return carried
    if expr.find(exp.Query, exp.Filter) is not None:
        expr = _simplified(expr)
    try:
        return infer(as_expression(expr), _CARRIED)
    except RecursionError:
        # A sum of a thousand terms: Spark will tell.
        return None


def _simplified(expr: exp.Expr) -> exp.Expr:
    """The expression with a typed column in the place of each scalar subquery, and without FILTER (WHERE ...)."""

    def stand_in(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Filter):
            return as_expression(node.this)
        if not isinstance(node, exp.Query) or isinstance(node.parent, exp.Exists | exp.In | exp.Any | exp.All):
            return node
        return with_type(exp.column("value"), _carried(node))

    return expr.transform(stand_in)
