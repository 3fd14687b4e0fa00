"""GROUP BY over a stream: what a batch contributes, how it is merged by group, and how the outputs follow."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from millpond.plan.bound import BoundQuery, BoundSelect
from millpond.plan.functions import aggregates_in
from millpond.plan.model import Accumulator, AggregatePlan, Final
from millpond.plan.typed import as_expression, type_of, with_type
from millpond.sql import nodes

# Aggregates that follow from running values, and the values that each keeps: (partial aggregate, merge).
RUNNING: dict[type[exp.Expr], tuple[str, tuple[tuple[type[exp.Expr], str], ...]]] = {
    exp.Count: ("count", ((exp.Count, "sum"),)),
    exp.Sum: ("sum", ((exp.Sum, "sum"),)),
    exp.Min: ("min", ((exp.Min, "min"),)),
    exp.Max: ("max", ((exp.Max, "max"),)),
    exp.Avg: ("avg", ((exp.Sum, "sum"), (exp.Count, "sum"))),
}


@dataclass
class _Kept:
    """Accumulators and finals as they are found; equal ones are shared."""

    accumulators: list[Accumulator] = field(default_factory=list)
    finals: list[tuple[exp.Expr, Final]] = field(default_factory=list)

    def accumulator(self, partial: exp.Expr, merge: str) -> str:
        for known in self.accumulators:
            if known.partial == partial:
                return known.name
        name = f"a{len(self.accumulators)}"
        self.accumulators.append(Accumulator(name, as_expression(partial), merge))
        return name

    def final(self, call: exp.Expr) -> str:
        for known, final in self.finals:
            if known == call:
                return final.name
        inner = call.this if isinstance(call, exp.Filter) else call
        how, kept = RUNNING[type(inner)]
        names = tuple(self.accumulator(_partial(call, kind), merge) for kind, merge in kept)
        final = Final(f"f{len(self.finals)}", how, names, type_of(inner))
        self.finals.append((call, final))
        return final.name


def is_running(call: exp.Expr) -> bool:
    """Whether an aggregate follows from running values: COUNT, SUM, MIN, MAX, AVG without DISTINCT."""
    inner = call.this if isinstance(call, exp.Filter) else call
    return type(inner) in RUNNING and not isinstance(inner.this, exp.Distinct) and not inner.expressions


def plan_aggregate(bound: BoundQuery, top: BoundSelect, table: str) -> AggregatePlan | None:
    """The aggregate of a table over a stream, with the name of the companion that keeps the running values; None
    for what has no running values yet (windows, DISTINCT and other aggregates)."""
    having = top.node.args.get("having")
    if bound.outputs is None or not _runs(bound, top, having):
        return None
    kept = _Kept()
    groups = tuple(f"g{n}" for n in range(len(top.groups)))
    outputs = tuple((o.name, _over_merged(o.expr, top.groups, groups, kept)) for o in bound.outputs)
    condition = _over_merged(having.this, top.groups, groups, kept) if having is not None else None
    return AggregatePlan(
        _partial_query(top, groups, kept),
        groups,
        tuple(kept.accumulators),
        tuple(final for _, final in kept.finals),
        outputs,
        condition,
        f"{table}__groups",
    )


def _runs(bound: BoundQuery, top: BoundSelect, having: exp.Expr | None) -> bool:
    if top.node.args.get("distinct") or any(isinstance(g, nodes.Window) for g in top.groups):
        return False
    group = top.node.args.get("group")
    if group is not None and group.find(exp.Cube, exp.Rollup, exp.GroupingSets):
        return False
    places = [o.expr for o in bound.outputs or ()] + ([having] if having is not None else [])
    if any(place.find(exp.Query) for place in places):
        return False
    return all(is_running(call) for place in places for call in aggregates_in(place))


def _partial(call: exp.Expr, kind: type[exp.Expr]) -> exp.Expr:
    """The aggregate over the batch's rows that feeds one accumulator."""
    inner = call.this if isinstance(call, exp.Filter) else call
    made: exp.Expr = inner.copy() if isinstance(inner, kind) else kind(this=inner.this.copy())
    if isinstance(call, exp.Filter):
        return exp.Filter(this=made, expression=call.expression.copy())
    return made


def _over_merged(
    expr: exp.Expr, group_exprs: tuple[exp.Expr, ...], groups: tuple[str, ...], kept: _Kept
) -> exp.Expression:
    """The expression with groups and aggregates replaced by columns of the merged row."""
    by_group = dict(zip(groups, group_exprs, strict=True))

    def replaced(node: exp.Expr) -> exp.Expr:
        for name, group in by_group.items():
            if node == group:
                return with_type(exp.column(name, quoted=True), type_of(group))
        if _is_call(node):
            return with_type(exp.column(kept.final(node), quoted=True), type_of(node))
        return node

    return as_expression(expr.copy().transform(replaced, copy=False))


def _is_call(node: exp.Expr) -> bool:
    return next(aggregates_in(node), None) is node


def _partial_query(top: BoundSelect, groups: tuple[str, ...], kept: _Kept) -> exp.Select:
    select = top.node.copy()
    for clause in ("having", "order", "limit", "offset", "sort", "hint"):
        select.set(clause, None)
    columns = [exp.alias_(g.copy(), n, quoted=True) for n, g in zip(groups, top.groups, strict=True)]
    columns += [exp.alias_(a.partial.copy(), a.name, quoted=True) for a in kept.accumulators]
    select.set("expressions", columns)
    return select
