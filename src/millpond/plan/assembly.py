"""Assembles the plan from its planned statements; also the plan of a statement inside EXPLAIN."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace

from sqlglot import exp

from millpond.plan.checks import run_checks
from millpond.plan.checks.subject import Subject
from millpond.plan.context import Context, Planned
from millpond.plan.flow_plans import make_changes, make_flows, ordered
from millpond.plan.hidden_tables import with_hidden
from millpond.plan.model import Access, FlowPlan, OneShot, Plan, SinkPlan, SourcePlan, Step, TablePlan
from millpond.plan.one_shots import blocks_of, make_one_shots
from millpond.sql.statements import CreateStream, CreateTable, CreateView, Statement


def assemble(name: str, statements: tuple[Statement, ...], context: Context) -> tuple[Plan, Subject]:
    """Order the flows, add one-shots with their transactions, and the sources, sinks and hidden tables that are
    used."""
    blocks = blocks_of(statements)
    undone = {id(s) for b in blocks if b.undone for s in b.statements}
    planned = sorted((p for p in context.planned if id(p.statement) not in undone), key=lambda p: p.index)
    flows = ordered(make_flows(planned, context), context.tables)
    transactions = {context.index(s): b.number for b in blocks for s in b.statements}
    created = {
        s.name.key: context.index(s) for s in statements if isinstance(s, CreateStream | CreateTable | CreateView)
    }
    one_shots = make_one_shots(planned, transactions, created)
    changes = make_changes(planned, context)
    steps = [*(s for f in flows for s in f.steps), *(c.step for c in changes)]
    tables = (*_used_hidden(steps, one_shots, context), *context.tables.values())
    plan = Plan(
        name,
        context.settings,
        _used_sources(flows, tables, context),
        tuple(context.streams.values()),
        tables,
        flows,
        one_shots,
        _used_sinks(steps, one_shots, context),
        changes,
        tuple(context.views.values()),
    )
    return plan, _subject(statements, context, flows)


def _subject(statements: tuple[Statement, ...], context: Context, flows: tuple[FlowPlan, ...]) -> Subject:
    planned: list[Planned] = sorted(context.planned, key=lambda p: p.index)
    sinks = {s.id: s for s in context.sinks.plans()}
    return Subject(
        statements,
        tuple(planned),
        flows,
        context.tables,
        sinks,
        context.sources,
        context.catalog,
        context.settings,
        context.findings,
        context.behind,
    )


def _used_hidden(steps: Iterable[Step], shots: Iterable[OneShot], context: Context) -> list[TablePlan]:
    """The hidden tables that are read, each with the hidden columns of its source that the queries use."""
    named: dict[str, set[str]] = {}
    readers: list[Step | OneShot | TablePlan] = [*steps, *shots, *context.tables.values()]
    for reader in readers:
        columns = {c.name.lower() for c in reader.query.find_all(exp.Column)} if reader.query is not None else set()
        for access in reader.reads:
            named.setdefault(access.table.lower(), set()).update(columns)
    return [
        with_hidden(plan, context.sources[plan.source].plan, named[name]) if plan.source is not None else plan
        for name, plan in context.hidden.items()
        if name in named
    ]


def _used_sources(flows: Iterable[FlowPlan], tables: Iterable[TablePlan], context: Context) -> tuple[SourcePlan, ...]:
    """The sources that a flow, a table or a declared stream reads."""
    used = {d for f in flows for d in (f.source, *f.joined)} | {t.source for t in tables}
    used |= {d for s in context.streams.values() for d in (s.source, *s.joined)}
    return tuple(p for p in context.sources.plans() if p.id in used)


def _used_sinks(steps: Iterable[Step], shots: Iterable[OneShot], context: Context) -> tuple[SinkPlan, ...]:
    used = {s.target for s in steps} | {shot.sink for shot in shots}
    return tuple(p for p in context.sinks.plans() if p.id in used)


NAME = "this statement"


def explained(statement: Statement, context: Context, plan_one: Callable[[Statement, Context], Planned | None]) -> Plan:
    """The plan of one statement: its flow or one-shot, and the tables, sources and sinks that it uses. Its errors are
    findings, as if it were alone."""
    own = _beside(context)
    planned = plan_one(statement, own)
    if planned is not None:
        own.planned.append(planned)
    plan, subject = assemble(NAME, (statement,), own)
    context.findings.extend(run_checks(subject))
    return _only_named(plan, {item.target.lower() for item in own.planned})


def _beside(context: Context) -> Context:
    """A copy of the context for one more statement that is not part of the app."""
    own = copy(context)
    own.planned = []
    own.streams, own.tables, own.hidden = dict(context.streams), dict(context.tables), dict(context.hidden)
    own.joins, own.flow_options = dict(context.joins), dict(context.flow_options)
    own.watermarks = dict(context.watermarks)
    return own


def _only_named(plan: Plan, targets: set[str]) -> Plan:
    named = targets | {access.table.lower() for access in _reads(plan)}
    tables = tuple(table for table in plan.tables if table.name.lower() in named)
    used = {source for flow in plan.flows for source in _sources(flow)} | {table.source for table in tables}
    return replace(
        plan,
        tables=tables,
        sources=tuple(source for source in plan.sources if source.id in used),
        streams=tuple(s for s in plan.streams if s.source in used),
    )


def _reads(plan: Plan) -> list[Access]:
    steps = [*(step for flow in plan.flows for step in flow.steps), *(change.step for change in plan.changes)]
    targets = {step.target.lower() for step in steps}
    views = [table.reads for table in plan.tables if table.name.lower() in targets]
    read = [*(step.reads for step in steps), *(shot.reads for shot in plan.one_shots), *views]
    return [access for reads in read for access in reads]


def _sources(flow: FlowPlan) -> tuple[str, ...]:
    return (flow.source, *flow.joined)
