"""One aggregate call taken apart: its name, arguments, DISTINCT, FILTER, IGNORE NULLS and WITHIN GROUP."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.plan.functions import function_name
from millpond.plan.running import BY_ORDER, OF_SETS, RUNNING, SYNONYMS
from millpond.sql.spark import render

# Their DISTINCT changes nothing.
_SAME_WHEN_DISTINCT = ("min", "max", "bool_and", "bool_or", "bit_and", "bit_or")
_LISTS = ("array_agg", "collect_list")
_TEXTS = ("listagg", "string_agg")


@dataclass(frozen=True)
class Call:
    """`node` is the call with everything around it, as it was written; `inner` the function alone."""

    node: exp.Expr
    inner: exp.Expr
    name: str
    arguments: tuple[exp.Expr, ...]
    distinct: bool
    where: exp.Expr | None
    ignores_nulls: bool
    order: exp.Expr | None

    @property
    def text(self) -> str:
        """The call as it was written, without the qualifiers that binding put in."""
        return render(self.node.transform(lambda n: exp.column(n.name) if isinstance(n, exp.Column) else n))


def read_call(node: exp.Expr) -> Call:
    """Take a call apart; `node` is one that `aggregates_in` yields."""
    inner, where, order, ignores_nulls = node, None, None, False
    while isinstance(inner, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(inner, exp.Filter):
            where = inner.expression.this
        elif isinstance(inner, exp.WithinGroup):
            order = inner.expression
        ignores_nulls = ignores_nulls or isinstance(inner, exp.IgnoreNulls)
        inner = inner.this
    name = SYNONYMS.get(function_name(inner), function_name(inner))
    arguments = tuple(inner.iter_expressions())
    distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = (*arguments[0].expressions, *arguments[1:])
    if name in BY_ORDER and len(arguments) == 2 and isinstance(arguments[1], exp.Boolean):
        # FIRST(x, true) is another way to write IGNORE NULLS.
        ignores_nulls, arguments = bool(arguments[1].this), arguments[:1]
    return Call(node, inner, name, arguments, distinct, where, ignores_nulls, order)


def is_running(call: Call, *, session: bool) -> bool:
    """Whether a call follows from running values. Sessions merge, which mixes the order of their events."""
    if call.name not in RUNNING or call.order is not None or (session and call.name in BY_ORDER):
        return False
    if call.distinct and call.name not in _SAME_WHEN_DISTINCT:
        return False
    wanted = 2 if "{y}" in RUNNING[call.name].partials[0][0] else 1
    return len(call.arguments) == wanted or (call.name == "count" and len(call.arguments) > 1)


def is_distinct_count(call: Call, *, session: bool) -> bool:
    """Whether a call counts values when they are first seen; of sessions that merge the values must be known."""
    if session or call.order is not None:
        return False
    if call.name == "count":
        return call.distinct
    return call.name == "approx_count_distinct" and len(call.arguments) == 1


def depends_on_order(call: Call) -> bool:
    """Whether its value follows the order of the stream."""
    lists = call.name in _LISTS or call.name in _TEXTS
    return call.name in BY_ORDER or (lists and not call.distinct and call.order is None)


def depends_on_set(call: Call) -> bool:
    """Whether it matters only which values there are, not how often."""
    return (call.distinct or call.name in OF_SETS) and call.order is None


def kept_text(call: Call, replaced: exp.Expr, arguments: tuple[str, ...], where: str | None) -> str:
    """The call, as Spark writes it, over kept values that are numbered by `n` in stream order. `replaced` is the call
    over columns of the kept values, `arguments` and `where` are these columns."""
    if not depends_on_order(call):
        return render(replaced)
    skips_nulls = call.ignores_nulls or call.name not in BY_ORDER
    conditions = [c for c in (where, f"{arguments[0]} IS NOT NULL" if skips_nulls else None) if c]
    only = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
    if call.name in BY_ORDER:
        pick = "min_by" if call.name == "first" else "max_by"
        return f"{pick}(struct({arguments[0]} AS v), n){only}.v"
    values = f"transform(array_sort(collect_list(struct(n, {arguments[0]} AS v)){only}), e -> e.v)"
    if call.name in _LISTS:
        return values
    # Not LISTAGG ... WITHIN GROUP (ORDER BY n): beside DISTINCT aggregates Spark 4.2 fails on it.
    return f"IF(count(n){only} = 0, NULL, array_join({values}, {', '.join(arguments[1:]) or repr('')}))"
