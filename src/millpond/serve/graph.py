"""The graph of an app: its sources, flows, tables and sinks, and the data flow between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from starlette.responses import Response

from millpond.plan.model import FlowPlan, Plan, Step, StepKind, TableKind, TablePlan
from millpond.redact import mask
from millpond.serve.endpoints import Call, Endpoint, answer_json

SOURCE, FLOW, TABLE, VIEW, SINK = "source", "flow", "table", "view", "sink"
# The kind of an edge: rows are read, written, looked up for a stream, or derived from other tables.
READ, WRITE, LOOKUP, FOLLOW = "read", "write", "lookup", "follow"


@dataclass(frozen=True)
class Node:
    """A node. `key` is the id, or for a table the name, in the statistics."""

    id: str
    kind: str
    name: str
    key: str
    detail: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Edge:
    """An edge. `line` is that of the statement that writes, None if there is no single one."""

    source: str
    target: str
    kind: str
    line: int | None = None


def graph_of(plan: Plan) -> dict[str, Any]:
    """Nodes and edges, without hidden tables."""
    nodes = list(_nodes(plan))
    known = {node.id for node in nodes}
    edges = [edge for edge in dict.fromkeys(_edges(plan)) if edge.source in known and edge.target in known]
    return {
        "nodes": [asdict(node) for node in nodes],
        "edges": [asdict(edge) for edge in edges],
        "statements": [_statement(flow, step, plan) for flow in plan.flows for step in flow.steps],
    }


def _nodes(plan: Plan) -> Iterator[Node]:
    for source in plan.sources:
        yield Node(f"source:{source.id}", SOURCE, source.name, source.id, source.spec.shown, source.place.line)
    for flow in plan.flows:
        yield Node(f"flow:{flow.id}", FLOW, flow.name, flow.id, f"{len(flow.steps)} statements", _line(flow))
    for table in plan.tables:
        if not table.spec.hidden:
            kind = VIEW if table.kind is TableKind.VIEW else TABLE
            yield Node(
                f"table:{table.name.lower()}", kind, table.name, table.name, table.spec.backend, table.place.line
            )
    for sink in plan.sinks:
        yield Node(f"sink:{sink.id}", SINK, sink.spec.shown, sink.id, sink.guarantee, sink.place.line)


def _line(flow: FlowPlan) -> int | None:
    return flow.steps[0].place.line if flow.steps else None


def _edges(plan: Plan) -> Iterator[Edge]:
    for flow in plan.flows:
        for source in (flow.source, *flow.joined):
            yield Edge(f"source:{source}", f"flow:{flow.id}", READ)
        for step in flow.steps:
            yield Edge(f"flow:{flow.id}", _target(step, plan), WRITE, step.place.line)
            for access in step.reads:
                yield Edge(_table(access.table), f"flow:{flow.id}", LOOKUP)
    for table in plan.tables:
        yield from _into(table)
    for change in plan.changes:
        yield Edge(_table(change.table), _target(change.step, plan), WRITE, change.step.place.line)
    for shot in plan.one_shots:
        if shot.sink is not None:
            for access in shot.reads:
                yield Edge(_table(access.table), f"sink:{shot.sink}", FOLLOW, shot.place.line)


def _into(table: TablePlan) -> Iterator[Edge]:
    if table.source is not None and table.query is not None:
        yield Edge(f"source:{table.source}", _table(table.name), READ)
    for access in table.reads:
        yield Edge(_table(access.table), _table(table.name), FOLLOW)


def _target(step: Step, plan: Plan) -> str:
    if step.kind is StepKind.RELAY:
        # Events that are passed to a join of two streams go to its flow.
        return f"flow:{step.target.partition(':')[0]}"
    if plan.table(step.target) is not None:
        return _table(step.target)
    return f"sink:{step.target}"


def _table(name: str) -> str:
    return f"table:{name.lower()}"


def _statement(flow: FlowPlan, step: Step, plan: Plan) -> dict[str, Any]:
    sink = next((sink.spec.shown for sink in plan.sinks if sink.id == step.target), None)
    return {
        "flow": flow.id,
        "line": step.place.line,
        "kind": str(step.kind),
        "target": sink or step.target,
        "sql": mask(step.statement.code) if step.statement is not None else "",
    }


async def graph(call: Call) -> Response:
    return answer_json(await call.served.in_thread(graph_of, call.app.plan))


ENDPOINTS = (
    Endpoint("GET", "/api/graph", "Sources, flows, tables and sinks, and what goes from one to the other.", graph),
)
