"""The plan told to people, as text; never with a secret in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millpond import registry
from millpond.contracts.source import without_identity
from millpond.options import find_option
from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.change_model import ChangeGroup
from millpond.plan.flows import INTO_TABLES
from millpond.plan.missing import joins_with_policy
from millpond.plan.model import (
    Access,
    ChangesPlan,
    FlowPlan,
    OneShot,
    Plan,
    SinkPlan,
    SourcePlan,
    Step,
    StepKind,
    StreamSide,
    TableKind,
    TablePlan,
)
from millpond.plan.upserts import compared_columns, matches_by_key
from millpond.schema import Schema, type_name

# How a table gets its rows, said in a sentence.
ORIGINS = {
    TableKind.DECLARED: "by statements",
    TableKind.LOADED: "loaded from {source}{watch}",
    TableKind.AGGREGATE: "kept up to date by {flow}",
    TableKind.VIEW: "a view, refreshed {refresh}",
    TableKind.HIDDEN: "loaded from {source}{watch}, for the statements that read it",
    TableKind.SYSTEM: "by Millpond: records and rows that were refused",
}

VERBS = {
    StepKind.INSERT: "insert into",
    StepKind.UPSERT: "upsert into",
    StepKind.UPDATE: "update",
    StepKind.DELETE: "delete from",
    StepKind.MERGE: "merge into",
    StepKind.AGGREGATE: "aggregate into",
    StepKind.LATEST: "keep the last of each key in",
    StepKind.APPEND: "append to",
    StepKind.SINK: "write to",
    StepKind.RELAY: "hand over to",
}

# What 'on.missing' comes to.
MISSING = {
    "nulls": "its columns are NULL",
    "skip": "the event is skipped",
    "default": "defaults take its place",
    "fail": "the statement fails",
    "wait": "the event waits for it",
}

# What 'on.table.missing' comes to, where it is not to wait.
MISSING_TABLE = {
    "fail": "the flow fails",
    "skip": "events are skipped",
    "nulls": "NULLs take the place of its columns",
    "default": "defaults take the place of its columns",
}
# What 'on.bad.record', 'late.rows' and 'on.error' come to; what is usual and goes without saying is left out.
BAD_RECORDS = {"skip": "it is skipped and counted", "fail": "the flow fails"}
LATE_ROWS = {"dead-letter": "to the dead letters", "drop": "dropped", "update": "the window is updated"}
FAILING_ROWS = {"dead-letter": "the row goes to the dead letters", "stop-app": "the app stops"}
BATCH_ROWS = "max.rows.per.batch"
# Where a statement stands in the file.
_WHERE = re.compile(r"  \(line \d+\)$")
# What the columns of joined rows start with.
OF_JOINS = re.compile(r"^([lr]_)+")


def explain_text(plan: Plan) -> str:
    """The plan for people: what is read, kept, driven and written, and why."""
    return _text(
        plan,
        ("Sources", [_source_line(s) for s in plan.sources]),
        ("Tables, in the order in which they are made", [line for t in plan.tables for line in _table_lines(t, plan)]),
        ("Views, written in where they are read", [f"{v.name}  over {', '.join(v.tables)}" for v in plan.views]),
        ("First, once", [_shot_line(s, plan) for s in plan.one_shots if not s.late]),
        ("Flows, in the order in which they catch up", [line for f in plan.flows for line in _flow_lines(f, plan)]),
        (
            "Told by changes of tables, in the commits that make them",
            [line for c in plan.changes for line in _changes_lines(c, plan)],
        ),
        ("After the flows have caught up", [_shot_line(s, plan) for s in plan.one_shots if s.late]),
        ("Sinks", [_sink_line(s) for s in plan.sinks]),
        ("To know", [line for p in plan.problems for line in str(p).splitlines()]),
    )


def explain_statement(plan: Plan) -> str:
    """The plan of one statement, as EXPLAIN prints it: what it does, and what it names."""
    return _text(
        plan,
        ("Statement", [line for s in plan.one_shots for line in _only_lines(s)]),
        ("Flow", [_WHERE.sub("", line) for f in plan.flows for line in _flow_lines(f, plan)]),
        ("Driven by changes", [_WHERE.sub("", line) for c in plan.changes for line in _changes_lines(c, plan)]),
        ("Tables", [line for t in plan.tables for line in _table_lines(t, plan)]),
        ("Sources", [_source_line(s) for s in plan.sources]),
        ("Sinks", [_sink_line(s) for s in plan.sinks if s.type != "terminal"]),
    )


def _text(plan: Plan, *sections: tuple[str, list[str]]) -> str:
    parts = [f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in sections if lines]
    return "\n\n".join([f"Plan of {plan.name}", *parts])


def _only_lines(shot: OneShot) -> Iterator[str]:
    yield f"{type(shot.statement).__name__.upper()} over tables"
    yield from (f"  {_access(access)}" for access in shot.reads)


def _sink_line(sink: SinkPlan) -> str:
    return f"{sink.spec.shown}  {sink.type}, {sink.guarantee}"


def _source_line(source: SourcePlan) -> str:
    columns = _columns(source.columns)
    how = "declared" if source.declared else "found"
    told = f"{how}: {columns}" if columns else "columns not known yet"
    return f"{source.name}  {source.spec.shown}, {source.mode}; {told}"


def _columns(schema: Schema | None) -> str:
    return ", ".join(f"{c.name} {type_name(c.type)}" for c in schema) if schema is not None else ""


def _table_lines(table: TablePlan, plan: Plan) -> Iterator[str]:
    shown, kept = without_identity(table.spec.schema), "kept by message key" if table.spec.schema.key else "no key"
    key = f"key ({', '.join(shown.key)})" if shown.key else kept
    yield f"{table.name}  {key}, {table.spec.backend}; {_origin(table, plan)}"
    if shown.columns:
        yield f"  columns: {_columns(shown)}"
    yield from (f"  {line}" for line in _storage(table))
    yield from (f"  constraint {check.name}: CHECK ({check.text})" for check in table.spec.schema.checks)
    for index in table.spec.indexes:
        yield f"  index ({', '.join(index)})"
    # How a view reads its tables depends on what was touched, which its first line tells.
    yield from (f"  {_access(a)}" for a in table.reads if table.kind is not TableKind.VIEW or a.hinted)


def _storage(table: TablePlan) -> Iterator[str]:
    """What is not as usual about where its rows are."""
    values = table.spec.values
    limit, spill = values.get("max_memory"), values.get("spill")
    if limit is not None:
        where = "the state directory" if spill is True else spill
        beyond = f"older rows go to files in {where}, the key index stays" if spill else "more is refused"
        yield f"up to {limit:,} bytes in memory; {beyond}"
    size, ttl_us = values.get("cache.max_size"), values.get("cache.ttl")
    if size is not None or ttl_us is not None:
        rows = f"up to {size:,} rows" if size is not None else "rows"
        age = f", each for {ttl_us / 1_000_000:g} s" if ttl_us is not None else ""
        yield f"read by key through a cache of {rows}{age}"
    if values.get("durable") is False:
        yield "empty after a restart"
    retention_us = table.options.get("retention")
    if retention_us is not None:
        yield f"a window stays for {retention_us / 1_000_000:g} s after its end"


def _origin(table: TablePlan, plan: Plan) -> str:
    source = plan.source(table.source).spec.shown if table.source else ""
    names = (f"the flow {f.name}" for f in plan.flows for s in f.steps if s.target == table.name)
    flow = next(names, "a flow of the app")
    watch = ", compared again whenever it changes" if table.watch else ", compared at each start"
    return ORIGINS[table.kind].format(source=source, watch=watch, flow=flow, refresh=table.refresh)


def _access(access: Access) -> str:
    return f"reads {access.table} as a {access.how}: {access.reason}"


def _flow_lines(flow: FlowPlan, plan: Plan) -> Iterator[str]:
    yield f"{flow.name}  {_driver(flow, plan)}{_watermark(flow)}"
    yield from (f"  {line}" for line in _pace(flow, plan))
    if flow.join is not None:
        times = [_time(side, plan) for side in (flow.join.left, flow.join.right)]
        told = f"by watermarks on {times[0]} and {times[1]}" if all(times) else "nothing: there is no time bound"
        yield f"  {flow.join.kind} join kept by Spark; events are forgotten {told}"
    for number, step in enumerate(flow.steps, 1):
        yield f"  {number}. {VERBS[step.kind]} {_target(step, plan)}  (line {step.place.line})"
        if step.aggregate is not None:
            yield from (f"     {line}" for line in _merging(step.aggregate))
        if step.condition is not None:
            yield f"     {_matching(step, plan)}"
        yield from (f"     {line}" for line in (*_trouble(step), *_missing(step)))
        yield from (f"     {_access(a)}" for a in step.reads)
    yield from (f"  {line}" for group in flow.groups for line in _group_lines(group, flow))


def _group_lines(group: ChangeGroup, flow: FlowPlan) -> Iterator[str]:
    """How statements change a table together."""
    numbers = {step.index: number for number, step in enumerate(flow.steps, 1)}
    together = ", ".join(str(numbers[w.index]) for w in group.writers)
    how = "folded by key" if group.by_key else "what goes by key is folded"
    yield f"{group.table} is changed by {together} event by event: {how}"
    for writer in group.writers:
        if writer.action is None:
            events = "one event at a time" if writer.one_by_one else "in runs of events"
            yield f"  {numbers[writer.index]} {events}: {writer.reason}"


def _watermark(flow: FlowPlan) -> str:
    if flow.watermark is None:
        return ""
    idle_us = flow.options.get("idle.timeout")
    goes_on = f", by the clock after {idle_us / 1_000_000:g} s without events" if idle_us is not None else ""
    return f", watermark on {_own_name(flow)}, {flow.watermark.delay_us / 1_000_000:g} s behind{goes_on}"


def _pace(flow: FlowPlan, plan: Plan) -> Iterator[str]:
    """How a flow takes its events, where that is not as usual."""
    for source in (s for s in plan.sources if s.id in (flow.source, *flow.joined)):
        given = source.spec.values.get(BATCH_ROWS)
        option = find_option(BATCH_ROWS, registry.find("source", source.type).options)
        if option is not None and given is not None and given != option.stand_in({}):
            yield f"up to {given:,} rows of {source.name} in a batch"
    bad = flow.options.get("on.bad.record")
    if bad in BAD_RECORDS:
        yield f"a record that cannot be read: {BAD_RECORDS[bad]}"


def _trouble(step: Step) -> Iterator[str]:
    """What becomes of late rows, and of rows that an expression fails on."""
    late, failing = step.options.get("late.rows"), step.options.get("on.error")
    if step.aggregate is not None and step.aggregate.window is not None and late in LATE_ROWS:
        yield f"a row that comes after its window has closed: {LATE_ROWS[late]}"
    if failing in FAILING_ROWS:
        yield f"an expression that fails on a row: {FAILING_ROWS[failing]}"


def _own_name(flow: FlowPlan) -> str:
    """The column of a flow's watermark, as its stream calls it."""
    column = str(flow.watermark.column) if flow.watermark is not None else ""
    return OF_JOINS.sub("", column) if flow.join is not None else column


