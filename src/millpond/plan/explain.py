"""The plan as text for people, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from millpond import registry
from millpond.contracts.evaluator import Engine, Route
from millpond.contracts.source import without_identity
from millpond.options import find_option
from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.change_model import ChangeGroup
from millpond.plan.flow_plans import INTO_TABLES
from millpond.plan.history import described as history_shown
from millpond.plan.history_model import HISTORY
from millpond.plan.missing import joins_with_policy
from millpond.plan.model import (
    BESIDE,
    Access,
    AccessKind,
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
from millpond.plan.paths import paths_in
from millpond.plan.row_parts import compared_columns, matches_by_key
from millpond.plan.statement_routes import query_route, step_route
from millpond.redact import redact
from millpond.schema import Schema, type_name
from millpond.settings import is_local
from millpond.sql.spark import render

# How a table gets its rows.
ORIGINS = {
    TableKind.DECLARED: "by statements",
    TableKind.LOADED: "loaded from {source}{watch}",
    TableKind.AGGREGATE: "kept up to date by {flow}",
    TableKind.VIEW: "a view, refreshed {refresh}",
    TableKind.LOOKUP: "looked up in {source} for the keys of each batch",
    TableKind.HIDDEN: "loaded from {source}{watch}, for the statements that read it",
    TableKind.SYSTEM: "by Millpond: records and rows that were rejected",
}

VERBS = {
    StepKind.INSERT: "insert into",
    StepKind.UPSERT: "upsert into",
    StepKind.UPDATE: "update",
    StepKind.DELETE: "delete from",
    StepKind.MERGE: "merge into",
    StepKind.AGGREGATE: "aggregate into",
    StepKind.LATEST: "store the last of each key in",
    StepKind.APPEND: "append to",
    StepKind.SINK: "write to",
    StepKind.RELAY: "pass to",
}

# The effect of 'on.missing'.
MISSING = {
    "nulls": "its columns are NULL",
    "skip": "the event is skipped",
    "default": "its columns have their defaults",
    "fail": "the statement fails",
    "wait": "the event waits for it",
}

# The effect of 'on.table.missing', except for wait.
MISSING_TABLE = {
    "fail": "the flow fails",
    "skip": "events are skipped",
    "nulls": "its columns are NULL",
    "default": "its columns have their defaults",
}
# The effects of 'on.bad.record', 'late.rows' and 'on.error', without the defaults.
BAD_RECORDS = {"skip": "it is skipped and counted", "fail": "the flow fails"}
LATE_ROWS = {"dead-letter": "stored as a dead letter", "drop": "dropped", "update": "the window is updated"}
FAILING_ROWS = {"dead-letter": "the row is stored as a dead letter", "stop-app": "the app stops"}
BATCH_ROWS = "max.rows.per.batch"
# The line of a statement in the file.
_WHERE = re.compile(r"  \(line \d+\)$")
# The prefixes of the columns of joined rows.
OF_JOINS = re.compile(r"^([lr]_)+")


def explain_text(plan: Plan) -> str:
    """The plan of an app: sources, tables, flows and sinks, and the reasons for decisions."""
    return _text(
        plan,
        ("Sources", [_source_line(s) for s in plan.sources]),
        (
            "Tables, in the order in which they are created",
            [line for t in plan.tables if t.history is None for line in _table_lines(t, plan)],
        ),
        ("Views, expanded where they are read", [f"{v.name}  over {', '.join(v.tables)}" for v in plan.views]),
        ("One-shot statements, before the flows", [_shot_line(s, plan) for s in plan.one_shots if not s.late]),
        ("Flows, in the order in which they catch up", [line for f in plan.flows for line in _flow_lines(f, plan)]),
        (
            "Changes of tables, emitted in the commits that make them",
            [line for c in plan.changes for line in _changes_lines(c, plan)],
        ),
        (
            "One-shot statements, after the flows have caught up",
            [_shot_line(s, plan) for s in plan.one_shots if s.late],
        ),
        ("Sinks", [_sink_line(s) for s in plan.sinks]),
        ("Notes", [line for p in plan.problems for line in str(p).splitlines()]),
    )


def explain_statement(plan: Plan) -> str:
    """The plan of one statement, as EXPLAIN prints it: what it does, and what it uses."""
    return _text(
        plan,
        ("Statement", [line for s in plan.one_shots for line in _only_lines(s, plan)]),
        ("Flow", [_WHERE.sub("", line) for f in plan.flows for line in _flow_lines(f, plan)]),
        ("Driven by changes", [_WHERE.sub("", line) for c in plan.changes for line in _changes_lines(c, plan)]),
        ("Tables", [line for t in plan.tables if t.history is None for line in _table_lines(t, plan)]),
        ("Sources", [_source_line(s) for s in plan.sources]),
        ("Sinks", [_sink_line(s) for s in plan.sinks if s.type != "terminal"]),
    )


def _text(plan: Plan, *sections: tuple[str, list[str]]) -> str:
    parts = [f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in sections if lines]
    return "\n\n".join([f"Plan of {plan.name}", *parts])


def _only_lines(shot: OneShot, plan: Plan) -> Iterator[str]:
    yield f"{type(shot.statement).__name__.upper()} over tables"
    yield from (f"  {_access(access)}" for access in shot.reads)
    if shot.query is not None:
        yield from (f"  {line}" for line in _paths(shot.query))
        yield f"  {_route(query_route(shot.query, plan))}"


def _sink_line(sink: SinkPlan) -> str:
    return f"{sink.spec.shown}  {sink.type}, {sink.guarantee}"


def _source_line(source: SourcePlan) -> str:
    columns = _columns(source.columns)
    how = "declared" if source.declared else "found"
    described = f"{how}: {columns}" if columns else "columns not known yet"
    return f"{source.name}  {source.spec.shown}, {source.mode}; {described}"


def _columns(schema: Schema | None) -> str:
    return ", ".join(f"{c.name} {type_name(c.type)}" for c in schema) if schema is not None else ""


def _table_lines(table: TablePlan, plan: Plan) -> Iterator[str]:
    shown, kept = without_identity(table.spec.schema), "keyed by message key" if table.spec.schema.key else "no key"
    key = f"key ({', '.join(shown.key)})" if shown.key else kept
    yield f"{table.name}  {key}, {table.spec.backend}; {_origin(table, plan)}"
    if shown.columns:
        yield f"  columns: {_columns(shown)}"
    yield from (f"  {line}" for line in _storage(table))
    yield from (f"  constraint {check.name}: CHECK ({check.shown})" for check in table.spec.schema.checks)
    for index in table.spec.indexes:
        yield f"  index ({', '.join(index)})"
    # How a view reads its tables depends on the changed rows, as its first line describes.
    yield from (f"  {line}" for line in _sent(table, plan))
    yield from (f"  {_access(a)}" for a in table.reads if table.kind is not TableKind.VIEW or a.hinted)
    if table.kind is TableKind.VIEW and table.query is not None:
        yield from (f"  {line}" for line in _paths(table.query))
        yield f"  {_route(query_route(table.query, plan))}"


def _sent(table: TablePlan, plan: Plan) -> Iterator[str]:
    """The query of a table that is loaded from a server, and what it does not see."""
    if table.source is None or (table.query is None and table.kind is not TableKind.LOOKUP):
        return
    source = plan.source(table.source)
    plugin = registry.find("source", source.type)
    spec = replace(source.spec, wanted=table.wanted)
    if plugin.sent is not None:
        yield f"sends {redact(plugin.sent(spec))}"
    yield from plugin.notes(spec)


def _storage(table: TablePlan) -> Iterator[str]:
    """Storage options of the table that are not the default."""
    values = table.spec.values
    yield from registry.find("backend", table.spec.backend).notes(table.spec)
    limit, spill = values.get("max_memory"), values.get("spill")
    if limit is not None:
        where = "the state directory" if spill is True else spill
        beyond = (
            f"older rows are moved to files in {where}, except the key index"
            if spill
            else "larger changes are rejected"
        )
        yield f"up to {limit:,} bytes in memory; {beyond}"
    size, ttl_us = values.get("cache.max_size"), values.get("cache.ttl")
    if size is not None or ttl_us is not None:
        rows = f"up to {size:,} rows" if size is not None else "rows"
        age = f", each for {ttl_us / 1_000_000:g} s" if ttl_us is not None else ""
        yield f"read by key through a cache of {rows}{age}"
    if values.get("durable") is False:
        yield "empty after a restart"
    if table.options.get(HISTORY) is not None:
        yield history_shown(table)
    retention_us = table.options.get("retention")
    if retention_us is not None:
        yield f"a window is kept for {retention_us / 1_000_000:g} s after its end"


def _origin(table: TablePlan, plan: Plan) -> str:
    source = plan.source(table.source).spec.shown if table.source else ""
    names = (f"the flow {f.name}" for f in plan.flows for s in f.steps if s.target == table.name)
    flow = next(names, "a flow of the app")
    watch = ", compared again when it changes" if table.watch else ", compared at each start"
    return ORIGINS[table.kind].format(source=source, watch=watch, flow=flow, refresh=table.refresh)


def _access(access: Access) -> str:
    name = access.table.removesuffix(BESIDE + HISTORY)
    past = " as of a time or version," if name != access.table else ""
    return f"reads {name}{past} as a {access.how}: {access.reason}"


def _over(step: Step) -> Iterator[str]:
    """What is stored for window functions over the stream."""
    for window in step.over.windows if step.over is not None else ():
        if window.looks_back:
            reach = [f"the last {window.rows_kept} rows" if window.rows_kept else ""]
            distance = window.range_kept
            reach += [f"rows up to {distance:,} before the newest"] if distance is not None else []
            yield f"stores {' and '.join(r for r in reach if r)} of each key in {window.stored}"
        for call in window.calls:
            kept = "a running value" if call.is_running else "its rows"
            yield f"{call.text}: looks back at {kept}"
    if step.over is not None and any(window.time is not None for window in step.over.windows):
        late = {"dead-letter": "stored as a dead letter", "drop": "dropped"}.get(
            step.over.late, "computed among what is stored"
        )
        yield f"an event that is earlier than one of its key before it: {late}"
        if step.over.waits:
            yield "events are held until the watermark has passed them"


def _paths(query: exp.Query) -> Iterator[str]:
    """What each wildcard path of a query became."""
    return (f"path {text}: {render(node)}" for text, node in paths_in(query))


def _on_cluster(step: Step, route: Route, plan: Plan) -> Iterator[str]:
    """Where a statement runs if executors are on other machines, and what passes through the driver."""
    if is_local(plan.settings["master"]):
        return
    limit = plan.settings["driver.max.rows"]
    if route.engine is Engine.SPARK:
        yield "runs on the executors"
    else:
        yield f"runs on the driver; a batch of more than {limit:,} rows on the executors"
    for access in (access for access in step.reads if access.how is AccessKind.SNAPSHOT):
        table = plan.table(access.table)
        if table is not None and registry.find("backend", table.spec.backend).capabilities.files:
            yield f"the executors read the files of {table.name}"
        elif table is not None:
            yield f"{table.name} is transferred to the executors once per version"
    if plan.table(step.target) is not None:
        yield f"the changes of {step.target} are collected on the driver"


def _route(route: Route) -> str:
    return f"engine {route.engine}: {route.reason}"


def _flow_lines(flow: FlowPlan, plan: Plan) -> Iterator[str]:
    yield f"{flow.name}  {_driver(flow, plan)}{_watermark(flow)}"
    yield from (f"  {line}" for line in _pace(flow, plan))
    if flow.join is not None:
        times = [_time(side, plan) for side in (flow.join.left, flow.join.right)]
        described = f"by watermarks on {times[0]} and {times[1]}" if all(times) else "never: there is no time bound"
        yield f"  {flow.join.kind} join by Spark; events are removed from its state {described}"
    for number, step in enumerate(flow.steps, 1):
        yield f"  {number}. {VERBS[step.kind]} {_target(step, plan)}  (line {step.place.line})"
        if step.aggregate is not None:
            yield from (f"     {line}" for line in _merging(step.aggregate))
        if step.condition is not None:
            yield f"     {_matching(step, plan)}"
        yield from (f"     {line}" for line in (*_trouble(step), *_missing(step), *_over(step)))
        yield from (f"     {_access(a)}" for a in step.reads)
        # The query over the values of window functions has numbered columns instead of what was written.
        written = step.over.written if step.over is not None and step.aggregate is None else step.query
        yield from (f"     {line}" for line in _paths(written))
        route = step_route(step, flow, plan)
        yield f"     {_route(route)}"
        yield from (f"     {line}" for line in _on_cluster(step, route, plan))
    yield from (f"  {line}" for group in flow.groups for line in _group_lines(group, flow))


def _group_lines(group: ChangeGroup, flow: FlowPlan) -> Iterator[str]:
    """How a group of statements changes a table event by event."""
    numbers = {step.index: number for number, step in enumerate(flow.steps, 1)}
    together = ", ".join(str(numbers[w.index]) for w in group.writers)
    how = "folded by key" if group.by_key else "statements by key are folded"
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
    """Options of a flow that are not the default: batch size, bad records."""
    for source in (s for s in plan.sources if s.id in (flow.source, *flow.joined)):
        given = source.spec.values.get(BATCH_ROWS)
        option = find_option(BATCH_ROWS, registry.find("source", source.type).options)
        if option is not None and given is not None and given != option.stand_in({}):
            yield f"up to {given:,} rows of {source.name} in a batch"
    bad = flow.options.get("on.bad.record")
    if bad in BAD_RECORDS:
        yield f"on a bad record: {BAD_RECORDS[bad]}"


def _trouble(step: Step) -> Iterator[str]:
    """What happens to late rows, and to rows on which an expression fails."""
    late, failing = step.options.get("late.rows"), step.options.get("on.error")
    if step.aggregate is not None and step.aggregate.window is not None and late in LATE_ROWS:
        yield f"a row that arrives after its window was closed: {LATE_ROWS[late]}"
    if failing in FAILING_ROWS:
        yield f"if an expression fails on a row: {FAILING_ROWS[failing]}"


def _own_name(flow: FlowPlan) -> str:
    """The column of a flow's watermark, by its name in the stream."""
    column = str(flow.watermark.column) if flow.watermark is not None else ""
    return OF_JOINS.sub("", column) if flow.join is not None else column


