"""Joins of streams, by pairs: each stream's own flow hands its events over, and Spark's join of two drives a flow.

With a third stream the pairs are handed over in their turn. The columns of a stream are known in the rows of a join by
a prefix: `l_` for what came from the left, `r_` for the right, one more `l_` for every further join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.expressions.literals import interval
from millpond.expressions.terms import Constant, Interval
from millpond.plan.aggregate_model import TIME, AggregatePlan
from millpond.plan.bound import BoundSelect
from millpond.plan.context import Planned
from millpond.plan.model import BATCH, FlowPlan, Step, StepKind, StreamJoin, StreamSide
from millpond.plan.refresh import conjuncts
from millpond.plan.scope import Item
from millpond.plan.sources import short_hash
from millpond.plan.typed import as_expression, type_of
from millpond.schema import Schema
from millpond.sql.statements import Watermark

JOINED = "__joined"
PREFIXES = ("l_", "r_")

Names = dict[str, str]


@dataclass(frozen=True)
class Split:
    """A statement over streams taken apart: their sources, their joins, the inner ones first, and what it makes of the
    joined rows; `watermark` is on a column of these."""

    sources: tuple[str, ...]
    joins: tuple[StreamJoin, ...]
    query: exp.Query
    aggregate: AggregatePlan | None
    condition: exp.Expression | None
    watermark: Watermark | None


@dataclass(frozen=True)
class _Part:
    """One join: the stream that it adds, its kind and conditions."""

    item: Item
    kind: str
    conditions: tuple[exp.Expr, ...]


def split_join(item: Planned, id_: str) -> Split | None:
    """The parts of a statement over several streams, as flows whose ids start with `id_`; None when it is none, or one
    of a shape that cannot run."""
    top = item.bound.top if item.bound is not None else None
    if item.bound is None or top is None or len(top.streams) < 2:
        return None
    if any(len(i.drivers) != 1 or i.drivers[0].startswith("changes(") for i in top.streams):
        return None
    parts = _parts(top)
    if parts is None:
        return None
    names = _names(top.streams)
    joins = tuple(_join(top.streams, parts, level, id_) for level in range(len(parts)))
    query = _over_joined(item.bound.query, top.streams, names)
    aggregate = item.aggregate
    if aggregate is not None:
        rows = _over_joined(aggregate.rows, top.streams, names)
        assert isinstance(rows, exp.Select)
        aggregate = replace(aggregate, rows=rows)
    condition = None if item.condition is None else as_expression(_renamed(item.condition.copy(), names, JOINED))
    sources = tuple(i.drivers[0] for i in top.streams)
    return Split(sources, joins, query, aggregate, condition, _watermark(item.aggregate, top.streams, parts, names))


def _parts(top: BoundSelect) -> list[_Part] | None:
    """The joins of the streams in their order; None where a stream is joined by what a table says."""
    from_ = top.node.args["from_"].this
    joins = {id(j.this): j for j in top.node.args.get("joins") or ()}
    first, *others = top.streams
    if from_ is not first.node or any(id(i.node) not in joins for i in others):
        return None
    where = top.node.args.get("where")
    known = {first.alias}
    waiting = [c for c in conjuncts(where.this if where is not None else None) if c.find(exp.Query) is None]
    found = []
    for item in others:
        join = joins[id(item.node)]
        known.add(item.alias)
        conditions = conjuncts(join.args.get("on"))
        if not all(_only(c, known) for c in conditions):
            return None
        kind = "left" if str(join.args.get("side") or "").upper() == "LEFT" else "inner"
        if kind == "inner":
            # A time bound may stand in WHERE; Spark forgets events only by what it sees in the join.
            due = [c for c in waiting if _only(c, known) and any(x.table == item.alias for x in c.find_all(exp.Column))]
            conditions += due
        found.append(_Part(item, kind, tuple(conditions)))
    return found


def _names(streams: Sequence[Item]) -> Names:
    """The prefix of each stream's columns in the rows that come of joining them all."""
    last = len(streams) - 1
    return {
        item.alias: PREFIXES[0] * (last - number) + (PREFIXES[1] if number else "")
        for number, item in enumerate(streams)
    }


def _join(streams: Sequence[Item], parts: Sequence[_Part], level: int, id_: str) -> StreamJoin:
    """The join that adds a stream to those before it."""
    part, before = parts[level], streams[: level + 1]
    names = _names(streams[: level + 2])
    conditions = [_renamed(c.copy(), names, None) for c in part.conditions]
    right = _side(part.item, part.conditions)
    left = _side(before[0], part.conditions) if not level else _pairs(before, parts[:level], part, f"{id_}_{level}")
    return StreamJoin(left, right, part.kind, exp.and_(*conditions) if conditions else exp.true())


