"""'state.ttl': groups without a window that no event has touched for some time are dropped with all that is kept."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.plan.aggregate_model import TOUCHED, AggregatePlan
from millpond.runtime.aggregates import distinct, kept
from millpond.runtime.aggregates.aggregate import GROUP_ID
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.watermark import as_scalar, at
from millpond.runtime.flows.work import Work
from millpond.schema import TIMESTAMP


def with_commit_time(run: BatchRun, plan: AggregatePlan, partials: pa.Table) -> pa.Table:
    """The groups of a batch with the time at which it touched them, where their events have none."""
    if plan.expiry is None or plan.expiry.column:
        return partials
    now = pa.repeat(as_scalar(run.work.context.now_us()), partials.num_rows)
    return partials.append_column(TOUCHED, now)


def drop_expired(run: BatchRun, plan: AggregatePlan, held: pa.Table) -> pa.Table:
    """Drop those of some groups that had expired when the batch began, and return them: its events begin them anew."""
    until = _expired_until(run, plan, run.watermark.before)
    if until is None:
        return held.slice(0, 0)
    expired = held.filter(pc.fill_null(pc.less_equal(held[TOUCHED], as_scalar(until)), False))
    _forget(run.work, plan, expired)
    return expired


def drop_all_expired(run: BatchRun, plan: AggregatePlan) -> pa.Table:
    """Drop the groups that have expired by the end of the batch, and return them. A group without a time, as after
    'state.ttl' was added to the statement, is taken as touched now."""
    until = _expired_until(run, plan, run.watermark.after)
    companion = run.work.table(plan.companion)
    if until is None or plan.expiry is None:
        return companion.schema.arrow().empty_table()
    found = companion.find(f"{TOUCHED} <= ? OR {TOUCHED} IS NULL", [at(until)])
    timed = pc.is_valid(found[TOUCHED])
    untimed = found.filter(pc.invert(timed))
    if untimed.num_rows:
        now = pa.repeat(as_scalar(until + plan.expiry.ttl_us), untimed.num_rows).cast(TIMESTAMP)
        companion.upsert(untimed.set_column(untimed.column_names.index(TOUCHED), TOUCHED, now))
    expired = found.filter(timed)
    _forget(run.work, plan, expired)
    return expired


def _expired_until(run: BatchRun, plan: AggregatePlan, reached: int | None) -> int | None:
    """Groups whose newest time is not after this moment have expired; None: no group has."""
    if plan.expiry is None:
        return None
    now = reached if plan.expiry.column else run.work.context.now_us()
    return None if now is None else now - plan.expiry.ttl_us


def _forget(work: Work, plan: AggregatePlan, groups: pa.Table) -> None:
    if not groups.num_rows:
        return
    work.table(plan.companion).delete(keys=groups.select(list(plan.keys)))
    distinct.forget_groups(work, plan, groups)
    if plan.kept is not None:
        kept.forget(work.table(plan.kept.companion), groups[GROUP_ID])