def _time(side: StreamSide, plan: Plan) -> str | None:
    """The column of a side's watermark, by its name in the stream."""
    of_pairs = side.time is not None and all(source.id != side.source for source in plan.sources)
    return OF_JOINS.sub("", side.time) if side.time is not None and of_pairs else side.time


def _changes_lines(changes: ChangesPlan, plan: Plan) -> Iterator[str]:
    yield f"{changes.table}  to {_target(changes.step, plan)}  (line {changes.step.place.line})"
    yield from (f"  {_access(a)}" for a in changes.step.reads if a.table.lower() != changes.table.lower())


def _missing(step: Step) -> Iterator[str]:
    """The policies of joins for events without a matching row, if the statement has any."""
    for _, join, policy in joins_with_policy(step.query):
        yield f"an event without a matching row of {join.this.alias_or_name}: {MISSING[policy]}"
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
        return f"rows are matched by {', '.join(found)}, all at once unless the table rejects one"
    return "rows are matched by ON, one event at a time"


def _driver(flow: FlowPlan, plan: Plan) -> str:
    known = {s.id: s.spec.shown for s in plan.sources}
    return " joined with ".join(known.get(d, d) for d in (flow.source, *flow.joined))


def _merging(aggregate: AggregatePlan) -> Iterator[str]:
    """How groups are merged, and what is stored for each aggregate."""
    count = len(aggregate.groups) - bool(aggregate.sets)
    by = f"by {count} group column{'s' if count != 1 else ''}" if count else "into one row"
    window = aggregate.window
    if window is not None:
        by = f"by {window.kind} window over {window.column}" + (f" and {by[3:]}" if count else "")
    yield f"each batch is aggregated and merged {by}; stored in {', '.join(aggregate.companions)}"
    if aggregate.sets:
        yield f"each event is counted in {len(aggregate.sets)} grouping sets"
    yield from (f"stores {kept} for {text}" for text, kept in aggregate.texts())
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
