"""Events handed over to a join of streams; those behind its watermark are told: Spark would drop them unsaid."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.plan.model import Step, StreamJoin
from millpond.runtime.flows.aside import put_aside
from millpond.runtime.flows.batch_run import BatchRun, Output
from millpond.runtime.flows.late import LATE
from millpond.runtime.flows.staging import emit
from millpond.runtime.flows.watermark import as_scalar, at
from millpond.schema import TIMESTAMP

# Under this key and a side of a join: the newest time that it handed over, in microseconds.
NEWEST = "newest:"


def relay(run: BatchRun, step: Step) -> None:
    """Hand a batch's events over with their order."""
    rows = run.work.result(run.work.ordered(step.query) or step.query, run.batch.relation)
    rows = rows.select(list(dict.fromkeys(rows.schema.names)))
    id_, _, number = step.target.rpartition(":")
    join = next(flow.join for flow in run.work.context.plan.flows if flow.id == id_)
    assert join is not None
    time = (join.left, join.right)[int(number)].time
    if time is not None:
        arrow = rows if isinstance(rows, pa.Table) else rows.toArrow()
        rows = _on_time(run, step, arrow, time, _reached(run, id_, join))
    emit(run, step, Output(step.target, rows, run.mark(step)))


def _reached(run: BatchRun, id_: str, join: StreamJoin) -> int | None:
    """The watermark of a join: no side that has one is behind it. None while one has handed nothing over."""
    sides = [(number, side) for number, side in enumerate((join.left, join.right)) if side.time is not None]
    newest = [run.work.context.store.get(f"{NEWEST}{id_}:{number}") for number, _ in sides]
    if None in newest:
        return None
    return min(int(time) - side.delay_us for time, (_, side) in zip(newest, sides, strict=True))


def _on_time(run: BatchRun, step: Step, rows: pa.Table, time: str, reached: int | None) -> pa.Table:
    """The events that the join can still take; the others go where 'late.rows' says."""
    times = rows[next(name for name in rows.column_names if name.lower() == time.lower())].cast(TIMESTAMP)
    newest = pc.max(times)
    known = run.work.context.store.get(NEWEST + step.target)
    if newest.is_valid:
        run.work.tx.put(NEWEST + step.target, newest.value if known is None else max(known, newest.value))
    if reached is None:
        return rows
    late = pc.fill_null(pc.less_equal(times, as_scalar(reached)), False)
    refused = rows.filter(late)
    if refused.num_rows and step.options.get("late.rows") != "drop":
        reason = f"column '{time}': the watermark of the join had reached {at(reached)}"
        codes = [LATE] * refused.num_rows
        put_aside(run, refused, codes, [reason] * refused.num_rows, applied=refused.slice(0, 0))
    return rows.filter(pc.invert(late))
