"""Values kept by group, for aggregates that have no small running value: Spark computes them over those it needs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.contracts.table import WriteTable
from millpond.plan.aggregate_model import AggregatePlan, KeptPlan
from millpond.runtime.aggregates.aggregate import GROUP_ID, key_columns, positions, with_one_group
from millpond.runtime.aggregates.partials import Grouped, names
from millpond.runtime.flows.work import Work
from millpond.runtime.spark.access import arrow_frame

# The number of a value, in stream order over all batches.
NUMBER = "n"
VALUES = "__values__"
# Under this key and the name of a companion: the next number that nothing in it has.
NEXT = "next:"


def free_numbers(work: Work, companion: str, column: str, count: int) -> pa.Array:
    """Numbers for new rows of a companion, higher than all before them, also those of other commits than batches."""
    first = work.tx.get(NEXT + companion.lower())
    if first is None:
        highest = work.table(companion).scalar(f"MAX({column})")
        first = 0 if highest is None else highest + 1
    work.tx.put(NEXT + companion.lower(), first + count)
    return pa.array(range(first, first + count), pa.int64())


def batch_values(grouped: Grouped, plan: AggregatePlan) -> pa.Table:
    """What a batch gives to keep: groups and arguments, in stream order; equal ones once where that is enough."""
    kept = plan.kept
    assert kept is not None
    columns = names((*plan.keys, *kept.arguments)) or "1 AS one"
    if kept.is_set:
        return with_one_group(grouped.ask(f"SELECT DISTINCT {columns} FROM {{view}}"), plan)
    rows = grouped.local
    if rows is None:
        rows = grouped.ask(f"SELECT {columns}, {ORDER_MAJOR}, {ORDER_MINOR} FROM {{view}}")
    return with_one_group(rows.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")]), plan)


def keep(work: Work, plan: AggregatePlan, batch: pa.Table, groups: pa.Table) -> None:
    """Add a batch's values under the numbers of their groups; `groups` has keys and numbers, and values of a group
    that is not there came too late."""
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
    """The values kept for groups, given by their numbers."""
    return values.lookup(groups, by=GROUP_ID)


def move(values: WriteTable, sources: pa.ChunkedArray, targets: pa.ChunkedArray) -> None:
    """Give the values of some groups to others: their sessions were joined."""
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
    """The aggregates of groups, given by their numbers, a row for each."""
    rows = of_groups(work.table(kept.companion), groups)
    view = work.views.frame(VALUES, arrow_frame(work.views.session, rows))
    columns = ", ".join(f"{text} AS `{name}`" for name, text, _ in kept.finals)
    text = f"SELECT {GROUP_ID}, {columns} FROM `{view}` GROUP BY {GROUP_ID}"
    present = pc.is_in(groups, value_set=rows[GROUP_ID].combine_chunks())
    if not pc.all(present).as_py():
        # A group without values has the aggregates of no rows at all.
        text += f" UNION ALL SELECT CAST(NULL AS BIGINT), {columns} FROM `{view}` WHERE false"
    found = work.views.session.sql(text).toArrow()
    wanted = pa.table({GROUP_ID: pc.if_else(present, groups, pa.scalar(None, pa.int64()))})
    return found.take(positions(wanted, found)).drop_columns([GROUP_ID])


def forget(values: WriteTable, groups: pa.ChunkedArray) -> None:
    """Drop the values of groups that are gone."""
    rows = of_groups(values, groups)
    if rows.num_rows:
        values.delete(keys=rows.select(list(values.schema.key)))
