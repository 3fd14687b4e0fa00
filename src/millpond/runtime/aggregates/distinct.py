"""COUNT(DISTINCT ...): every value is remembered by group, and only one that was not seen before is counted."""

from __future__ import annotations

from datetime import datetime
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.failures import NotCompilable
from millpond.plan.aggregate_model import END, AggregatePlan, DistinctPlan
from millpond.relational.codes import group_codes
from millpond.runtime.aggregates.aggregate import key_columns, positions, with_one_group
from millpond.runtime.aggregates.partials import Grouped, names
from millpond.runtime.changing.row_sets import rows_with
from millpond.runtime.flows.work import Work


def batch_distinct(rows: Grouped, plan: AggregatePlan, distinct: DistinctPlan) -> pa.Table:
    """The values of a batch by group, each once; a tuple with a NULL in it is not counted."""
    if rows.local is not None:
        found = _by_arrow(rows.local, plan, distinct)
        if found is not None:
            return with_one_group(found, plan)
    conditions = [f"`{name}` IS NOT NULL" for name in distinct.arguments]
    conditions += [f"`{distinct.where}`"] if distinct.where else []
    columns = names((*plan.keys, *distinct.arguments))
    return with_one_group(rows.ask(f"SELECT DISTINCT {columns} FROM {{view}} WHERE {' AND '.join(conditions)}"), plan)


def _by_arrow(rows: pa.Table, plan: AggregatePlan, distinct: DistinctPlan) -> pa.Table | None:
    """The same without Spark, or None for values that only Spark compares."""
    counted = [pc.is_valid(rows[name]) for name in distinct.arguments]
    counted += [pc.fill_null(rows[distinct.where], False)] if distinct.where else []
    values = rows.filter(reduce(pc.and_, counted)).select([*plan.keys, *distinct.arguments])
    try:
        return values.take(pa.array(group_codes(values.columns, values.num_rows)[1]))
    except NotCompilable:
        return None


def count_new(work: Work, plan: AggregatePlan, rows: Grouped, partials: pa.Table) -> pa.Table:
    """The partials with the number of values that each group has not had before, which are remembered."""
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


def forget(work: Work, plan: AggregatePlan, ended_by: datetime) -> None:
    """Drop the values of windows that are gone."""
    for distinct in plan.distincts:
        work.table(distinct.companion).delete(f"{END} <= ?", [ended_by])


def forget_groups(work: Work, plan: AggregatePlan, groups: pa.Table) -> None:
    """Drop the values of groups that are gone."""
    for distinct in plan.distincts:
        seen = work.table(distinct.companion)
        rows = rows_with(seen, plan.keys, groups.select(list(plan.keys)))
        if rows.num_rows:
            seen.delete(keys=rows.select(list(seen.schema.key)))
