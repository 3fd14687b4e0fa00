"""'state.ttl': drops groups without a window, with all their state, when they have had no event for some time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine import companions
from millpond.engine.accumulators import GROUP_ID
from millpond.engine.batch_run import BatchRun
from millpond.engine.watermark import as_scalar, at
from millpond.engine.work import Work
from millpond.plan.aggregate_model import TOUCHED, AggregatePlan
from millpond.schema import TIMESTAMP


def with_commit_time(run: BatchRun, plan: AggregatePlan, partials: pa.Table) -> pa.Table:
    """The groups of a batch with the commit time, if their events have no time."""
    if plan.expiry is None or plan.expiry.column:
        return partials
    now = pa.repeat(as_scalar(run.work.context.now_us()), partials.num_rows)
    return partials.append_column(TOUCHED, now)


def drop_expired(run: BatchRun, plan: AggregatePlan, held: pa.Table) -> pa.Table:
    """Drop and return those groups that had expired when the batch began: its events start them again."""
    until = _expired_until(run, plan, run.watermark.before)
    if until is None:
        return held.slice(0, 0)
    expired = held.filter(pc.fill_null(pc.less_equal(held[TOUCHED], as_scalar(until)), False))
    _forget(run.work, plan, expired)
    return expired


def drop_all_expired(run: BatchRun, plan: AggregatePlan) -> pa.Table:
    """Drop and return the groups that have expired by the end of the batch. A group without a time, because 'state.ttl'
    was added later, gets the current time."""
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
    """The time up to which groups have expired; None: no group has."""
    if plan.expiry is None:
        return None
    now = reached if plan.expiry.column else run.work.context.now_us()
    return None if now is None else now - plan.expiry.ttl_us


def _forget(work: Work, plan: AggregatePlan, groups: pa.Table) -> None:
    if not groups.num_rows:
        return
    work.table(plan.companion).delete(keys=groups.select(list(plan.keys)))
    companions.forget_groups(work, plan, groups)
    if plan.kept is not None:
        companions.forget(work.table(plan.kept.companion), groups[GROUP_ID])
