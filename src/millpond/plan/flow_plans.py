"""Planning of flows: the statements that each stream drives, in the order in which flows catch up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlglot import exp

from millpond.plan.context import Context, Planned
from millpond.plan.definition import plain_text
from millpond.plan.hidden_tables import following_step
from millpond.plan.join_parts import Apart, Refusal, take_apart
from millpond.plan.missing import waits_of
from millpond.plan.model import AWAITING, ChangesPlan, FlowPlan, Step, StepKind, StreamJoin, TableKind, TablePlan
from millpond.plan.over_model import OVER
from millpond.plan.over_streams import OverRefusal, over_select, plan_over, ranks_windows, with_groups
from millpond.plan.row_parts import reads_table
from millpond.plan.source_catalog import short_hash
from millpond.plan.statement_groups import groups_of
from millpond.plan.stream_joins import handing_over, join_id, split_join
from millpond.plan.table_access import Ways, access_of, choose_access, without_hints
from millpond.schema import Schema
from millpond.sql.statements import CreateIndex

# The prefix of the driver of CHANGES(table).
CHANGES = "changes("
INTO_TABLES = (
    StepKind.INSERT,
    StepKind.UPSERT,
    StepKind.UPDATE,
    StepKind.DELETE,
    StepKind.MERGE,
    StepKind.AGGREGATE,
    StepKind.APPEND,
    StepKind.LATEST,
)


def make_flows(planned: Iterable[Planned], context: Context) -> tuple[FlowPlan, ...]:
    """One flow per stream, its steps in the order of the file."""
    by_drivers: dict[tuple[str, ...], list[Planned]] = {}
    joins: list[FlowPlan] = []
    items = list(planned)
    for item in items:
        if not item.drivers or item.kind is None or _emits_changes(item):
            continue
        apart = _apart(item, context)
        if apart is None:
            by_drivers.setdefault(item.drivers, []).append(item)
        else:
            joins += _joining(item, apart, join_id(item, _occurrence(item, items)), context)
    flows: dict[tuple[str, ...], FlowPlan] = {}
    for drivers, found in by_drivers.items():
        flow = _flow(drivers, found, context)
        if drivers[0] in context.joins and len(drivers) == 1:
            joins += _chain(flow, drivers[0], context.joins[drivers[0]].joins, context)
        else:
            flows[drivers] = flow
    _hand_over(flows, joins, context)
    for table in _followed(items, context):
        flow = flows.get((table.name,)) or _flow((table.name,), [], context)
        flows[(table.name,)] = replace(flow, steps=(following_step(table), *flow.steps))
    made = tuple(_with_over(flow, context) for flow in (*flows.values(), *joins))
    # An invalid statement has no rows to order.
    return made if context.findings.errors else tuple(_grouped(flow, context) for flow in made)


# Statements that may have window functions over their stream.
_OVER_KINDS = (StepKind.SINK, StepKind.INSERT, StepKind.UPSERT, StepKind.APPEND, StepKind.AGGREGATE)
# Those that may have them in a derived stream, before the events are matched with rows of the table.
_OVER_INSIDE = (StepKind.UPDATE, StepKind.DELETE, StepKind.MERGE)


def _with_over(flow: FlowPlan, context: Context) -> FlowPlan:
    """The flow with the plans of the window functions of its statements."""
    steps: list[Step] = []
    for step in flow.steps:
        try:
            steps.append(_over_step(step, flow, steps, context))
        except OverRefusal as refusal:
            context.findings.error("MP220", refusal.message, refusal.node, refusal.hint)
            steps.append(step)
    return replace(flow, steps=tuple(steps))


def _over_step(step: Step, flow: FlowPlan, before: Iterable[Step], context: Context) -> Step:
    query = step.aggregate.rows if step.aggregate is not None else step.query
    select = over_select(query)
    if select is None and step.aggregate is not None and (grouped := over_select(step.query)) is not None:
        if step.kind is StepKind.SINK and ranks_windows(step.aggregate):
            return step
        raise with_groups(grouped)
    if select is None or step.statement is None:
        return step
    inside = step.kind in _OVER_INSIDE and select is not query
    if not (inside or (step.kind in _OVER_KINDS and step.condition is None)) or step.waiting:
        message = "Window functions over a stream are not supported in this statement."
        hint = "Write them in a stream, CREATE STREAM s AS SELECT ... OVER (...), and use that stream here."
        raise OverRefusal(message, select, hint)
    number = sum(1 for s in before if s.over is not None and s.statement is not None and _same(s, step)) + 1
    table = context.tables.get(step.target.lower()) if step.kind in (StepKind.APPEND, StepKind.AGGREGATE) else None
    options = {**step.options, **({"retention": table.options.get("retention")} if table is not None else {})}
    name = f"{OVER}{short_hash(flow.id + plain_text(step.statement))}_{number}"
    planned = plan_over(query, name, options)
    assert planned is not None
    plan, outer = planned
    if reads_table(plan.rows, step.target):
        message = f"Window functions over a stream cannot be combined with a read of '{step.target}', which is changed."
        hint = "Read it in an outer query: SELECT ... FROM (SELECT ... OVER (...) FROM s) x WHERE NOT EXISTS (...)."
        raise OverRefusal(message, select, hint)
    if plan.waits and flow.watermark is None:
        message = "'over.wait' = 'watermark' requires a stream with a watermark."
        raise OverRefusal(message, select, "Declare it: WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS.")
    if step.aggregate is not None:
        assert isinstance(outer, exp.Select)
        return replace(step, aggregate=replace(step.aggregate, rows=outer), over=plan)
    return replace(step, query=outer, over=plan)


def _same(one: Step, other: Step) -> bool:
    assert one.statement is not None
    assert other.statement is not None
    return plain_text(one.statement) == plain_text(other.statement)


def _grouped(flow: FlowPlan, context: Context) -> FlowPlan:
    return replace(flow, groups=groups_of(flow, context.tables))


def _apart(item: Planned, context: Context) -> Apart | None:
    """The parts of a statement that is itself a join of streams."""
    top = item.bound.top if item.bound is not None else None
    apart = take_apart(top) if top is not None and len(top.streams) > 1 else None
    if isinstance(apart, Refusal):
        context.findings.error("MP218", apart.message, apart.at.at, apart.hint)
    return apart if isinstance(apart, Apart) else None


def _hand_over(flows: dict[tuple[str, ...], FlowPlan], joins: list[FlowPlan], context: Context) -> None:
    """Add each side of a join as a step of the flow of its events; a flow is created if the source has none yet."""
    waiting = [(flow, _first_step(flow, joins)) for flow in joins]
    while waiting:
        flow, first = waiting.pop(0)
        for source, step in handing_over(flow, first):
            number = next((n for n, join in enumerate(joins) if join.id == source), None)
            if number is not None:
                joins[number] = replace(joins[number], steps=(*joins[number].steps, step))
            elif source in context.joins:
                made = _chain(_flow((source,), [], context), source, context.joins[source].joins, context)
                joins += [*made[:-1], replace(made[-1], steps=(step,))]
                waiting += [(join, first) for join in made]
            else:
                held = flows.get((source,)) or _flow((source,), [], context)
                flows[(source,)] = replace(held, steps=(*held.steps, step))
    ways = ways_of(context)
    joins[:] = [_reading(join, ways) for join in joins]
    flows.update({drivers: _reading(flow, ways) for drivers, flow in flows.items()})


def ways_of(context: Context) -> Ways:
    """The columns by which the tables of a file can be looked up."""
    added: dict[str, tuple[tuple[str, ...], ...]] = {}
    for item in context.planned:
        if isinstance(item.statement, CreateIndex):
            name, columns = item.statement.table.key, tuple(column.text for column in item.statement.columns)
            added[name] = (*added.get(name, ()), columns)
    return Ways.of((context.hidden | context.tables).values(), added)


def _reading(flow: FlowPlan, ways: Ways) -> FlowPlan:
    """The flow with the accesses of each step, for statements that were split into several steps."""
    steps = (
        replace(s, reads=access_of(s.query, s.reads, ways)) if flow.join or s.kind is StepKind.RELAY else s
        for s in flow.steps
    )
    return replace(flow, steps=tuple(steps))


def _first_step(flow: FlowPlan, joins: list[FlowPlan]) -> Step:
    """The first statement that a join belongs to: its own, or that of the outer join."""
    number = joins.index(flow)
    return next(join.steps[0] for join in joins[number:] if join.steps)


def _followed(items: Iterable[Planned], context: Context) -> list[TablePlan]:
    """The unnamed tables that flows maintain and a statement reads."""
    read = {name.lower() for item in items if item.bound is not None for name in item.bound.tables}
    return [t for name, t in context.hidden.items() if t.kind is TableKind.AGGREGATE and name in read]


def _joining(item: Planned, apart: Apart, id_: str, context: Context) -> list[FlowPlan]:
    """The flows of joins of streams: the last one runs the statement, the others feed the next join."""
    split = split_join(item, apart, id_)
    flow = _flow(item.drivers, [item], context)
    query = without_hints(split.query)
    step = replace(flow.steps[0], query=query, aggregate=split.aggregate)
    if step.condition is not None:
        step = replace(step, condition=split.condition)
    made = _chain(replace(flow, steps=(step,), watermark=split.watermark), id_, split.joins, context)
    names = [_name(item.drivers[0], context) for item in apart.streams]
    return [replace(f, name=" + ".join(names[: number + 2])) for number, f in enumerate(made)]


def _chain(flow: FlowPlan, id_: str, joins: tuple[StreamJoin, ...], context: Context) -> list[FlowPlan]:
    """The flow of the last join, after those of the joins before it."""
    made: list[FlowPlan] = []
    sources: tuple[str, ...] = ()
    for number, join in enumerate(joins, 1):
        sides = (join.left.source, join.right.source) if not made else (join.right.source,)
        sources += tuple(source for side in sides for source in context.behind((side,)))
        part = replace(flow, source=sources[0], joined=sources[1:], join=join)
        made.append(replace(part, id=f"{id_}_{number}", steps=(), watermark=None))
    made[-1] = replace(part, id=id_)
    return made


def _emits_changes(item: Planned) -> bool:
    return len(item.drivers) == 1 and item.drivers[0].startswith(CHANGES)


def make_changes(planned: Iterable[Planned], context: Context) -> tuple[ChangesPlan, ...]:
    """The statements that the changes of one table drive."""
    items = [item for item in planned if item.kind is not None and _emits_changes(item)]
    made, ways = [], ways_of(context)
    for item in items:
        number = _occurrence(item, items)
        table = item.drivers[0].removeprefix(CHANGES).removesuffix(")")
        id_ = f"{short_hash(plain_text(item.statement))}-{number}"
        made.append(ChangesPlan(id_, table, _step(item, number, ways)))
    return tuple(made)


def _flow(drivers: tuple[str, ...], items: list[Planned], context: Context) -> FlowPlan:
    sources, ways = context.behind(drivers), ways_of(context)
    return FlowPlan(
        "__".join(drivers),
        " + ".join(_name(driver, context) for driver in drivers),
        sources[0],
        tuple(_step(item, _occurrence(item, items), ways) for item in items),
        context.watermarks.get(drivers[0]),
        context.options_for(drivers, {}),
        sources[1:],
    )


def _name(driver: str, context: Context) -> str:
    """The declared stream of a source; for a bare URI the first stream derived from it, else the source's own name."""
    if driver in context.joins:
        joined = context.joins[driver]
        return joined.name or " + ".join(_name(source, context) for source in joined.sources)
    of_source = [s for s in context.streams.values() if s.source == driver]
    named = next((s.name for s in of_source if not s.derived), None) or next((s.name for s in of_source), None)
    return named or (context.sources[driver].plan.name if driver in context.sources else driver)


