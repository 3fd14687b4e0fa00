"""The plan as JSON for programs, without secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.contracts.evaluator import Route
from millpond.contracts.source import without_identity
from millpond.plan.aggregate_model import SET
from millpond.plan.change_model import ChangeGroup
from millpond.plan.model import Access, FlowPlan, OneShot, Plan, SinkPlan, SourcePlan, Step, TableKind, TablePlan
from millpond.plan.statement_routes import query_route, step_route
from millpond.schema import Schema, type_name


def explain_json(plan: Plan) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "name": plan.name,
        "sources": [_source_json(s) for s in plan.sources],
        "streams": [
            {"name": s.name, "source": s.source, "derived": s.derived, "columns": _columns_json(s.columns)}
            for s in plan.streams
        ],
        "tables": [_table_json(t, plan) for t in plan.tables],
        "flows": [_flow_json(f, plan) for f in plan.flows],
        "changes": [{"id": c.id, "table": c.table, **_step_json(c.step)} for c in plan.changes],
        "one_shots": [_shot_json(s) for s in plan.one_shots],
        "sinks": [_sink_json(s) for s in plan.sinks],
        "problems": [p.as_json() for p in plan.problems],
    }


def _columns_json(schema: Schema | None) -> list[dict[str, Any]] | None:
    if schema is None:
        return None
    return [{"name": c.name, "type": type_name(c.type), "nullable": c.nullable} for c in schema]


def _source_json(source: SourcePlan) -> dict[str, Any]:
    return {
        "id": source.id,
        "name": source.name,
        "type": source.type,
        "mode": str(source.mode),
        "uri": source.spec.shown,
        "declared": source.declared,
        "columns": _columns_json(source.columns),
    }


def _table_json(table: TablePlan, plan: Plan) -> dict[str, Any]:
    return {
        "name": table.name,
        "kind": str(table.kind),
        "backend": table.spec.backend,
        "key": list(without_identity(table.spec.schema).key),
        "columns": _columns_json(without_identity(table.spec.schema)),
        "indexes": [list(i) for i in table.spec.indexes],
        "source": table.source,
        "watch": table.watch,
        "refresh": table.refresh or None,
        "reads": _reads_json(table.reads),
        "hidden": table.spec.hidden,
        **(
            _route_json(query_route(table.query, plan))
            if table.kind is TableKind.VIEW and table.query is not None
            else {}
        ),
    }


def _reads_json(reads: Iterable[Access]) -> list[dict[str, str]]:
    return [{"table": a.table, "how": str(a.how), "reason": a.reason} for a in reads]


def _route_json(route: Route) -> dict[str, Any]:
    return {"engine": str(route.engine), "engine_reason": route.reason}


def _flow_json(flow: FlowPlan, plan: Plan) -> dict[str, Any]:
    return {
        "id": flow.id,
        "name": flow.name,
        "source": flow.source,
        "joined": list(flow.joined),
        "watermark": str(flow.watermark.column) if flow.watermark else None,
        "watermark_delay_us": flow.watermark.delay_us if flow.watermark else None,
        "options": dict(flow.options),
        "statements": [{**_step_json(s), **_route_json(step_route(s, flow, plan))} for s in flow.steps],
        "groups": [_group_json(g, flow) for g in flow.groups],
    }


def _group_json(group: ChangeGroup, flow: FlowPlan) -> dict[str, Any]:
    lines = {step.index: step.place.line for step in flow.steps}
    return {
        "table": group.table,
        "by_key": group.by_key,
        "statements": [
            {
                "line": lines[w.index],
                "by_key": w.action is not None,
                "one_by_one": w.one_by_one,
                "reason": w.reason or None,
            }
            for w in group.writers
        ],
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "line": step.place.line,
        "kind": str(step.kind),
        "target": step.target,
        "columns": _columns_json(step.schema),
        "groups": [g for g in step.aggregate.groups if g != SET] if step.aggregate else None,
        "keeps": dict(step.aggregate.texts()) if step.aggregate else None,
        "options": dict(step.options),
        "reads": _reads_json(step.reads),
    }


def _shot_json(shot: OneShot) -> dict[str, Any]:
    return {
        "id": shot.id,
        "line": shot.place.line,
        "kind": type(shot.statement).__name__.lower(),
        "late": shot.late,
        "repeat": shot.repeat,
        "transaction": shot.transaction,
        "sink": shot.sink,
        "reads": _reads_json(shot.reads),
    }


def _sink_json(sink: SinkPlan) -> dict[str, Any]:
    return {"id": sink.id, "type": sink.type, "uri": sink.spec.shown, "guarantee": sink.guarantee}