def _time(side: StreamSide, plan: Plan) -> str | None:
    """The column of a side's watermark, as its stream calls it."""
    of_pairs = side.time is not None and all(source.id != side.source for source in plan.sources)
    return OF_JOINS.sub("", side.time) if side.time is not None and of_pairs else side.time


def _changes_lines(changes: ChangesPlan, plan: Plan) -> Iterator[str]:
    yield f"{changes.table}  to {_target(changes.step, plan)}  (line {changes.step.place.line})"
    yield from (f"  {_access(a)}" for a in changes.step.reads if a.table.lower() != changes.table.lower())


def _missing(step: Step) -> Iterator[str]:
    """What joins do with an event that finds no row, where the statement says it."""
    for _, join, policy in joins_with_policy(step.query):
        yield f"an event without a row of {join.this.alias_or_name}: {MISSING[policy]}"
    without = step.options.get("on.table.missing")
    if step.reads and without in MISSING_TABLE:
        yield f"while a table that it reads is not ready: {MISSING_TABLE[without]}"


def _matching(step: Step, plan: Plan) -> str:
    """How an UPSERT ... ON finds its rows."""
    table = plan.table(step.target)
    assert step.condition is not None
    found: tuple[str, ...] = ()
    if table is not None:
        schema = table.spec.schema
        if matches_by_key(step.query, step.condition, step.columns, step.target, schema):
            return "ON compares the key: rows are matched by key, all at once"
        found = compared_columns(step.query, step.condition, step.columns, step.target, schema)
    if found:
        return f"rows are matched by {', '.join(found)}, all at once unless the table refuses one"
    return "rows are matched by ON, one event at a time"


