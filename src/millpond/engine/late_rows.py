"""Late rows: rows that arrive after their window was closed, or have no time, reported as dead letters."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.batch_run import BatchRun
from millpond.engine.partials import Grouped, names
from millpond.engine.rejected_rows import add_dead_letters
from millpond.engine.row_sets import positions
from millpond.engine.watermark import as_scalar, at
from millpond.plan.aggregate_model import END, START, TIME, AggregatePlan
from millpond.plan.model import Step
from millpond.plan.statement_groups import ORDER

LATE, NO_TIME = "MP706", "MP401"
# Internal names; a user's column cannot have this prefix.
_START, _END, _TIME = "__mp_start", "__mp_end", "__mp_time"


def retention_us(run: BatchRun, step: Step) -> int | None:
    """The 'retention' of the target table, or None."""
    table = run.work.context.plan.table(step.target)
    return table.options.get("retention") if table is not None else None


def closed_until(run: BatchRun, step: Step, reached: int | None) -> int | None:
    """The time up to which windows are closed, for a watermark; None: no window is closed."""
    if reached is None or step.options.get("late.rows") != "update":
        return reached
    retention = retention_us(run, step)
    return None if retention is None else reached - retention


def is_refused(groups: pa.Table, closed_us: int | None) -> pa.ChunkedArray:
    """Which groups have no window, or a closed one."""
    no_time = pc.is_null(groups[START])
    if closed_us is None:
        return no_time
    return pc.or_(no_time, pc.fill_null(pc.less_equal(groups[END], as_scalar(closed_us)), False))


def report(run: BatchRun, step: Step, grouped: Grouped, refused: pa.Table) -> None:
    """Add dead letters for the rows of rejected groups; late ones only unless 'late.rows' = 'drop'."""
    plan = step.aggregate
    assert plan is not None
    rows = _rows_of(plan, grouped, refused)
    if step.options.get("late.rows") == "drop":
        rows = rows.filter(pc.is_null(rows[_START]))
    if not rows.num_rows:
        return
    records = _records(run, rows)
    windows = list(zip(records[_START].to_pylist(), records[_END].to_pylist(), strict=True))
    codes = [NO_TIME if start is None else LATE for start, _ in windows]
    reasons = [_reason(run, plan, start, end) for start, end in windows]
    add_dead_letters(run, records, codes, reasons, applied=records.filter(_is_counted(plan, records)), are_records=True)


def _is_counted(plan: AggregatePlan, records: pa.Table) -> pa.Array:
    """Which rows are counted in a later window: the last window that they missed is not their newest one."""
    assert plan.window is not None
    if plan.window.kind != "SLIDING":
        return pa.array([False] * records.num_rows, pa.bool_())
    next_start = pc.add(records[_START], pa.scalar(timedelta(microseconds=plan.window.slide_us), pa.duration("us")))
    return pc.fill_null(pc.less_equal(next_start, records[_TIME].cast(records[_START].type)), False)


def _rows_of(plan: AggregatePlan, grouped: Grouped, refused: pa.Table) -> pa.Table:
    """The stream order and window of the rows in rejected groups; each row once, with the last window that it
    missed."""
    latest = pc.max(refused[END])
    late = f" OR {END} <= timestamp_micros({latest.value}L)" if latest.is_valid else ""
    rows = grouped.local
    if rows is None:
        rows = grouped.ask(f"SELECT {names((*plan.keys, TIME, *ORDER))} FROM {{view}} WHERE {START} IS NULL{late}")
    found = positions(rows.select(list(plan.keys)), refused)
    names_ = (START, END, TIME)
    rows = rows.filter(pc.is_valid(found)).select([*ORDER, *names_]).sort_by([(END, "descending")])
    once = rows.group_by(list(ORDER), use_threads=False).aggregate([(name, "first") for name in names_])
    return once.select([*ORDER, *(f"{n}_first" for n in names_)]).rename_columns([*ORDER, _START, _END, _TIME])


def _records(run: BatchRun, rows: pa.Table) -> pa.Table:
    """The records of the rows, in stream order, with their window."""
    records = run.batch.to_arrow()
    found = positions(rows.select(list(ORDER)), records)
    ordered = rows.filter(pc.is_valid(found)).sort_by([(name, "ascending") for name in ORDER])
    beside = records.take(positions(ordered.select(list(ORDER)), records))
    for name in (_START, _END, _TIME):
        beside = beside.append_column(name, ordered[name])
    return beside


def _reason(run: BatchRun, plan: AggregatePlan, start: datetime | None, end: datetime | None) -> str:
    assert plan.window is not None
    if start is None or end is None:
        return f"column '{plan.window.column}': the time of a window is NULL"
    reached = run.watermark.before
    assert reached is not None
    return (
        f"its window, {start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S}, is closed: the watermark is {at(reached)}"
    )
