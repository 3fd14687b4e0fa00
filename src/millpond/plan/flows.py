"""Flows: what each stream drives, in the order in which they catch up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from millpond.plan.access import choose_access, without_hints
from millpond.plan.context import Context, Planned
from millpond.plan.hidden import following_step
from millpond.plan.missing import waits_of
from millpond.plan.model import AWAITING, ChangesPlan, FlowPlan, Step, StepKind, TableKind, TablePlan
from millpond.plan.one_shots import one_shot_id
from millpond.plan.sources import short_hash
from millpond.plan.stream_joins import Split, handing_over, join_id, split_join
from millpond.schema import Schema

# How the driver of CHANGES(table) is called.
CHANGES = "changes("
INTO_TABLES = (
    StepKind.INSERT,
    StepKind.UPSERT,
    StepKind.UPDATE,
    StepKind.DELETE,
    StepKind.AGGREGATE,
    StepKind.APPEND,
    StepKind.LATEST,
)


def make_flows(planned: Iterable[Planned], context: Context) -> tuple[FlowPlan, ...]:
    """One flow per stream, its steps in the order of the file."""
    by_drivers: dict[tuple[str, ...], list[Planned]] = {}
    joins: list[FlowPlan] = []
    relays: list[tuple[str, Step]] = []
    items = list(planned)
    for item in items:
        if not item.drivers or item.kind is None or _tells_changes(item):
            continue
        id_ = join_id(item, _occurrence(item, items))
        split = split_join(item, id_)
        if split is None:
            by_drivers.setdefault(item.drivers, []).append(item)
            continue
        made = _joining(item, split, id_, context)
        relays += [relay for flow in made for relay in handing_over(flow, made[-1].steps[0])]
        joins += made
    flows = {drivers: _flow(drivers, found, context) for drivers, found in by_drivers.items()}
    for source, step in relays:
        if any(join.id == source for join in joins):
            joins = [replace(j, steps=(*j.steps, step)) if j.id == source else j for j in joins]
            continue
        flow = flows.get((source,)) or _flow((source,), [], context)
        flows[(source,)] = replace(flow, steps=(*flow.steps, step))
    for table in _followed(items, context):
        flow = flows.get((table.name,)) or _flow((table.name,), [], context)
        flows[(table.name,)] = replace(flow, steps=(following_step(table), *flow.steps))
    return (*flows.values(), *joins)


def _followed(items: Iterable[Planned], context: Context) -> list[TablePlan]:
    """The tables without a name that flows keep and a statement reads."""
    read = {name.lower() for item in items if item.bound is not None for name in item.bound.tables}
    return [t for name, t in context.hidden.items() if t.kind is TableKind.AGGREGATE and name in read]


def _joining(item: Planned, split: Split, id_: str, context: Context) -> list[FlowPlan]:
    """The flows that joins of streams drive: the last one its statement, those before it the next join."""
    flow = _flow(item.drivers, [item], context)
    step = replace(flow.steps[0], query=without_hints(split.query), aggregate=split.aggregate)
    if step.condition is not None:
        step = replace(step, condition=split.condition)
    made = []
    for number, join in enumerate(split.joins, 1):
        name = " + ".join(_name(source, context) for source in split.sources[: number + 1])
        joined = split.sources[1 : number + 1]
        made.append(replace(flow, id=f"{id_}_{number}", name=name, steps=(), watermark=None, joined=joined, join=join))
    made[-1] = replace(made[-1], id=id_, steps=(step,), watermark=split.watermark)
    return made


def _tells_changes(item: Planned) -> bool:
    return len(item.drivers) == 1 and item.drivers[0].startswith(CHANGES)


def make_changes(planned: Iterable[Planned]) -> tuple[ChangesPlan, ...]:
    """The statements that the changes of one table drive."""
    items = [item for item in planned if item.kind is not None and _tells_changes(item)]
    made = []
    for item in items:
        number = _occurrence(item, items)
        table = item.drivers[0].removeprefix(CHANGES).removesuffix(")")
        made.append(ChangesPlan(one_shot_id(item.statement, number), table, _step(item, number)))
    return tuple(made)


def _flow(drivers: tuple[str, ...], items: list[Planned], context: Context) -> FlowPlan:
    names = [_name(driver, context) for driver in drivers]
    return FlowPlan(
        "__".join(drivers),
        " + ".join(names),
        drivers[0],
        tuple(_step(item, _occurrence(item, items)) for item in items),
        context.watermarks.get(drivers[0]),
        context.options_for(drivers, {}),
        drivers[1:],
    )


def _name(driver: str, context: Context) -> str:
    """The declared stream of a source; for a bare URI the first stream made of it, else the source's own name."""
    of_source = [s for s in context.streams.values() if s.source == driver]
    named = next((s.name for s in of_source if not s.derived), None) or next((s.name for s in of_source), None)
    return named or (context.sources[driver].plan.name if driver in context.sources else driver)


def _occurrence(item: Planned, items: list[Planned]) -> int:
    """Which one among the flow's statements of the same text it is."""
    return [i.index for i in items if i.statement.text == item.statement.text].index(item.index) + 1


def _step(item: Planned, occurrence: int) -> Step:
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
        choose_access(item.bound),
        item.aggregate,
        item.options,
        item.statement,
        item.condition if item.kind is StepKind.UPSERT else None,
        f"{AWAITING}{short_hash(item.statement.text)}_{occurrence}" if waits else "",
        item.message_key,
    )


def writes(flow: FlowPlan) -> set[str]:
    """The tables that a flow changes."""
    return {s.target.lower() for s in flow.steps if s.kind in INTO_TABLES}


def reads(flow: FlowPlan, tables: Mapping[str, TablePlan]) -> set[str]:
    """The tables that a flow reads, what is behind views included."""
    found: set[str] = set()
    waiting = [name.lower() for name in flow.reads]
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
