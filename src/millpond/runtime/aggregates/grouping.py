"""A batch folded into the groups of one statement: summed up by Spark, merged by key, closed by the watermark."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.table import Transaction
from millpond.plan.aggregate_model import END, START, AggregatePlan
from millpond.plan.model import Step, StepKind
from millpond.runtime.aggregates import aggregate, distinct, expiry, kept
from millpond.runtime.aggregates.aggregate import GROUP_ID, key_columns, positions
from millpond.runtime.aggregates.partials import Grouped, grouped_rows, partials
from millpond.runtime.aggregates.sessions import join_sessions
from millpond.runtime.changing.row_sets import rows_with, unique_rows
from millpond.runtime.flows import late
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.watermark import at
from millpond.runtime.flows.work import Work


@dataclass(frozen=True)
class Folded:
    """The groups that a batch touched, as they are now in the companion; `is_new` tells those that were not there
    before, `replaced` are groups that are gone: sessions that are part of a touched one now, and groups that had
    expired and begin anew."""

    groups: pa.Table
    is_new: pa.Array
    replaced: pa.Table


def fold(run: BatchRun, step: Step) -> Folded:
    """Take a batch into the groups of a statement; rows that come too late are reported and left out."""
    plan = step.aggregate
    assert plan is not None
    rows = grouped_rows(run.work, plan, run.batch.relation)
    found = partials(rows, plan, touched_only=step.kind is not StepKind.AGGREGATE or run.batch.id >= 0)
    batch = _as_companion(run, plan, aggregate.with_one_group(found, plan))
    if plan.window is not None and plan.window.is_session:
        return _fold_sessions(run, step, rows, batch)
    batch = _on_time(run, step, rows, batch)
    companion = run.work.table(plan.companion)
    keys = batch.select(list(key_columns(plan)))
    held = companion.lookup(keys)
    expired = expiry.drop_expired(run, plan, held)
    if expired.num_rows:
        held = companion.lookup(keys)
    batch = distinct.count_new(run.work, plan, rows, batch)
    where = positions(keys, held)
    merged = aggregate.merge(held.take(where), batch, plan)
    companion.upsert(merged)
    _keep(run, plan, rows, merged)
    return Folded(merged, pc.is_null(where), expired)


def _as_companion(run: BatchRun, plan: AggregatePlan, found: pa.Table) -> pa.Table:
    """The batch's partials in the companion's columns; each group gets a number, used if it turns out to be new."""
    schema = run.work.table(plan.companion).schema
    if plan.kept is not None:
        numbers = kept.free_numbers(run.work, plan.companion, GROUP_ID, found.num_rows)
        found = found.append_column(GROUP_ID, numbers)
    found = expiry.with_commit_time(run, plan, found)
    return found.select(list(schema.names)).cast(schema.arrow())


def _on_time(run: BatchRun, step: Step, rows: Grouped, batch: pa.Table) -> pa.Table:
    plan = step.aggregate
    assert plan is not None
    if plan.window is None:
        return batch
    refused = late.is_refused(batch, late.closed_until(run, step, run.watermark.before))
    if pc.any(refused).as_py():
        late.report(run, step, rows, batch.filter(refused))
        batch = batch.filter(pc.invert(refused))
    return batch


def _keep(run: BatchRun, plan: AggregatePlan, rows: Grouped, groups: pa.Table) -> None:
    if plan.kept is not None:
        values = kept.batch_values(rows, plan)
        kept.keep(run.work, plan, values, groups)


def _fold_sessions(run: BatchRun, step: Step, rows: Grouped, batch: pa.Table) -> Folded:
    """The same for sessions: what a row is late for shows only when it is known which sessions come together."""
    plan = step.aggregate
    assert plan is not None
    companion = run.work.table(plan.companion)
    closed_us = late.closed_until(run, step, run.watermark.before)
    timed = batch.filter(pc.is_valid(batch[START]))
    groups = list(plan.groups)
    held = rows_with(companion, groups, unique_rows(timed.select(groups))) if groups else companion.to_arrow()
    joined = join_sessions(held.filter(pc.invert(late.is_refused(held, closed_us))), timed, plan)
    is_late = late.is_refused(joined.sessions, closed_us)
    refused = pa.concat_tables([batch.filter(pc.is_null(batch[START])), timed.filter(is_late.take(joined.into))])
    if refused.num_rows:
        late.report(run, step, rows, refused)
    if joined.replaced.num_rows:
        companion.delete(keys=joined.replaced.select(list(plan.keys)))
    sessions = joined.sessions.filter(pc.invert(is_late))
    companion.upsert(sessions)
    if plan.kept is not None:
        values = run.work.table(plan.kept.companion)
        kept.move(values, joined.replaced[GROUP_ID], joined.sessions[GROUP_ID].take(joined.grown))
        numbers = joined.sessions[GROUP_ID].take(joined.into)
        local = timed.select(list(plan.keys)).append_column(GROUP_ID, numbers)
        _keep(run, plan, rows, local.filter(pc.invert(is_late.take(joined.into))))
    return Folded(sessions, pa.array([True] * sessions.num_rows), joined.replaced)


def ended(tx: Transaction, plan: AggregatePlan, until_us: int) -> pa.Table:
    """The windows that ended by a moment, in the order in which they did."""
    windows = tx.table(plan.companion).find(f"{END} <= ?", [at(until_us)])
    return windows.sort_by([(END, "ascending"), (START, "ascending")])


def forget(work: Work, plan: AggregatePlan, windows: pa.Table, until_us: int) -> None:
    """Drop what is kept of the windows that ended by a moment."""
    work.table(plan.companion).delete(keys=windows.select(list(plan.keys)))
    distinct.forget(work, plan, at(until_us))
    if plan.kept is not None:
        kept.forget(work.table(plan.kept.companion), windows[GROUP_ID])
