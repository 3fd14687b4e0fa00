"""Check: a table with 'backfill' can be recomputed from its source alone, and the source can be read again."""

from __future__ import annotations

from collections.abc import Iterator

from millpond import registry
from millpond.errors import MillpondError, Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.model import FlowPlan, Step, StepKind, TablePlan

HINT = "Remove it to count from now on, or start again with another --state to read what the source still has."


def check(subject: Subject) -> Iterator[Problem]:
    for table in subject.tables.values():
        if table.options.get("backfill"):
            yield from _table(subject, table)


def _table(subject: Subject, table: TablePlan) -> Iterator[Problem]:
    steps = [(f, s) for f in subject.flows for s in f.steps if s.target.lower() == table.name.lower()]
    kept = next(((f, s) for f, s in steps if s.kind is StepKind.AGGREGATE), None)
    if kept is None:
        message = f"Option 'backfill' requires GROUP BY over a stream, which table '{table.name}' does not have."
        yield subject.problem("MP303", message, table.place, "Remove it.")
    elif why := _why_not(subject, table, *kept):
        message = f"Table '{table.name}' cannot have 'backfill': {why[0]}."
        yield subject.problem("MP815", message, table.place, why[1])


def _why_not(subject: Subject, table: TablePlan, flow: FlowPlan, step: Step) -> tuple[str, str] | None:
    """Why the table cannot be recomputed exactly, and a hint."""
    if flow.join is not None or flow.joined:
        return "it reads a join of streams", HINT
    if step.reads:
        return f"it reads '{step.reads[0].table}', whose earlier rows are not stored", HINT
    if step.aggregate is not None and step.aggregate.window is not None:
        return "it is not stored which rows were late for a window", HINT
    if step.options.get("state.ttl"):
        return "it is not stored when 'state.ttl' dropped groups", HINT
    try:
        if registry.find("backend", table.spec.backend).capabilities.outside:
            return f"the backend {table.spec.backend} has its own commits", "Use 'backend' = 'memory'."
        source = subject.sources[flow.source].plan
        plugin = registry.find("source", source.type)
    except MillpondError:
        return None
    if not plugin.has_past:
        return f"the source {source.type} cannot be read again up to the position of the stream", HINT
    return None
