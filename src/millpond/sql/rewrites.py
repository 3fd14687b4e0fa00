"""Rewrites of ANY, SOME, ALL, and of IN as a value, into forms that Spark runs with SQL's rules for NULL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp

from millpond.sql.function_calls import AGGREGATES, function_name

Tree = TypeVar("Tree", bound=exp.Expr)

# Names that no user writes, so that the compared value is not resolved as a column of the subquery.
RELATION = "_any_of"
COLUMN = "_any_value"

# Next to an aggregate or window function Spark allows no EXISTS, so the least or greatest value decides.
_LEAST_DECIDES = {(exp.GT, exp.Any), (exp.GTE, exp.Any), (exp.LT, exp.All), (exp.LTE, exp.All)}
_GREATEST_DECIDES = {(exp.LT, exp.Any), (exp.LTE, exp.Any), (exp.GT, exp.All), (exp.GTE, exp.All)}


def rewrite_any_all(tree: Tree) -> Tree:
    """A new tree without ANY, SOME and ALL over subqueries, and with IN that is NULL where SQL requires it."""
    tree = tree.copy()
    # The innermost first, because a subquery is copied into what replaces the comparison with it.
    for node in reversed(list(tree.walk(bfs=False))):
        new = _rewritten(node)
        if new is None:
            continue
        if node is tree:
            return new  # type: ignore[return-value]
        node.replace(new)
    return tree


def _rewritten(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.In) and node.args.get("query"):
        return None if _is_filter(node) else _membership(node)
    quantified = node.args.get("expression") if isinstance(node, exp.Binary) else None
    if not isinstance(quantified, exp.Any | exp.All) or _query_of(quantified) is None:
        return None
    if _is_filter(node):
        return _filtering(node, quantified)
    if _rules_out_exists(node.this):
        return _by_aggregates(node, quantified, _is_grouped(node))
    return _by_exists(node.this, _query_of(quantified), isinstance(quantified, exp.All), _comparison(node))


def _membership(node: exp.In) -> exp.Expr:
    """x IN (query) as a value, rewritten as x = ANY (query)."""
    equal = exp.EQ(this=node.this.copy(), expression=exp.Any(this=node.args["query"].copy()))
    if _rules_out_exists(node.this):
        return _by_aggregates(equal, equal.expression, _is_grouped(node))
    return _by_exists(node.this, _query_of(equal.expression), False, _comparison(equal))


def _query_of(quantified: exp.Expr) -> exp.Query | None:
    query = quantified.this
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    return query if isinstance(query, exp.Query) else None


def _is_filter(node: exp.Expr) -> bool:
    """Whether NULL has the effect of FALSE here: in WHERE, HAVING or ON with only AND and OR in between.

    A NOT directly around an IN is allowed too: Spark handles NOT IN in a filter itself, and correctly.
    """
    child, parent = node, node.parent
    while isinstance(parent, exp.And | exp.Or | exp.Paren) or (
        isinstance(parent, exp.Not) and isinstance(child.unnest(), exp.In)
    ):
        child, parent = parent, parent.parent
    return isinstance(parent, exp.Where | exp.Having) or (isinstance(parent, exp.Join) and child.arg_key == "on")


def _filtering(node: exp.Expr, quantified: exp.Expr) -> exp.Expr:
    """The form for a filter, which Spark plans as a semi join or anti join."""
    query = _query_of(quantified)
    assert query is not None
    for_all = isinstance(quantified, exp.All)
    in_query = exp.In(this=node.this.copy(), query=exp.Subquery(this=query.copy()))
    if isinstance(node, exp.EQ) and not for_all:
        return in_query
    if isinstance(node, exp.NEQ) and for_all:
        return exp.Not(this=in_query)
    compare = _comparison(node)
    if not for_all:
        return _exists(query, compare(_columns(1)))
    failed = exp.Not(this=exp.func("COALESCE", _bracketed(compare(_columns(1))), exp.false()))
    return exp.Not(this=_exists(query, failed))


def _by_exists(
    left: exp.Expr, query: exp.Query | None, for_all: bool, compare: Callable[[list[exp.Expr]], exp.Expr]
) -> exp.Expr:
    """One row decides; else one comparison that is NULL makes the result NULL; else the result is that of no rows."""
    assert query is not None
    compared = compare(_columns(len(left.expressions) if isinstance(left, exp.Tuple) else 1))
    decided = exp.Not(this=_bracketed(compared.copy())) if for_all else compared.copy()
    unknown = exp.Is(this=_bracketed(compared), expression=exp.Null())
    return _case(_exists(query, decided), not for_all, _exists(query, unknown))


def _by_aggregates(node: exp.Expr, quantified: exp.Expr, grouped: bool) -> exp.Expr:
    """The same without EXISTS: the left side is not used inside the subqueries."""
    query = _query_of(quantified)
    assert query is not None
    values = _Values(query, grouped)
    for_all = isinstance(quantified, exp.All)
    zero = exp.Literal.number(0)
    unknown = exp.or_(
        exp.and_(_is_null(node.this), exp.GT(this=values.aggregate("COUNT(*)"), expression=zero.copy())),
        exp.GT(this=values.aggregate(f"COUNT_IF({COLUMN} IS NULL)"), expression=zero),
    )
    decided = _decided_by_aggregates(node, values, for_all)
    return _case(exp.Not(this=_bracketed(decided)) if for_all else decided, not for_all, unknown)


def _decided_by_aggregates(node: exp.Expr, values: _Values, for_all: bool) -> exp.Expr:
    """For ANY: whether the comparison holds for some row; for ALL: for all rows that are not NULL."""
    left, kind = node.this, (type(node), exp.All if for_all else exp.Any)
    if kind in _LEAST_DECIDES:
        return _with(node, values.aggregate(f"MIN({COLUMN})"))
    if kind in _GREATEST_DECIDES:
        return _with(node, values.aggregate(f"MAX({COLUMN})"))
    least, greatest = values.aggregate(f"MIN({COLUMN})"), values.aggregate(f"MAX({COLUMN})")
    if kind == (exp.EQ, exp.All):
        return exp.and_(_with(node, least), _with(node, greatest))
    if kind == (exp.NEQ, exp.Any):
        return exp.or_(_with(node, least), _with(node, greatest))
    found = exp.func("ARRAY_CONTAINS", values.aggregate(f"COLLECT_SET({COLUMN})"), left.copy())
    return exp.Not(this=found) if isinstance(node, exp.NEQ) else found


@dataclass(frozen=True)
class _Values:
    """The values of a subquery's column; `grouped` when the subquery is used next to aggregates of a GROUP BY."""

    query: exp.Query
    grouped: bool

    def aggregate(self, call: str) -> exp.Expr:
        chosen: exp.Expr = exp.maybe_parse(call, dialect="spark")
        scalar = exp.Subquery(this=exp.Select(expressions=[chosen]).from_(_relation(self.query), copy=False))
        # The value is the same for all rows of a group, but Spark requires an aggregate.
        return exp.First(this=scalar) if self.grouped else scalar


