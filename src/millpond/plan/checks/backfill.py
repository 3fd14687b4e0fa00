"""'backfill' computes a table again from its source alone: the source can be read again, and nothing else counts."""

from __future__ import annotations

from collections.abc import Iterator

from millpond import registry
from millpond.errors import MillpondError, Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.model import FlowPlan, Step, StepKind, TablePlan

HINT = "Take it out: it counts from now on. Starting over with another --state reads all that the source still has."


def check(subject: Subject) -> Iterator[Problem]:
    for table in subject.tables.values():
        if table.options.get("backfill"):
            yield from _table(subject, table)


def _table(subject: Subject, table: TablePlan) -> Iterator[Problem]:
    steps = [(f, s) for f in subject.flows for s in f.steps if s.target.lower() == table.name.lower()]
    kept = next(((f, s) for f, s in steps if s.kind is StepKind.AGGREGATE), None)
    if kept is None:
        message = f"Option 'backfill' is for GROUP BY over a stream; table '{table.name}' is not kept by one."
        yield subject.problem("MP303", message, table.place, "Remove it.")
    elif why := _why_not(subject, table, *kept):
        message = f"Table '{table.name}' cannot have 'backfill': {why[0]}."
        yield subject.problem("MP815", message, table.place, why[1])


def _why_not(subject: Subject, table: TablePlan, flow: FlowPlan, step: Step) -> tuple[str, str] | None:
    """Why what comes of the past cannot be computed again exactly, and what to do."""
    if flow.join is not None or flow.joined:
        return "it reads a join of streams", HINT
    if step.reads:
        return f"it reads '{step.reads[0].table}', whose rows of that time are gone", HINT
    if step.aggregate is not None and step.aggregate.window is not None:
        return "which rows came too late for a window is not known any more", HINT
    if step.options.get("state.ttl"):
        return "which groups 'state.ttl' had dropped when is not known any more", HINT
    try:
        if registry.find("backend", table.spec.backend).capabilities.outside:
            return f"the backend {table.spec.backend} commits by itself", "Use 'backend' = 'memory'."
        source = subject.sources[flow.source].plan
        plugin = registry.find("source", source.type)
    except MillpondError:
        return None
    if plugin.past is None:
        return f"the source {source.type} cannot be read again up to where the stream is", HINT
    return None
