"""Where the groups of a statement go: kept up to date in its table, or told to a sink or another table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.plan.model import Step, StepKind
from millpond.runtime.aggregates import expiry, grouping
from millpond.runtime.aggregates.grouping import Folded, fold
from millpond.runtime.aggregates.outputs import emitted, keys, outputs
from millpond.runtime.changing.row_sets import positions_among
from millpond.runtime.flows import late
from millpond.runtime.flows.batch_run import BatchRun, Output
from millpond.runtime.flows.staging import emit


def keep_table(run: BatchRun, step: Step) -> None:
    """A table made AS SELECT ... GROUP BY or DISTINCT, with a batch in it."""
    plan = step.aggregate
    assert plan is not None
    folded = fold(run, step)
    if plan.first_only:
        _add_first(run, step, folded)
    elif folded.groups.num_rows:
        _publish(run, step, folded)
    close(run, step)


def _add_first(run: BatchRun, step: Step, folded: Folded) -> None:
    assert step.aggregate is not None
    table = run.work.table(step.target)
    _remove(run, step, folded.replaced)
    new = folded.groups.filter(folded.is_new)
    if new.num_rows:
        rows, _ = outputs(run.work, step.aggregate, new, table.schema)
        table.insert(rows)
        run.work.mark_changed(step.target)


def _publish(run: BatchRun, step: Step, folded: Folded) -> None:
    """The user's table gets the touched groups; one that no longer satisfies HAVING leaves, and so does a session that
    is part of another one now."""
    plan = step.aggregate
    assert plan is not None
    table = run.work.table(step.target)
    key = list(table.schema.key)
    rows, keep = outputs(run.work, plan, folded.groups, table.schema)
    if not key:
        changed = table.replace(rows.filter(keep))
    else:
        _remove(run, step, folded.replaced)
        changed = table.upsert(rows.filter(keep))
        gone = rows.filter(pc.invert(keep))
        if gone.num_rows:
            changed += table.delete(keys=gone.select(key))
    if changed:
        run.work.mark_changed(step.target)


def rows_to_tell(run: BatchRun, step: Step) -> pa.Table | None:
    """What a batch makes a statement tell: each group that it touched, a distinct value when it is new, and a window
    that goes to a sink when it has closed. None: nothing."""
    plan = step.aggregate
    assert plan is not None
    folded = fold(run, step)
    groups = folded.groups.filter(folded.is_new) if plan.first_only else folded.groups
    if plan.window is not None and step.kind is StepKind.SINK:
        return _closed_rows(run, step)
    _remove(run, step, folded.replaced)
    rows = emitted(run.work, plan, groups) if groups.num_rows else None
    close(run, step)
    return rows


def emit_groups(run: BatchRun, step: Step, rows: pa.Table | None) -> None:
    """Groups for the statement's sink."""
    if rows is not None and rows.num_rows:
        emit(run, step, Output(step.target, rows, run.mark(step)))


def tell_closed(run: BatchRun, step: Step) -> bool:
    """Close windows without a batch, when the watermark has gone on by itself; whether there were any."""
    if step.kind is not StepKind.SINK or step.aggregate is None or step.aggregate.window is None:
        return close(run, step)
    rows = _closed_rows(run, step)
    emit_groups(run, step, rows)
    return rows is not None


def _closed_rows(run: BatchRun, step: Step) -> pa.Table | None:
    """The windows that the watermark has reached: they are told, and nothing is kept of them."""
    plan, reached = step.aggregate, run.watermark.after
    assert plan is not None
    if reached is None:
        return None
    windows = grouping.ended(run.work.tx, plan, reached)
    if not windows.num_rows:
        return None
    rows = emitted(run.work, plan, windows)
    grouping.forget(run.work, plan, windows, reached)
    return rows


def close(run: BatchRun, step: Step) -> bool:
    """Forget windows that take no more rows, and groups whose 'state.ttl' is over; these leave the table too, as
    windows do when their 'retention' is over. Whether there were any."""
    plan, reached = step.aggregate, run.watermark.after
    assert plan is not None
    if plan.expiry is not None:
        expired = expiry.drop_all_expired(run, plan)
        _remove(run, step, expired)
        return bool(expired.num_rows)
    if plan.window is None or reached is None:
        return False
    retention = late.retention_us(run, step)
    until = late.closed_until(run, step, reached) if retention is None else reached - retention
    windows = None if until is None else grouping.ended(run.work.tx, plan, until)
    if until is None or windows is None or not windows.num_rows:
        return False
    if retention is not None:
        _remove(run, step, windows)
    grouping.forget(run.work, plan, windows, until)
    return True


def _remove(run: BatchRun, step: Step, groups: pa.Table) -> None:
    """Take groups that are gone out of the table that they were written to: by its key, where that consists of
    groups, or by all columns of a DISTINCT table. What a sink got stays."""
    plan = step.aggregate
    assert plan is not None
    if not groups.num_rows or step.kind is StepKind.SINK:
        return
    table = run.work.table(step.target)
    if plan.first_only and step.kind is StepKind.AGGREGATE and not table.schema.key:
        gone, _ = outputs(run.work, plan, groups, table.schema)
        changed = table.replace(_without(table.to_arrow(), gone))
    else:
        found = keys(run.work, plan, groups, step.columns, table.schema)
        changed = 0 if found is None else table.delete(keys=found)
    if changed:
        run.work.mark_changed(step.target)


def _without(rows: pa.Table, gone: pa.Table) -> pa.Table:
    found = positions_among(rows, rows.column_names, gone)
    return rows.filter(pc.invert(pc.is_in(pa.array(range(rows.num_rows), found.type), value_set=found)))