def _is_grouped(node: exp.Expr) -> bool:
    select = node.find_ancestor(exp.Select)
    return select is not None and select.args.get("group") is not None


def _rules_out_exists(left: exp.Expr) -> bool:
    """Whether the left side contains an aggregate or window function, which EXISTS may only refer to in HAVING."""
    if isinstance(left.find_ancestor(exp.Having, exp.Select), exp.Having):
        return False
    return any(isinstance(n, exp.Window) or function_name(n) in AGGREGATES for n in left.walk())


def _comparison(node: exp.Expr) -> Callable[[list[exp.Expr]], exp.Expr]:
    """The comparison with the columns of a row in place of ANY or ALL, column by column if there are several."""

    def compare(columns: list[exp.Expr]) -> exp.Expr:
        left = node.this
        if not isinstance(left, exp.Tuple):
            return _with(node, columns[0])
        pairs = [exp.EQ(this=a.copy(), expression=b) for a, b in zip(left.expressions, columns, strict=True)]
        same = exp.and_(*pairs)
        return exp.Not(this=exp.Paren(this=same)) if isinstance(node, exp.NEQ) else same

    return compare


def _with(node: exp.Expr, right: exp.Expr) -> exp.Expr:
    """The comparison with another right side."""
    return type(node)(this=_bracketed(node.this.copy()), expression=right)


def _columns(count: int) -> list[exp.Expr]:
    return [exp.column(f"{COLUMN}{n or ''}", table=RELATION) for n in range(count)]


def _relation(query: exp.Query, count: int = 1) -> exp.Subquery:
    names = [exp.to_identifier(f"{COLUMN}{n or ''}") for n in range(count)]
    alias = exp.TableAlias(this=exp.to_identifier(RELATION), columns=names)
    return exp.Subquery(this=query.copy(), alias=alias)


def _exists(query: exp.Query, condition: exp.Expr) -> exp.Exists:
    count = len({c.name for c in condition.find_all(exp.Column) if c.table == RELATION}) or 1
    rows = exp.Select(expressions=[exp.Literal.number(1)]).from_(_relation(query, count), copy=False)
    return exp.Exists(this=rows.where(condition, copy=False))


def exists_row(query: exp.Expr, matches: Callable[[exp.Expr], exp.Expr]) -> exp.Exists:
    """EXISTS over the rows of a subquery of one column that match; `matches` gets the column."""
    found = query.unnest() if isinstance(query, exp.Subquery | exp.Paren) else query
    assert isinstance(found, exp.Query)
    return _exists(found, matches(_columns(1)[0]))


def _case(decided: exp.Expr, verdict: bool, unknown: exp.Expr) -> exp.Case:
    """The verdict where decided, NULL where unknown, else the opposite."""
    cases = [(decided, exp.Boolean(this=verdict)), (unknown, exp.Null())]
    ifs = [exp.If(this=condition, true=value) for condition, value in cases]
    return exp.Case(ifs=ifs, default=exp.Boolean(this=not verdict))


def _is_null(node: exp.Expr) -> exp.Expr:
    return exp.Is(this=_bracketed(node.copy()), expression=exp.Null())


def _bracketed(node: exp.Expr) -> exp.Expr:
    # AND and OR are functions to sqlglot.
    plain = exp.Column | exp.Literal | exp.Paren | exp.Func | exp.Subquery
    return node if isinstance(node, plain) and not isinstance(node, exp.Connector) else exp.Paren(this=node)
