"""Edits of a table's definition that keep its rows: columns or aggregates that are added or removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millpond.contracts.table import Store
from millpond.plan.aggregate_shape import AggregateShape, shape_of
from millpond.plan.model import Plan, Step, StepKind, TableKind, TablePlan
from millpond.registry import find
from millpond.runtime.keeping.ledger import Definition


@dataclass(frozen=True)
class Reshaped:
    """The columns that a table gets, and those that it loses with their values."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


def reshaping(table: TablePlan, found: Definition, plan: Plan, store: Store) -> Reshaped | None:
    """How a table that is defined otherwise now keeps its rows; None where it cannot."""
    there = store.table(table.name)
    same_place = (table.spec.backend, table.spec.values.get("path")) == (
        there.spec.backend,
        there.spec.values.get("path"),
    )
    if found.kind != table.kind or not same_place or find("backend", there.spec.backend).capabilities.outside:
        return None
    if [k.lower() for k in table.spec.schema.key] != [k.lower() for k in there.schema.key]:
        return None
    if table.kind is TableKind.DECLARED:
        return _declared(table, store)
    return _aggregate(table, found, plan) if table.kind is TableKind.AGGREGATE else None


def _declared(table: TablePlan, store: Store) -> Reshaped | None:
    before = {c.name.lower(): c for c in store.table(table.name).schema}
    now = {c.name.lower(): c for c in table.spec.schema}
    same = [(c.type, c.nullable) == (before[n].type, before[n].nullable) for n, c in now.items() if n in before]
    added = [c for n, c in now.items() if n not in before]
    if not all(same) or not all(c.nullable or c.default is not None for c in added):
        return None
    return Reshaped(tuple(c.name for c in added), tuple(c.name for n, c in before.items() if n not in now))


def _aggregate(table: TablePlan, found: Definition, plan: Plan) -> Reshaped | None:
    shape, before = shape_in(table, plan), known_shape(found)
    if shape is None or before is None or not before.may_become(shape):
        return None
    return Reshaped(before.added(shape), shape.added(before))


def step_of(table: TablePlan, plan: Plan) -> Step | None:
    """The statement that keeps an aggregate table."""
    steps = (step for flow in plan.flows for step in flow.steps if step.kind is StepKind.AGGREGATE)
    return next((step for step in steps if step.target.lower() == table.name.lower()), None)


def shape_in(table: TablePlan, plan: Plan) -> AggregateShape | None:
    """What an aggregate table of the file keeps."""
    step = step_of(table, plan)
    return None if step is None or step.aggregate is None else shape_of(step.aggregate, table.surroundings)


def known_shape(found: Definition) -> AggregateShape | None:
    """What the aggregate table that is there keeps."""
    values: Any = found.shape
    return None if values is None else AggregateShape(**values)