def _driver(flow: FlowPlan, plan: Plan) -> str:
    known = {s.id: s.spec.shown for s in plan.sources}
    return " joined with ".join(known.get(d, d) for d in (flow.source, *flow.joined))


def _merging(aggregate: AggregatePlan) -> Iterator[str]:
    """How groups are kept, and what is kept for each aggregate."""
    count = len(aggregate.groups)
    by = f"by {count} group column{'s' if count != 1 else ''}" if count else "into one row"
    window = aggregate.window
    if window is not None:
        by = f"by {window.kind} window over {window.column}" + (f" and {by[3:]}" if count else "")
    yield f"each batch is summed up by Spark and merged {by}; kept in {', '.join(aggregate.companions)}"
    yield from (f"keeps {kept} for {text}" for text, kept in aggregate.texts())
    if aggregate.expiry is not None:
        newest = f"its newest {aggregate.expiry.column}" if aggregate.expiry.column else "the last commit with an event"
        yield f"a group is dropped {aggregate.expiry.ttl_us / 1_000_000:g} s after {newest}"


def _target(step: Step, plan: Plan) -> str:
    if step.kind is StepKind.RELAY:
        return next(f"the join {f.name}" for f in plan.flows if step.target.startswith(f"{f.id}:"))
    return step.target if step.kind in INTO_TABLES else plan.sink(step.target).spec.shown


def _shot_line(shot: OneShot, plan: Plan) -> str:
    words = type(shot.statement).__name__.upper()
    sink = f" to {plan.sink(shot.sink).spec.shown}" if shot.sink and any(s.id == shot.sink for s in plan.sinks) else ""
    when = "at each start" if shot.repeat else "once"
    block = f", in transaction {shot.transaction}" if shot.transaction is not None else ""
    reads = "".join(f"; {_access(a)}" for a in shot.reads)
    return f"line {shot.place.line}: {words}{sink}, {when}{block}{reads}"