def _side(item: Item, conditions: Sequence[exp.Expr]) -> StreamSide:
    query = item.node.this.copy() if isinstance(item.node, exp.Subquery) else _everything()
    watermark = item.relation.watermark if item.relation is not None else None
    if watermark is not None:
        return StreamSide(item.drivers[0], query, watermark.column.text, watermark.delay_us)
    times = _times(item, conditions)
    return StreamSide(item.drivers[0], query, times[0] if times else None, 0)


def _pairs(before: Sequence[Item], inner: Sequence[_Part], part: _Part, source: str) -> StreamSide:
    """The rows of the joins before as one side; their time is the one that the next join compares."""
    names = _names(before)
    for item in before:
        for time in _times(item, part.conditions):
            watermark = item.relation.watermark if item.relation is not None else None
            delay_us = (watermark.delay_us if watermark is not None else 0) + sum(_bound_us(p) for p in inner)
            return StreamSide(source, _everything(), names[item.alias] + time, delay_us)
    return StreamSide(source, _everything(), None, 0)


def _times(item: Item, conditions: Sequence[exp.Expr]) -> list[str]:
    """The times of a stream that conditions look at."""
    columns = (c for condition in conditions for c in condition.find_all(exp.Column) if c.table == item.alias)
    return [c.name for c in columns if str(type_of(c)).startswith("timestamp")]


def _bound_us(part: _Part) -> int:
    """How far apart the times of two joined events can be, as far as the conditions say."""
    found = [interval(as_expression(node)) for c in part.conditions for node in c.find_all(exp.Interval)]
    values = [term.value for term in found if isinstance(term, Constant)]
    return max((abs(v.microseconds) for v in values if isinstance(v, Interval)), default=0)


def _watermark(
    aggregate: AggregatePlan | None, streams: Sequence[Item], parts: Sequence[_Part], names: Names
) -> Watermark | None:
    """The watermark of a window over joined rows: that of the stream whose time it is cut by, later by what a partner
    may be away."""
    if aggregate is None or aggregate.window is None:
        return None
    time = next(e.unalias() for e in aggregate.rows.expressions if e.alias == TIME)
    item = next((i for i in streams if isinstance(time, exp.Column) and i.alias == time.table), None)
    found = item.relation.watermark if item is not None and item.relation is not None else None
    if item is None or found is None:
        return None
    column = replace(found.column, text=f"{names[item.alias]}{found.column.text}", quoted=True)
    return replace(found, column=column, delay_us=found.delay_us + sum(_bound_us(p) for p in parts))


def _over_joined(query: exp.Query, streams: Sequence[Item], names: Names) -> exp.Query:
    """The query over the joined rows; its outputs keep their names."""
    over = query.copy()
    assert isinstance(over, exp.Select)
    aliases = {item.alias for item in streams}
    alias = exp.TableAlias(this=exp.to_identifier(JOINED))
    over.args["from_"].set("this", exp.Table(this=exp.to_identifier(BATCH, quoted=True), alias=alias))
    over.set("joins", [j for j in over.args["joins"] if j.this.alias_or_name not in aliases])
    outputs = [e if isinstance(e, exp.Alias) else exp.alias_(e, e.alias_or_name, quoted=True) for e in over.expressions]
    over.set("expressions", outputs)
    found = _renamed(over, names, JOINED)
    assert isinstance(found, exp.Query)
    return found


def _only(expression: exp.Expr, known: set[str]) -> bool:
    return all(c.table in known for c in expression.find_all(exp.Column))


def _renamed(expression: exp.Expr, names: Names, table: str | None) -> exp.Expr:
    """Columns of the streams under the names that they have in the joined rows."""

    def placed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table not in names:
            return node
        made = exp.column(f"{names[node.table]}{node.name}", table=table, quoted=True)
        made.meta.update(node.meta)
        return made

    return expression.transform(placed)


def _everything() -> exp.Select:
    return exp.select("*").from_(exp.to_table(BATCH))


def join_id(item: Planned, occurrence: int) -> str:
    """A flow of its own, known by its statement."""
    return f"{'__'.join(item.drivers)}_{short_hash(item.statement.text)}_{occurrence}"


def handing_over(flow: FlowPlan, first: Step) -> tuple[tuple[str, Step], ...]:
    """For each side of a join the step that hands its events over, and the source or flow that does; `first` is the
    statement that it is for."""
    assert flow.join is not None
    made = []
    for number, side in enumerate((flow.join.left, flow.join.right)):
        target = f"{flow.id}:{number}"
        step = Step(first.index, StepKind.RELAY, first.place, target, side.query, Schema(()), options=first.options)
        made.append((side.source, replace(step, statement=first.statement)))
    return tuple(made)
