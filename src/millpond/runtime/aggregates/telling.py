"""Where the groups of a statement go: kept up to date in its table, or told to a sink or another table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.plan.model import Step, StepKind
from millpond.runtime.aggregates import grouping
from millpond.runtime.aggregates.grouping import Folded, fold
from millpond.runtime.aggregates.outputs import emitted, keys, outputs
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
    if step.kind is not StepKind.SINK:
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
    if step.kind is not StepKind.SINK:
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
    """Let go of windows that take no more rows; with 'retention' they leave the table too when it is over. Whether
    there were any."""
    plan, reached = step.aggregate, run.watermark.after
    assert plan is not None
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
    """Take groups that are no more out of the table that they were told to, where its key says which they are."""
    assert step.aggregate is not None
    if not groups.num_rows:
        return
    table = run.work.table(step.target)
    found = keys(run.work, step.aggregate, groups, step.columns, table.schema)
    if found is not None and table.delete(keys=found):
        run.work.mark_changed(step.target)
