"""What is understood but cannot run yet, in one table: a line goes when the runtime can do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from millpond import registry
from millpond.errors import MillpondError, Place, Problem, Severity
from millpond.plan.aggregates import is_running
from millpond.plan.functions import aggregates_in
from millpond.plan.model import Plan, SinkPlan, SourcePlan, Step, StepKind, TableKind
from millpond.sql import nodes
from millpond.sql.statements import Upsert

Finder = Callable[[Plan], Iterator[tuple[Place, str]]]


@dataclass(frozen=True)
class NotYet:
    """One thing that cannot run: `finds` yields each place of it, with what to call it there."""

    what: str
    finds: Finder


def not_yet(plan: Plan) -> tuple[Problem, ...]:
    """A note (MP901) for everything in the plan that this version cannot run, by place."""
    found = {
        (place, name): Problem("MP901", f"{name} cannot run yet in this version.", place, "", Severity.NOTE)
        for entry in NOT_YET
        for place, name in entry.finds(plan)
    }
    return tuple(sorted(found.values(), key=lambda p: (p.place.line, p.place.column) if p.place else (0, 0)))


def _steps(plan: Plan) -> Iterator[Step]:
    return (step for flow in plan.flows for step in flow.steps)


def _upserts_on(plan: Plan) -> Iterator[tuple[Place, str]]:
    for step in _steps(plan):
        if isinstance(step.statement, Upsert) and step.statement.on is not None:
            yield step.place, "UPSERT ... ON driven by a stream"
    for shot in plan.one_shots:
        if isinstance(shot.statement, Upsert) and shot.statement.on is not None:
            yield shot.place, "UPSERT ... ON"


def _windows(plan: Plan) -> Iterator[tuple[Place, str]]:
    return ((s.place, "A window over a stream") for s in _steps(plan) if s.query.find(nodes.Window))


def _groups_into_sinks(plan: Plan) -> Iterator[tuple[Place, str]]:
    for step in _steps(plan):
        folds = isinstance(step.query, exp.Select) and (_folds(step.query) or step.query.args.get("distinct"))
        if folds and step.kind not in (StepKind.AGGREGATE, StepKind.UPDATE, StepKind.DELETE):
            yield step.place, "GROUP BY or DISTINCT of a stream into a sink or another table"


def _folds(query: exp.Select) -> bool:
    return query.args.get("group") is not None or any(
        next(aggregates_in(e), None) is not None for e in query.expressions
    )


def _other_aggregates(plan: Plan) -> Iterator[tuple[Place, str]]:
    for step in _steps(plan):
        if step.kind is StepKind.AGGREGATE and step.aggregate is None and not step.query.find(nodes.Window):
            yield step.place, _why_no_aggregate(step.query)


def _why_no_aggregate(query: exp.Query) -> str:
    if not isinstance(query, exp.Select) or query.args.get("distinct"):
        return "DISTINCT over a stream"
    calls = [call for e in query.expressions for call in aggregates_in(e) if not is_running(call)]
    return f"{calls[0].sql(dialect='spark')} over a stream" if calls else "This GROUP BY over a stream"


def _stream_joins(plan: Plan) -> Iterator[tuple[Place, str]]:
    for flow in plan.flows:
        for step in flow.steps:
            if flow.joined or _batches(step.query) > 1:
                yield step.place, "A join of two streams"


def _batches(query: exp.Query) -> int:
    """In how many relations of one SELECT the batch stands."""
    most = 0
    for select in query.find_all(exp.Select):
        sides = [select.args.get("from_"), *(select.args.get("joins") or ())]
        most = max(most, sum(1 for side in sides if side is not None and _has_batch(side.this)))
    return most


def _has_batch(relation: exp.Expr) -> bool:
    return any(table.name == "__batch__" for table in relation.find_all(exp.Table))


def _join_options(plan: Plan) -> Iterator[tuple[Place, str]]:
    for step in _steps(plan):
        for join in step.query.find_all(exp.Join):
            for entry in nodes.join_options(join).entries:
                yield entry.place, f"The join option '{entry.name}'"


def _changes(plan: Plan) -> Iterator[tuple[Place, str]]:
    return ((s.place, "CHANGES(table)") for f in plan.flows if f.source.startswith("changes(") for s in f.steps)


def _paths(plan: Plan) -> Iterator[tuple[Place, str]]:
    for step in _steps(plan):
        if step.query.find(nodes.Path):
            yield step.place, "A wildcard path"
    for shot in plan.one_shots:
        if shot.query is not None and shot.query.find(nodes.Path):
            yield shot.place, "A wildcard path"


def _sources(plan: Plan) -> Iterator[tuple[Place, str]]:
    return ((s.place, f"The source {s.type}") for s in plan.sources if not _runs("source", s))


def _sinks(plan: Plan) -> Iterator[tuple[Place, str]]:
    return ((s.place, f"The sink {s.type}") for s in plan.sinks if not _runs("sink", s))


def _runs(kind: str, plan: SourcePlan | SinkPlan) -> bool:
    try:
        return bool(registry.find(kind, plan.type).runnable)
    except MillpondError:
        return False


def _backends(plan: Plan) -> Iterator[tuple[Place, str]]:
    for table in plan.tables:
        if table.spec.backend != "memory":
            yield table.place, f"The backend {table.spec.backend}"


def _table_options(plan: Plan) -> Iterator[tuple[Place, str]]:
    for table in plan.tables:
        if table.kind is not TableKind.HIDDEN:
            for name in table.options:
                if name in ("retention", "cache.max_size", "cache.ttl"):
                    yield table.place, f"The table option '{name}'"


def _flow_options(plan: Plan) -> Iterator[tuple[Place, str]]:
    for step in _steps(plan):
        for name, default in (("late.rows", "dead-letter"), ("idle.timeout", None)):
            if step.options.get(name) not in (default, None):
                yield step.place, f"The option '{name}'"


NOT_YET = (
    NotYet("UPSERT ... ON", _upserts_on),
    NotYet("windows", _windows),
    NotYet("GROUP BY and DISTINCT into sinks", _groups_into_sinks),
    NotYet("other aggregates over streams", _other_aggregates),
    NotYet("stream-stream joins", _stream_joins),
    NotYet("per-join options", _join_options),
    NotYet("CHANGES()", _changes),
    NotYet("wildcard paths", _paths),
    NotYet("sources", _sources),
    NotYet("sinks", _sinks),
    NotYet("backends", _backends),
    NotYet("retention and read-through caches", _table_options),
    NotYet("late rows and idle streams", _flow_options),
)
