"""The statement in an EXPLAIN: planned by itself, beside the app and not as a part of it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace

from millpond.plan.assembly import assemble
from millpond.plan.checks import run_checks
from millpond.plan.context import Context, Planned
from millpond.plan.model import Access, FlowPlan, Plan
from millpond.sql.statements import Statement

NAME = "this statement"


def explained(statement: Statement, context: Context, plan_one: Callable[[Statement, Context], Planned | None]) -> Plan:
    """The plan of one statement: its flow or itself, and the tables, sources and sinks that it names. What is wrong
    with it is a finding, as if it stood alone."""
    own = _beside(context)
    planned = plan_one(statement, own)
    if planned is not None:
        own.planned.append(planned)
    plan, subject = assemble(NAME, (statement,), own)
    context.findings.extend(run_checks(subject))
    return _only_named(plan, {item.target.lower() for item in own.planned})


def _beside(context: Context) -> Context:
    """The workbench with room for one more statement, which the app does not see."""
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