def _occurrence(item: Planned, items: list[Planned]) -> int:
    """Its number among the flow's statements of the same text."""
    return [i.index for i in items if plain_text(i.statement) == plain_text(item.statement)].index(item.index) + 1


def _step(item: Planned, occurrence: int, ways: Ways) -> Step:
    assert item.bound is not None
    assert item.kind is not None
    waits = waits_of(item.bound.query)
    return Step(
        item.index,
        item.kind,
        item.statement.place,
        item.target,
        without_hints(item.bound.query),
        item.bound.schema or Schema(()),
        item.columns,
        choose_access(item.bound, ways),
        item.aggregate,
        item.options,
        item.statement,
        item.condition if item.kind is StepKind.UPSERT else None,
        f"{AWAITING}{short_hash(plain_text(item.statement))}_{occurrence}" if waits else "",
        item.message_key,
        item.branches,
        item.conflict,
    )


def writes(flow: FlowPlan) -> set[str]:
    """The tables that a flow changes."""
    return {s.target.lower() for s in flow.steps if s.kind in INTO_TABLES}


def reads(flow: FlowPlan, tables: Mapping[str, TablePlan]) -> set[str]:
    """The tables that a flow reads, including those read by views."""
    return behind_views({name.lower() for name in flow.reads}, tables)


def behind_views(names: set[str], tables: Mapping[str, TablePlan]) -> set[str]:
    """Tables, by their names in lower case, and all tables that the views among them read."""
    found: set[str] = set()
    waiting = sorted(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        plan = tables.get(name)
        if plan is not None and plan.kind is TableKind.VIEW:
            waiting += [a.table.lower() for a in plan.reads]
    return found


def ordered(flows: tuple[FlowPlan, ...], tables: Mapping[str, TablePlan]) -> tuple[FlowPlan, ...]:
    """In the order of first statements, but a flow that only reads a table comes after those that feed it."""
    waiting = list(flows)
    done: list[FlowPlan] = []
    while waiting:
        ready = next((f for f in waiting if not _must_wait(f, waiting, tables)), waiting[0])
        waiting.remove(ready)
        done.append(ready)
    return tuple(done)


def _must_wait(flow: FlowPlan, waiting: list[FlowPlan], tables: Mapping[str, TablePlan]) -> bool:
    if flow.join is not None and any(s.target.startswith(f"{flow.id}:") for f in waiting for s in f.steps):
        return True
    needs = reads(flow, tables) - writes(flow)
    return any(other is not flow and needs & writes(other) for other in waiting)
