"""What the planner accepts but the engine does not support yet, in one table (MP901).

Unsupported ways of reading a relation are reported where the query is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from millpond import registry
from millpond.errors import MillpondError, Place, Problem
from millpond.plan.missing import DEFAULTS, NULLS
from millpond.plan.model import Plan, Step

Finder = Callable[[Plan], Iterator[tuple[Place, str]]]


@dataclass(frozen=True)
class NotYet:
    """One unsupported feature: `finds` returns each place where it is used, with a description."""

    what: str
    finds: Finder


def not_yet(plan: Plan) -> tuple[Problem, ...]:
    """An error (MP901) for everything in the plan that this version does not support, by place."""
    found = {
        (place, name): Problem("MP901", cannot_run(name), place)
        for entry in NOT_YET
        for place, name in entry.finds(plan)
    }
    return tuple(sorted(found.values(), key=lambda p: (p.place.line, p.place.column) if p.place else (0, 0)))


def cannot_run(what: str) -> str:
    """The sentence of MP901."""
    return f"{what} is not supported in this version."


def _steps(plan: Plan) -> Iterator[Step]:
    return (step for flow in plan.flows for step in flow.steps)


def _stream_joins(plan: Plan) -> Iterator[tuple[Place, str]]:
    for flow in plan.flows:
        for step in flow.steps:
            if (flow.joined and flow.join is None) or _batches(step.query) > 1:
                yield step.place, "A join of streams of this shape"


def _batches(query: exp.Query) -> int:
    """The number of relations of one SELECT that contain the batch."""
    most = 0
    for select in query.find_all(exp.Select):
        sides = [select.args.get("from_"), *(select.args.get("joins") or ())]
        most = max(most, sum(1 for side in sides if side is not None and _has_batch(side.this)))
    return most


def _has_batch(relation: exp.Expr) -> bool:
    return any(table.name == "__batch__" for table in relation.find_all(exp.Table))


def _sources(plan: Plan) -> Iterator[tuple[Place, str]]:
    return ((s.place, f"The source {s.type}") for s in plan.sources if not _runs("source", s.type))


def _loads(plan: Plan) -> Iterator[tuple[Place, str]]:
    """Sources that can be followed but not loaded: they must be stored in a named table first."""
    for table in plan.tables:
        if table.source is not None and table.query is not None:
            source = plan.source(table.source)
            plugin = registry.find("source", source.type) if _runs("source", source.type) else None
            if plugin is not None and plugin.open_table is None and plugin.open_changes is None:
                yield source.place, f"Reading {source.type} as a table without CREATE TABLE"


def _sinks(plan: Plan) -> Iterator[tuple[Place, str]]:
    return ((s.place, f"The sink {s.type}") for s in plan.sinks if not _runs("sink", s.type))


def _runs(kind: str, name: str) -> bool:
    try:
        return registry.find(kind, name).runnable
    except MillpondError:
        return False


def _backends(plan: Plan) -> Iterator[tuple[Place, str]]:
    for table in plan.tables:
        if not _runs("backend", table.spec.backend):
            yield table.place, f"The backend {table.spec.backend}"


def _missing_tables(plan: Plan) -> Iterator[tuple[Place, str]]:
    for step in _steps(plan):
        wish = step.options.get("on.table.missing")
        if wish in (NULLS, DEFAULTS) and not all(map(_starts_from_batch, step.query.find_all(exp.Select))):
            yield step.place, f"'on.table.missing' = '{wish}' in a join that does not start from the stream"


def _starts_from_batch(select: exp.Select) -> bool:
    """Whether the batch is the first relation of a SELECT with joins."""
    from_, joins = select.args.get("from_"), select.args.get("joins") or ()
    return not any(_has_batch(join.this) for join in joins) or (from_ is not None and _has_batch(from_.this))


NOT_YET = (
    NotYet("some stream-stream joins", _stream_joins),
    NotYet("sources", _sources),
    NotYet("tables without a name over sources that are only followed", _loads),
    NotYet("sinks", _sinks),
    NotYet("backends", _backends),
    NotYet("some statements that run without a table", _missing_tables),
)
