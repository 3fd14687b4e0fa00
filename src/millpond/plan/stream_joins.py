"""Planning of joins of streams, pairwise: each stream's flow passes its events to a flow that Spark's join drives.

With a third stream, the joined rows are passed on to the next join. The columns of a stream have a prefix in the rows
of a join: `l_` for the left side, `r_` for the right side, and one more `l_` for every further join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.expressions.literals import interval
from millpond.expressions.terms import Constant, Interval
from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.bound import Item, Joined
from millpond.plan.context import Context, JoinedStream, Planned
from millpond.plan.definition import plain_text
from millpond.plan.expression_types import as_expression, type_of
from millpond.plan.join_parts import OF, Apart, Part
from millpond.plan.model import BATCH, FlowPlan, Step, StepKind, StreamJoin, StreamSide
from millpond.plan.source_catalog import short_hash
from millpond.schema import Schema
from millpond.sql.statements import Watermark

JOINED = "__joined"
PREFIXES = ("l_", "r_")

Names = dict[str, str]


@dataclass(frozen=True)
class Split:
    """A split statement over streams: their joins, innermost first, and its query over the joined rows; `watermark` is
    on a column of these."""

    joins: tuple[StreamJoin, ...]
    query: exp.Query
    aggregate: AggregatePlan | None
    condition: exp.Expression | None
    watermark: Watermark | None


def split_join(item: Planned, apart: Apart, id_: str) -> Split:
    """The parts of a statement over several streams, as flows whose ids start with `id_`."""
    assert item.bound is not None
    names = names_of(apart)
    aggregate = item.aggregate
    if aggregate is not None:
        rows = over_joined(aggregate.rows, apart)
        assert isinstance(rows, exp.Select)
        aggregate = replace(aggregate, rows=rows)
    condition = None if item.condition is None else as_expression(_renamed(item.condition.copy(), names, JOINED))
    query, watermark = over_joined(item.bound.query, apart), _window_watermark(item.aggregate, apart)
    return Split(joins_of(apart, id_), query, aggregate, condition, watermark)


def join_stream(apart: Apart, name: str, context: Context) -> Joined:
    """A join of streams as a stream: statements over it are steps of the flow that it drives. Its id depends on what it
    joins, so that the same join in two places is one flow."""
    passed_on = apart.select.passed_on()
    below = watermark_of(apart, passed_on[0]) if passed_on is not None else None
    watermark = replace(passed_on[1], delay_us=below.delay_us) if passed_on is not None and below is not None else None
    drivers = tuple(item.drivers[0] for item in apart.streams)
    shape = [(j.left.query.sql(), j.right.query.sql(), j.kind, j.condition.sql()) for j in joins_of(apart, "")]
    id_ = f"{'__'.join(drivers)}_{short_hash(repr((shape, below.column.text if below else None)))}"
    if below is not None:
        context.watermarks[id_] = below
    held = context.joins.get(id_)
    known = name or (held.name if held is not None else "")
    context.joins[id_] = JoinedStream(known, context.behind(drivers), joins_of(apart, id_))
    return Joined(over_joined(apart.select.node, apart), id_, watermark)


def joins_of(apart: Apart, id_: str) -> tuple[StreamJoin, ...]:
    """The joins, innermost first, as flows whose ids start with `id_`."""
    return tuple(_join(apart, level, id_) for level in range(len(apart.parts)))


def names_of(apart: Apart, level: int | None = None) -> Names:
    """The prefix of each relation's columns in the rows of a join; by default of the last one."""
    last = len(apart.parts) if level is None else level + 1
    names = {
        item.alias: PREFIXES[0] * (last - number) + (PREFIXES[1] if number else "")
        for number, item in enumerate(apart.streams[: last + 1])
    }
    for number, part in enumerate(apart.parts[:last]):
        names |= {t.item.alias: f"{PREFIXES[0] * (last - number)}{t.item.alias}{OF}" for t in part.tables}
    return names


def _join(apart: Apart, level: int, id_: str) -> StreamJoin:
    """The join that adds a stream to those before it."""
    part = apart.parts[level]
    conditions = [_renamed(c.copy(), names_of(apart, level), None) for c in part.conditions]
    right = _side(part.item, part.conditions)
    left = _pairs(apart, level, f"{id_}_{level}") if level else _side(apart.streams[0], part.conditions)
    if part.tables:
        left = replace(left, query=_with_tables(apart, level))
    return StreamJoin(left, right, part.kind, exp.and_(*conditions) if conditions else exp.true())


def _side(item: Item, conditions: Sequence[exp.Expr]) -> StreamSide:
    query = item.node.this.copy() if isinstance(item.node, exp.Subquery) else _everything()
    if item.watermark is not None:
        return StreamSide(item.drivers[0], query, item.watermark.column.text, item.watermark.delay_us)
    times = _times(item, conditions)
    return StreamSide(item.drivers[0], query, times[0] if times else None, 0)


