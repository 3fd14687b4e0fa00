"""What a table's query needs of its source: the columns that it names, and conditions that a server may apply too."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from sqlglot import exp

from millpond.contracts.source import Predicate, Wanted

_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


def wanted_by(query: exp.Query) -> Wanted:
    """What a query over one source needs of it; everything where that is not known."""
    if not isinstance(query, exp.Select) or query.find(exp.Star):
        return Wanted()
    columns = tuple(dict.fromkeys(column.name for column in query.find_all(exp.Column)))
    where = query.args.get("where")
    parts = list(where.this.flatten()) if where and isinstance(where.this, exp.And) else [where.this] if where else []
    found = (_predicate(part.unnest()) for part in parts)
    return Wanted(columns, tuple(predicate for predicate in found if predicate is not None))


def _predicate(node: exp.Expr) -> Predicate | None:
    """A condition on one column, if it is one of the simple kinds."""
    for kind, operator in _COMPARISONS.items():
        if isinstance(node, kind):
            return _comparison(node, operator)
    negated = isinstance(node, exp.Not)
    inner = node.this.unnest() if negated else node
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null) and isinstance(inner.this, exp.Column):
        return Predicate(inner.this.name, "is not null" if negated else "is null")
    if negated or not isinstance(inner.this, exp.Column):
        return None
    if isinstance(inner, exp.In) and inner.expressions and not inner.args.get("query"):
        values = [constant(value) for value in inner.expressions]
        return None if None in values else Predicate(inner.this.name, "in", tuple(values))
    if isinstance(inner, exp.Like) and isinstance(constant(inner.expression), str):
        return Predicate(inner.this.name, "like", (constant(inner.expression),))
    return None


def _comparison(node: exp.Expression, operator: str) -> Predicate | None:
    left, right = node.this.unnest(), node.expression.unnest()
    if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
        left, right, operator = right, left, _MIRRORED[operator]
    value = constant(right)
    return Predicate(left.name, operator, (value,)) if isinstance(left, exp.Column) and value is not None else None


def constant(node: exp.Expression) -> Any:
    """The value of a literal: a text, a number, a boolean or a date; None for anything else."""
    if isinstance(node, exp.Neg):
        value = constant(node.this)
        return -value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.is_type("date"):
        try:
            return dt.date.fromisoformat(str(node.this.this).strip())
        except ValueError:
            return None
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return str(node.this)
    try:
        return int(node.this) if str(node.this).isdigit() else Decimal(str(node.this))
    except ArithmeticError:
        return None
