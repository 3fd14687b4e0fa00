"""The hidden tables of an aggregate: accumulators by group, distinct values, and stored values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.evaluator import Engine
from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.contracts.table import TableSpec, WriteTable
from millpond.engine.accumulators import GROUP_ID, ONE, key_columns, with_one_group
from millpond.engine.partials import (
    Grouped,
    aggregates,
    in_fixed_order,
    names,
    partials_by_arrow,
    partials_text,
)
from millpond.engine.row_sets import positions, rows_with
from millpond.engine.spark.transfer import Dataset, Views, arrow_frame, schema_of
from millpond.engine.work import Work
from millpond.errors import TableError
from millpond.expressions.failures import NotCompilable
from millpond.expressions.sort_ranks import single_zero_and_nan
from millpond.plan.aggregate_model import END, TOUCHED, AggregatePlan, DistinctPlan, KeptPlan
from millpond.plan.routing import engine_asked
from millpond.plan.statement_groups import carry_order
from millpond.relational.codes import group_codes
from millpond.relational.compiled import QueryCache
from millpond.schema import TIMESTAMP, Column, Schema

# The number of a stored value, in stream order over all batches.
NUMBER = "n"
VALUES = "__values__"
# Ledger key prefix, followed by the name of a companion: the next unused number in it.
NEXT = "next:"


def free_numbers(work: Work, companion: str, column: str, count: int) -> pa.Array:
    """Numbers for new rows of a companion, higher than all earlier ones, including those of commits that are not
    batches."""
    first = work.tx.get(NEXT + companion.lower())
    if first is None:
        highest = work.table(companion).scalar(f"MAX({column})")
        first = 0 if highest is None else highest + 1
    work.tx.put(NEXT + companion.lower(), first + count)
    return pa.array(np.arange(first, first + count), pa.int64())


def batch_values(grouped: Grouped, plan: AggregatePlan) -> pa.Table:
    """The values of a batch to be stored: groups and arguments, in stream order; distinct ones if that is
    sufficient."""
    kept = plan.kept
    assert kept is not None
    columns = names((*plan.keys, *kept.arguments)) or "1 AS one"
    if kept.is_set:
        if grouped.local is not None:
            found = _once_each(grouped.local, (*plan.keys, *kept.arguments))
            if found is not None:
                return with_one_group(found, plan)
        return with_one_group(grouped.ask(f"SELECT DISTINCT {columns} FROM {{view}}"), plan)
    rows = grouped.local
    if rows is None:
        rows = grouped.ask(f"SELECT {columns}, {ORDER_MAJOR}, {ORDER_MINOR} FROM {{view}}")
    return with_one_group(rows.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")]), plan)


def keep(work: Work, plan: AggregatePlan, batch: pa.Table, groups: pa.Table) -> None:
    """Store a batch's values under the numbers of their groups. `groups` has keys and numbers; values of a group that
    it does not contain are late."""
    assert plan.kept is not None
    values = work.table(plan.kept.companion)
    found = positions(batch.select(list(key_columns(plan))), groups)
    columns = {GROUP_ID: groups[GROUP_ID].take(found)}
    columns |= {name: batch[name] for name in plan.kept.arguments}
    rows = pa.table(columns).filter(pc.is_valid(found))
    if not rows.num_rows:
        return
    if NUMBER not in values.schema:
        _add_new(values, rows)
        return
    rows = rows.append_column(NUMBER, free_numbers(work, plan.kept.companion, NUMBER, rows.num_rows))
    values.insert(rows.select(list(values.schema.names)).cast(values.schema.arrow()))


def _add_new(values: WriteTable, rows: pa.Table) -> None:
    rows = rows.select(list(values.schema.names)).cast(values.schema.arrow())
    found = positions(rows, values.lookup(rows))
    new = rows.filter(pc.is_null(found))
    if new.num_rows:
        values.upsert(new)


def of_groups(values: WriteTable, groups: pa.ChunkedArray) -> pa.Table:
    """The stored values of groups, given by their numbers."""
    return values.lookup(groups, by=GROUP_ID)


def move(values: WriteTable, sources: pa.ChunkedArray, targets: pa.ChunkedArray) -> None:
    """Move the values of some groups to others, because their sessions were merged."""
    rows = of_groups(values, sources)
    if not rows.num_rows:
        return
    found = pc.index_in(rows[GROUP_ID], value_set=pa.array(sources.to_pylist(), pa.int64()))
    moved = rows.set_column(rows.column_names.index(GROUP_ID), GROUP_ID, targets.take(found))
    values.delete(keys=rows.select(list(values.schema.key)))
    if NUMBER not in values.schema:
        _add_new(values, moved)
    else:
        values.insert(moved)


def finals(work: Work, kept: KeptPlan, groups: pa.ChunkedArray) -> pa.Table:
    """The aggregates of groups, given by their numbers, one row for each."""
    rows = of_groups(work.table(kept.companion), groups)
    by_arrow = None if engine_asked() is Engine.SPARK else _finals_by_arrow(rows, kept, groups, work.cache)
    if by_arrow is not None:
        return by_arrow
    view = work.views.frame(VALUES, arrow_frame(work.views.session, rows))
    columns = ", ".join(f"{text} AS `{name}`" for name, text, _ in kept.finals)
    text = f"SELECT {GROUP_ID}, {columns} FROM `{view}` GROUP BY {GROUP_ID}"
    present = pc.is_in(groups, value_set=rows[GROUP_ID].combine_chunks())
    if not pc.all(present).as_py():
        # A group without values has the aggregates of an empty input.
        text += f" UNION ALL SELECT CAST(NULL AS BIGINT), {columns} FROM `{view}` WHERE false"
    found = work.views.session.sql(text).toArrow()
    wanted = pa.table({GROUP_ID: pc.if_else(present, groups, pa.scalar(None, pa.int64()))})
    return found.take(positions(wanted, found)).drop_columns([GROUP_ID])


def _finals_by_arrow(rows: pa.Table, kept: KeptPlan, groups: pa.ChunkedArray, cache: QueryCache) -> pa.Table | None:
    """The same by Arrow, or None if Spark must compute it."""
    # Values are read by group, not in the order of their numbers, which FIRST and LAST depend on.
    ordered = rows.sort_by(NUMBER) if NUMBER in rows.column_names else rows
    numbers = pc.index_in(ordered[GROUP_ID], value_set=groups.combine_chunks()).to_numpy(zero_copy_only=False)
    try:
        found = aggregates(
            [text for _, text, _ in kept.finals], ordered, (numbers.astype(np.int64), len(groups)), cache
        )
    except (NotCompilable, TableError):
        return None
    return pa.table(found, names=[name for name, _, _ in kept.finals])


def forget(values: WriteTable, groups: pa.ChunkedArray) -> None:
    """Delete the values of groups that were removed."""
    rows = of_groups(values, groups)
    if rows.num_rows:
        values.delete(keys=rows.select(list(values.schema.key)))


def batch_distinct(rows: Grouped, plan: AggregatePlan, distinct: DistinctPlan) -> pa.Table:
    """The distinct values of a batch by group; a tuple that contains NULL is not counted."""
    if rows.local is not None:
        found = _by_arrow(rows.local, plan, distinct)
        if found is not None:
            return with_one_group(found, plan)
    conditions = [f"`{name}` IS NOT NULL" for name in distinct.arguments]
    conditions += [f"`{distinct.where}`"] if distinct.where else []
    columns = names((*plan.keys, *distinct.arguments))
    return with_one_group(rows.ask(f"SELECT DISTINCT {columns} FROM {{view}} WHERE {' AND '.join(conditions)}"), plan)


def _by_arrow(rows: pa.Table, plan: AggregatePlan, distinct: DistinctPlan) -> pa.Table | None:
    """The same by Arrow, or None for values that only Spark can compare."""
    counted = [pc.is_valid(rows[name]) for name in distinct.arguments]
    counted += [pc.fill_null(rows[distinct.where], False)] if distinct.where else []
    return _once_each(rows.filter(reduce(pc.and_, counted)), (*plan.keys, *distinct.arguments))


def _once_each(rows: pa.Table, columns: Sequence[str]) -> pa.Table | None:
    """The distinct rows of some columns; None for values that only Spark can compare."""
    values = pa.table({name: single_zero_and_nan(rows[name]) for name in columns})
    if not columns:
        return pa.table({"one": pa.array([1] * min(rows.num_rows, 1), pa.int32())})
    try:
        return values.take(pa.array(group_codes(values.columns, values.num_rows)[1]))
    except NotCompilable:
        return None


def count_new(work: Work, plan: AggregatePlan, rows: Grouped, partials: pa.Table) -> pa.Table:
    """The partials with the number of values that each group did not have before; these values are stored."""
    for distinct in plan.distincts:
        seen = work.table(distinct.companion)
        values = batch_distinct(rows, plan, distinct).cast(seen.schema.arrow())
        group = positions(values.select(list(key_columns(plan))), partials)
        known = positions(values, seen.lookup(values))
        is_new = pc.and_(pc.is_null(known), pc.is_valid(group))
        if pc.any(is_new).as_py():
            seen.upsert(values.filter(is_new))
        counts = np.bincount(group.filter(is_new).to_numpy(zero_copy_only=False), minlength=partials.num_rows)
        at = partials.column_names.index(distinct.accumulator)
        partials = partials.set_column(at, distinct.accumulator, pa.array(counts.astype(np.int64)))
    return partials


def forget_values(work: Work, plan: AggregatePlan, ended_by: datetime) -> None:
    """Delete the values of windows that were removed."""
    for distinct in plan.distincts:
        work.table(distinct.companion).delete(f"{END} <= ?", [ended_by])


def forget_groups(work: Work, plan: AggregatePlan, groups: pa.Table) -> None:
    """Delete the values of groups that were removed."""
    for distinct in plan.distincts:
        seen = work.table(distinct.companion)
        rows = rows_with(seen, plan.keys, groups.select(list(plan.keys)))
        if rows.num_rows:
            seen.delete(keys=rows.select(list(seen.schema.key)))


def companion_specs(views: Views, plan: AggregatePlan, query: Callable[[exp.Query], Dataset]) -> Iterator[TableSpec]:
    """The tables that an aggregate needs; `query` runs a query over relations without rows, which returns the types."""
    ordered = carry_order(plan.rows)
    rows = query(ordered or plan.rows)
    grouped = Grouped(views, rows if ordered is not None else in_fixed_order(rows), plan)
    local = (
        partials_by_arrow(grouped.local, plan, QueryCache(), touched_only=False) if grouped.local is not None else None
    )
    found = schema_of(grouped.frame(partials_text(plan, touched_only=False)) if local is None else local)
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
    """The existing table of groups, changed for 'state.ttl', which was added or removed."""
    columns = tuple(c for c in spec.schema if c.name != TOUCHED)
    touched = (Column(TOUCHED, TIMESTAMP),) if plan.expiry else ()
    return replace(spec, schema=Schema.of((*columns, *touched), spec.schema.key))


def _values_spec(plan: AggregatePlan, arguments: tuple[Column, ...]) -> TableSpec:
    """The table of stored values, by the number of their group: as a set if that is sufficient and the values can be a
    key, else numbered."""
    assert plan.kept is not None
    columns = (Column(GROUP_ID, pa.int64()), *arguments)
    index = ((GROUP_ID,),)
    if plan.kept.is_set and not any(c.type is not None and pa.types.is_nested(c.type) for c in arguments):
        return _spec(plan.kept.companion, columns, tuple(c.name for c in columns), index)
    return _spec(plan.kept.companion, (Column(NUMBER, pa.int64()), *columns), (NUMBER,), index)


def _columns(grouped: Grouped, columns: tuple[str, ...]) -> tuple[Column, ...]:
    if not columns:
        return ()
    if grouped.local is not None:
        return schema_of(grouped.local.select(list(columns))).columns
    return schema_of(grouped.frame(f"SELECT {names(columns)} FROM {{view}}")).columns


def _spec(
    name: str, columns: tuple[Column, ...], key: tuple[str, ...], indexes: tuple[tuple[str, ...], ...] = ()
) -> TableSpec:
    # A column that contains only NULL is stored as text.
    known = (Column(c.name, pa.string()) if c.type is not None and pa.types.is_null(c.type) else c for c in columns)
    return TableSpec(name, Schema.of(known, key), indexes=indexes, null_keys=True, hidden=True)
