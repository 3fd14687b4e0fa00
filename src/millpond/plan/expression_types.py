"""The types of bound expressions: columns have their type attached, the rest follows by Spark's rules."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.expressions.result_types import infer

TYPE = "mp_type"
# The meta key for the name of a merged column of USING, which is an expression that the user wrote as a name.
NAME = "mp_name"


def as_expression(node: exp.Expr) -> exp.Expression:
    """A cast for mypy: the parser always returns an Expression, but sqlglot's signatures are less precise."""
    assert isinstance(node, exp.Expression)
    return node


class _Carried:
    """A Scope for bound trees, whose columns have their type attached."""

    def resolve(self, column: exp.Column) -> pa.DataType | None:
        return _carried(column)


_CARRIED = _Carried()


def with_type(node: exp.Expr, type_: pa.DataType | None) -> exp.Expr:
    """The node with its type attached."""
    if type_ is not None:
        node.meta[TYPE] = _Held(type_)
    return node


class _Held:
    """A type in a node's meta; copying a tree deep-copies its meta, which is unnecessary for a type."""

    __slots__ = ("type",)

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_

    def __deepcopy__(self, memo: object) -> _Held:
        return self


def _carried(node: exp.Expr) -> pa.DataType | None:
    held = node.meta_get(TYPE)
    return held.type if isinstance(held, _Held) else None


def type_of(expr: exp.Expr) -> pa.DataType | None:
    """The type of a bound expression, or None if only Spark can determine it."""
    carried = _carried(expr)
    if carried is not None:
        return carried
    if expr.find(exp.Query, exp.Filter) is not None:
        expr = _simplified(expr)
    try:
        return infer(as_expression(expr), _CARRIED)
    except RecursionError:
        # Too deep for recursion, such as a sum of a thousand terms: Spark determines it.
        return None


def _simplified(expr: exp.Expr) -> exp.Expr:
    """The expression with a typed column instead of each scalar subquery, and without FILTER (WHERE ...)."""

    def stand_in(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Filter):
            return as_expression(node.this)
        if not isinstance(node, exp.Query) or isinstance(node.parent, exp.Exists | exp.In | exp.Any | exp.All):
            return node
        return with_type(exp.column("value"), _carried(node))

    return expr.transform(stand_in)
