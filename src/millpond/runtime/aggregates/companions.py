"""The hidden tables beside an aggregate: accumulators by group, values seen, values kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlglot import exp

from millpond.contracts.table import TableSpec
from millpond.plan.aggregate_model import TOUCHED, AggregatePlan
from millpond.plan.stream_order import carry_order
from millpond.runtime.aggregates.aggregate import GROUP_ID, ONE, key_columns
from millpond.runtime.aggregates.kept import NUMBER
from millpond.runtime.aggregates.partials import Grouped, in_fixed_order, names, partials_text
from millpond.runtime.spark.access import Views
from millpond.runtime.spark.types import from_spark_schema
from millpond.schema import TIMESTAMP, Column, Schema


def companion_specs(views: Views, plan: AggregatePlan, query: Callable[[exp.Query], DataFrame]) -> Iterator[TableSpec]:
    """What to make for an aggregate; `query` runs a query over relations without rows, so that Spark tells types."""
    ordered = carry_order(plan.rows)
    rows = query(ordered or plan.rows)
    grouped = Grouped(views, rows if ordered is not None else in_fixed_order(rows), plan)
    found = from_spark_schema(grouped.frame(partials_text(plan, touched_only=False)).schema)
    keys = tuple(found[name] for name in plan.keys) if plan.keys else (Column(ONE, pa.int8()),)
    running = tuple(found[a.name] for a in plan.accumulators)
    numbered = (Column(GROUP_ID, pa.int64()),) if plan.kept else ()
    touched = (Column(TOUCHED, TIMESTAMP),) if plan.expiry else ()
    # Sessions that a batch may grow are found by their group alone.
    by_group = (plan.groups,) if plan.window is not None and plan.window.is_session and plan.groups else ()
    yield _spec(plan.companion, (*keys, *running, *numbered, *touched), key_columns(plan), by_group)
    for distinct in plan.distincts:
        columns = (*keys, *_columns(grouped, distinct.arguments))
        # The values of a group that expires are found by the group.
        index = (plan.groups,) if plan.expiry else ()
        yield _spec(distinct.companion, columns, tuple(c.name for c in columns), index)
    if plan.kept is not None:
        yield _values_spec(plan, _columns(grouped, plan.kept.arguments))


def with_or_without_expiry(spec: TableSpec, plan: AggregatePlan) -> TableSpec:
    """The table of groups that is there, as it must be after 'state.ttl' was added or removed."""
    columns = tuple(c for c in spec.schema if c.name != TOUCHED)
    touched = (Column(TOUCHED, TIMESTAMP),) if plan.expiry else ()
    return replace(spec, schema=Schema.of((*columns, *touched), spec.schema.key))


def _values_spec(plan: AggregatePlan, arguments: tuple[Column, ...]) -> TableSpec:
    """Values by the number of their group: as a set, where that is enough and they can be a key, else numbered."""
    assert plan.kept is not None
    columns = (Column(GROUP_ID, pa.int64()), *arguments)
    index = ((GROUP_ID,),)
    if plan.kept.is_set and not any(c.type is not None and pa.types.is_nested(c.type) for c in arguments):
        return _spec(plan.kept.companion, columns, tuple(c.name for c in columns), index)
    return _spec(plan.kept.companion, (Column(NUMBER, pa.int64()), *columns), (NUMBER,), index)


def _columns(grouped: Grouped, columns: tuple[str, ...]) -> tuple[Column, ...]:
    if not columns:
        return ()
    return from_spark_schema(grouped.frame(f"SELECT {names(columns)} FROM {{view}}").schema).columns


def _spec(
    name: str, columns: tuple[Column, ...], key: tuple[str, ...], indexes: tuple[tuple[str, ...], ...] = ()
) -> TableSpec:
    # A column of nothing but NULL is kept as text.
    known = (Column(c.name, pa.string()) if c.type is not None and pa.types.is_null(c.type) else c for c in columns)
    return TableSpec(name, Schema.of(known, key), indexes=indexes, null_keys=True, hidden=True)
