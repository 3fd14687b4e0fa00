"""Joins of two streams: each stream's own flow hands its events over, and Spark's join of the two drives a flow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.plan.bound import BoundQuery
from millpond.plan.context import Planned
from millpond.plan.model import BATCH, FlowPlan, Step, StepKind, StreamJoin, StreamSide
from millpond.plan.scope import Item
from millpond.plan.sources import short_hash
from millpond.plan.typed import type_of
from millpond.schema import Schema

JOINED = "__joined"
PREFIXES = ("l_", "r_")
# What a joined stream can drive so far.
KINDS = (StepKind.SINK, StepKind.INSERT, StepKind.UPSERT, StepKind.APPEND)


@dataclass(frozen=True)
class Split:
    """A statement over two streams taken apart: their join, and the query over what it yields."""

    join: StreamJoin
    query: exp.Select


def split_join(item: Planned) -> Split | None:
    """The parts of a statement over two streams; None when it is none, or one of a shape that cannot run."""
    top = item.bound.top if item.bound is not None else None
    if item.bound is None or top is None or len(item.drivers) != 2 or len(top.streams) != 2:
        return None
    if item.kind not in KINDS or item.aggregate is not None or item.condition is not None:
        return None
    joins = top.node.args.get("joins") or []
    left, right = top.streams
    if top.node.args["from_"].this is not left.node or not joins or joins[0].this is not right.node:
        return None
    if any(len(i.drivers) != 1 or i.drivers[0].startswith("changes(") for i in (left, right)):
        return None
    return _split(item.bound, left, right, joins[0])


def _split(bound: BoundQuery, left: Item, right: Item, join: exp.Join) -> Split:
    names = {left.alias: PREFIXES[0], right.alias: PREFIXES[1]}
    conditions = [join.args["on"]] if join.args.get("on") is not None else []
    kind = "left" if str(join.args.get("side") or "").upper() == "LEFT" else "inner"
    where = bound.query.args.get("where")
    if kind == "inner" and where is not None:
        # A time bound may stand in WHERE; Spark forgets events only by what it sees in the join.
        parts = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
        conditions += [p for p in parts if p.find(exp.Query) is None and _only(p, names)]
    condition = exp.and_(*(_renamed(c.copy(), names, None) for c in conditions)) if conditions else exp.true()
    sides = [_side(i, conditions) for i in (left, right)]
    query = bound.query.copy()
    assert isinstance(query, exp.Select)
    alias = exp.TableAlias(this=exp.to_identifier(JOINED))
    query.args["from_"].set("this", exp.Table(this=exp.to_identifier(BATCH, quoted=True), alias=alias))
    query.set("joins", query.args["joins"][1:])
    return Split(StreamJoin(sides[0], sides[1], kind, condition), _residual(query, names))


def _residual(query: exp.Select, names: dict[str, str]) -> exp.Select:
    """The query over the joined rows; its outputs keep their names."""
    outputs = [
        e if isinstance(e, exp.Alias) else exp.alias_(e, e.alias_or_name, quoted=True) for e in query.expressions
    ]
    query.set("expressions", outputs)
    found = _renamed(query, names, JOINED)
    assert isinstance(found, exp.Select)
    return found


def _only(expression: exp.Expr, names: dict[str, str]) -> bool:
    return all(c.table in names for c in expression.find_all(exp.Column))


def _renamed(expression: exp.Expr, names: dict[str, str], table: str | None) -> exp.Expr:
    """Columns of the two streams under the names that they have in the joined rows."""

    def placed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table not in names:
            return node
        made = exp.column(f"{names[node.table]}{node.name}", table=table, quoted=True)
        made.meta.update(node.meta)
        return made

    return expression.transform(placed)


def _side(item: Item, conditions: list[exp.Expr]) -> StreamSide:
    query = item.node.this.copy() if isinstance(item.node, exp.Subquery) else exp.select("*").from_(_batch())
    watermark = item.relation.watermark if item.relation is not None else None
    if watermark is not None:
        return StreamSide(item.drivers[0], query, watermark.column.text, watermark.delay_us)
    columns = (c for condition in conditions for c in condition.find_all(exp.Column) if c.table == item.alias)
    times = [c.name for c in columns if str(type_of(c)).startswith("timestamp")]
    return StreamSide(item.drivers[0], query, times[0] if times else None, 0)


def _batch() -> exp.Table:
    return exp.to_table(BATCH)


def join_id(item: Planned, occurrence: int) -> str:
    """A flow of its own, known by its statement."""
    return f"{'__'.join(item.drivers)}_{short_hash(item.statement.text)}_{occurrence}"


def handing_over(flow: FlowPlan) -> tuple[tuple[str, Step], ...]:
    """For each of the two sources the step that hands its events over to the join."""
    assert flow.join is not None
    first = flow.steps[0]
    made = []
    for number, side in enumerate((flow.join.left, flow.join.right)):
        target = f"{flow.id}:{number}"
        step = Step(first.index, StepKind.RELAY, first.place, target, side.query, Schema(()), options=first.options)
        made.append((side.source, replace(step, statement=first.statement)))
    return tuple(made)
