"""The engine of each statement of a plan, with the reason, for explain.

Each query of a statement is evaluated by Arrow over relations without rows: what Arrow does not support there, it does
not support in any batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.evaluator import Engine, Route
from millpond.expressions.failures import NotCompilable
from millpond.plan.aggregate_model import END, START, AggregatePlan
from millpond.plan.missing import rewrite_missing
from millpond.plan.model import BATCH, VERSIONS, FlowPlan, Plan, Step, TableKind, reads_versions
from millpond.plan.over_model import OverPlan
from millpond.plan.routing import Facts, limits_of, route
from millpond.plan.source_catalog import record_schema
from millpond.plan.statement_groups import carry_order
from millpond.relational.answer import ArrowEvaluator
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.sql.nodes import Default
from millpond.sql.parser import parse_expression

UNDECIDED = Route(Engine.ARROW, "if Arrow supports all of it, else Spark: columns are not known before the start")
JOINED = "the join of streams, whose state Spark stores; joined rows are processed in small batches"
# The rows of a batch that are grouped, and the groups after merging.
ROWS, MERGED = "__rows__", "__merged__"


class Undecided(Exception):
    """A type is not known before the app starts."""


def step_route(step: Step, flow: FlowPlan, plan: Plan) -> Route:
    """The route of a statement of a flow."""
    if flow.join is not None:
        return route(Facts(JOINED, limits=limits_of(plan.settings)))
    source = plan.source(flow.source)
    batch = record_schema(source) if source.columns is not None else None
    return _route(plan, lambda: _step(step, plan, batch))


def _step(step: Step, plan: Plan, batch: Schema | None) -> None:
    if step.over is not None:
        batch = _windowed(step.over, plan, batch)
    if step.aggregate is not None:
        _aggregate(step.aggregate, plan, batch)
    else:
        _rows(step.query, _schemas(step.query, plan, batch))


def _windowed(over: OverPlan, plan: Plan, batch: Schema | None) -> Schema:
    """The batch as a statement with window functions reads it: its rows, with their values."""
    ordered = carry_order(over.rows) or over.rows
    rows = Schema.from_arrow(_rows(ordered, _schemas(ordered, plan, batch)).schema)
    values = [Column(call.name, call.type) for window in over.windows for call in window.calls]
    return Schema((*rows.columns, *values))


def query_route(query: exp.Query, plan: Plan) -> Route:
    """The route of a query over tables: a view, or a one-shot statement."""
    return _route(plan, lambda: _rows(query, _schemas(query, plan, None)))


def routes(plan: Plan) -> Iterator[Route]:
    """Of all statements and views, each determined when it is asked for."""
    yield from (step_route(step, flow, plan) for flow in plan.flows for step in flow.steps)
    views = (table.query for table in plan.tables if table.kind is TableKind.VIEW)
    yield from (query_route(query, plan) for query in views if query is not None)
    yield from (query_route(shot.query, plan) for shot in plan.one_shots if shot.query is not None)


def _route(plan: Plan, attempt: Callable[[], object]) -> Route:
    limits = limits_of(plan.settings)
    try:
        attempt()
    except Undecided:
        return UNDECIDED
    except NotCompilable as refusal:
        return route(Facts(str(refusal), limits=limits))
    return route(Facts(limits=limits))


def _schemas(query: exp.Query, plan: Plan, batch: Schema | None) -> dict[str, pa.Schema]:
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    found: dict[str, pa.Schema] = {}
    for name in {table.name.lower() for table in query.find_all(exp.Table)} - own - {MERGED}:
        planned = plan.table(name)
        schema = batch if name == BATCH else planned.spec.schema if planned is not None else None
        if schema is None or not schema.settled:
            raise Undecided
        if name == BATCH and VERSIONS.name not in schema and reads_versions(query):
            schema = Schema((*schema.columns, VERSIONS))
        found[name] = schema.arrow()
    return found


def _rows(query: exp.Query, schemas: Mapping[str, pa.Schema]) -> pa.Table:
    """The empty result of the query, with its types."""
    inputs = {name: schema.empty_table() for name, schema in schemas.items()}
    # DEFAULT is an expression of the column by then.
    known = query.copy()
    for default in list(known.find_all(Default)):
        default.replace(exp.Null())
    return ArrowEvaluator().evaluate(rewrite_missing(known), inputs)


def _aggregate(aggregate: AggregatePlan, plan: Plan, batch: Schema | None) -> None:
    """Evaluate what a batch contributes to its groups, and the outputs of the groups."""
    ordered = carry_order(aggregate.rows) or aggregate.rows
    rows = _rows(ordered, _schemas(ordered, plan, batch))
    if aggregate.window is not None:
        for name in (START, END):
            rows = rows.append_column(name, pa.nulls(0, TIMESTAMP))
    keys = [exp.column(name, quoted=True) for name in aggregate.keys]
    calls = [parse_expression(a.partial) for a in aggregate.partials]
    kept = [parse_expression(text) for _, text, _ in aggregate.kept.finals] if aggregate.kept is not None else []
    partials = _over(ROWS, [*keys, *calls, *kept] or [exp.Count(this=exp.Star())])
    _rows(partials.group_by(*partials.expressions[: len(keys)], copy=False) if keys else partials, {ROWS: rows.schema})
    if aggregate.kept is None and all(final.type is not None for final in aggregate.finals):
        fields = [rows.schema.field(name) for name in aggregate.keys]
        fields += [pa.field(final.name, final.type) for final in aggregate.finals]
        shown = _over(MERGED, [*(e for _, e in aggregate.outputs), aggregate.having or exp.true()])
        _rows(shown, {**_schemas(shown, plan, None), MERGED: pa.schema(fields)})


def _over(relation: str, expressions: list[exp.Expr]) -> exp.Select:
    """A SELECT of expressions over one relation."""
    outer = [e.copy().transform(lambda n: _qualified(n, relation)) for e in expressions]
    named = exp.Table(this=exp.to_identifier(relation, quoted=True))
    return exp.Select(expressions=outer).from_(named, copy=False)


def _qualified(node: exp.Expr, relation: str) -> exp.Expr:
    is_outer = isinstance(node, exp.Column) and not node.table and node.find_ancestor(exp.Query) is None
    return exp.column(node.this.copy(), table=relation, quoted=True) if is_outer else node
