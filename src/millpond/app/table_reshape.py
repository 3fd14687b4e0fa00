"""Changes of a table's definition that keep its rows: columns or aggregates that are added or removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.table import Store, TableSpec
from millpond.engine.ledger import Definition
from millpond.engine.row_sets import positions
from millpond.plan.definition import AggregateShape, shape_of
from millpond.plan.model import Plan, Step, StepKind, TableKind, TablePlan
from millpond.registry import find
from millpond.schema import Schema


@dataclass(frozen=True)
class Reshaped:
    """The columns that are added, those that are removed with their values, and the backends between which the table
    moves, such as "from memory to redis"; "" if it stays where it is."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    moves: str = ""


def reshaping(table: TablePlan, found: Definition, plan: Plan, store: Store) -> Reshaped | None:
    """How a table with a changed definition keeps its rows; None if it cannot."""
    there = store.table(table.name)
    same_place = (table.spec.backend, table.spec.values.get("path")) == (
        there.spec.backend,
        there.spec.values.get("path"),
    )
    old = find("backend", there.spec.backend).capabilities
    # The rows on a server cannot be read when the file does not say any more where it is; the log has only paths.
    is_away = old.remote and not (old.files and "://" not in str(there.spec.values.get("path") or ""))
    if found.kind != table.kind or is_away or (same_place and old.outside):
        return None
    if [k.lower() for k in table.spec.schema.key] != [k.lower() for k in there.schema.key]:
        return None
    other = None
    if table.kind is TableKind.DECLARED:
        other = _declared(table, store)
    elif table.kind is TableKind.AGGREGATE:
        other = _aggregate(table, found, plan)
    if other is None or same_place:
        return other
    if table.spec.backend == there.spec.backend and not table.spec.values.get("path"):
        # The backend has chosen its place, and chooses another.
        return other
    return replace(other, moves=f"from {there.spec.backend} to {table.spec.backend}")


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
    """The statement that maintains an aggregate table."""
    steps = (step for flow in plan.flows for step in flow.steps if step.kind is StepKind.AGGREGATE)
    return next((step for step in steps if step.target.lower() == table.name.lower()), None)


def shape_in(table: TablePlan, plan: Plan) -> AggregateShape | None:
    """The shape of an aggregate table in the file."""
    step = step_of(table, plan)
    return None if step is None or step.aggregate is None else shape_of(step.aggregate, table.surroundings)


def known_shape(found: Definition) -> AggregateShape | None:
    """The shape of the stored aggregate table."""
    values: Any = found.shape
    return None if values is None else AggregateShape(**values)


def reshaped(rows: pa.Table, schema: Schema, values: Mapping[str, Any] | None = None) -> pa.Table:
    """Rows with the columns of a schema, matched by name; added columns get their value for old rows, or NULL."""
    there = {name.lower(): name for name in rows.column_names}
    columns = []
    for column in schema:
        if column.name.lower() in there:
            columns.append(rows[there[column.name.lower()]])
        else:
            value = (values or {}).get(column.name)
            columns.append(pa.repeat(pa.scalar(value, column.type), rows.num_rows))
    return pa.table(columns, schema=schema.arrow())


def reshaped_groups(rows: pa.Table, schema: Schema, before: AggregateShape, now: AggregateShape) -> pa.Table:
    """The groups of an aggregate with the columns of the edited one: common accumulators are kept, new ones are
    empty."""
    names = {text: name for name, text in before.accumulators.items()}
    columns = []
    for column in schema:
        text = now.accumulators.get(column.name)
        old = (column.name if column.name in rows.column_names else None) if text is None else names.get(text)
        columns.append(pa.nulls(rows.num_rows, column.type) if old is None else rows[old])
    return pa.table(columns, schema=schema.arrow())


def with_rows(rows: pa.Table, newer: pa.Table, schema: Schema) -> pa.Table:
    """Rows, with those replaced that have the same key as a row of `newer`."""
    if not schema.key:
        return newer
    found = positions(rows.select(list(schema.key)), newer)
    return pa.concat_tables([rows.filter(pc.is_null(found)), newer.take(found.drop_null())])


def ensure_columns(store: Store, spec: TableSpec) -> None:
    """Create a table, or add the missing columns to the existing one."""
    there = {name.lower() for name in store.names()}
    if spec.name.lower() in there and store.table(spec.name).schema.names != spec.schema.names:
        place = {"path": None} if find("backend", spec.backend).capabilities.files else {}
        made = replace(spec, values={**spec.values, **place})
        store.reshape([(made, reshaped(store.table(spec.name).to_arrow(), spec.schema))], {})
        return
    store.create(spec)