def _pairs(apart: Apart, level: int, source: str) -> StreamSide:
    """The rows of the previous joins as one side; their time is the one that the next join compares."""
    names = names_of(apart, level - 1)
    for item in apart.streams[: level + 1]:
        for time in _times(item, apart.parts[level].conditions):
            delay_us = item.watermark.delay_us if item.watermark is not None else 0
            delay_us += sum(_bound_us(p) for p in apart.parts[:level])
            return StreamSide(source, _everything(), names[item.alias] + time, delay_us)
    return StreamSide(source, _everything(), None, 0)


def _with_tables(apart: Apart, level: int) -> exp.Select:
    """The query for a join whose conditions read tables: the events, or the rows joined so far, joined with the
    tables."""
    tables = apart.parts[level].tables
    joins: list[exp.Expr] = [table.join for table in tables]
    outputs = [
        exp.alias_(exp.column(name, table=t.item.alias, quoted=True), f"{t.item.alias}{OF}{name}", quoted=True)
        for t in tables
        for name in t.columns
    ]
    if level:
        alias = JOINED
        joins = [_renamed(join.copy(), names_of(apart, level - 1), JOINED) for join in joins]
        from_: exp.Expr = _joined_rows()
    else:
        alias, from_ = apart.streams[0].alias, apart.streams[0].node.copy()
    every = exp.Column(this=exp.Star(), table=exp.to_identifier(alias, quoted=True))
    made = exp.Select(expressions=[every, *outputs])
    made.set("from_", exp.From(this=from_))
    made.set("joins", joins)
    return made


def _times(item: Item, conditions: Sequence[exp.Expr]) -> list[str]:
    """The time columns of a stream in conditions."""
    columns = (c for condition in conditions for c in condition.find_all(exp.Column) if c.table == item.alias)
    return [c.name for c in columns if str(type_of(c)).startswith("timestamp")]


def _bound_us(part: Part) -> int:
    """The maximal distance between the times of two joined events, by the conditions."""
    found = [interval(as_expression(node)) for c in part.conditions for node in c.find_all(exp.Interval)]
    values = [term.value for term in found if isinstance(term, Constant)]
    return max((abs(v.microseconds) for v in values if isinstance(v, Interval)), default=0)


def _window_watermark(aggregate: AggregatePlan | None, apart: Apart) -> Watermark | None:
    """The watermark of windows over joined rows: that of the stream whose time they use."""
    if aggregate is None or aggregate.time is None:
        return None
    time = next(e.unalias() for e in aggregate.rows.expressions if e.alias == aggregate.time)
    item = next((i for i in apart.streams if isinstance(time, exp.Column) and i.alias == time.table), None)
    return watermark_of(apart, item) if item is not None else None


def watermark_of(apart: Apart, item: Item) -> Watermark | None:
    """The watermark of a stream on its column in the joined rows, delayed by the maximal distance of a match."""
    found = item.watermark
    if found is None:
        return None
    column = replace(found.column, text=f"{names_of(apart)[item.alias]}{found.column.text}", quoted=True)
    return replace(found, column=column, delay_us=found.delay_us + sum(_bound_us(p) for p in apart.parts))


def over_joined(query: exp.Query, apart: Apart) -> exp.Query:
    """The query over the joined rows; its outputs keep their names."""
    over = query.copy()
    assert isinstance(over, exp.Select)
    names = names_of(apart)
    over.args["from_"].set("this", _joined_rows())
    over.set("joins", [j for j in over.args["joins"] if j.this.alias_or_name not in names])
    outputs = [e if isinstance(e, exp.Alias) else exp.alias_(e, e.alias_or_name, quoted=True) for e in over.expressions]
    over.set("expressions", outputs)
    for condition in apart.rest:
        over.where(condition.copy(), copy=False)
    found = _renamed(over, names, JOINED)
    assert isinstance(found, exp.Query)
    return found


def _joined_rows() -> exp.Table:
    alias = exp.TableAlias(this=exp.to_identifier(JOINED))
    return exp.Table(this=exp.to_identifier(BATCH, quoted=True), alias=alias)


def _renamed(expression: exp.Expr, names: Names, table: str | None) -> exp.Expr:
    """The expression with the columns of the streams renamed to those of the joined rows."""

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
    """The id of the flow of a statement that is itself a join."""
    return f"{'__'.join(item.drivers)}_{short_hash(plain_text(item.statement))}_{occurrence}"


def handing_over(flow: FlowPlan, first: Step) -> tuple[tuple[str, Step], ...]:
    """For each side of a join the step that passes its events, and its source or flow; `first` is the statement that
    the join belongs to."""
    assert flow.join is not None
    made = []
    for number, side in enumerate((flow.join.left, flow.join.right)):
        target = f"{flow.id}:{number}"
        step = Step(first.index, StepKind.RELAY, first.place, target, side.query, Schema(()), options=first.options)
        made.append((side.source, replace(step, reads=first.reads, statement=first.statement)))
    return tuple(made)
