"""A small batch's partial aggregates and windows by Arrow, where it gives what Spark would."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.errors import TableError
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.plan.aggregate_model import END, START, TIME, AggregatePlan, WindowPlan
from millpond.relational.codes import Values, group_codes
from millpond.relational.grouping import aggregated
from millpond.relational.memory import Memory
from millpond.relational.rows import Rows
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ
from millpond.sql.parser import parse_expression


def partials_by_arrow(rows: pa.Table, plan: AggregatePlan, *, touched_only: bool) -> pa.Table | None:
    """One row per group with its accumulators, as Spark would give them, or None where it must be asked."""
    if plan.window is not None and START not in rows.column_names:
        return None
    try:
        return _partials(rows, plan, touched_only)
    except (NotCompilable, TableError):
        return None


def _partials(rows: pa.Table, plan: AggregatePlan, touched_only: bool) -> pa.Table:
    calls = [_parsed(a.partial) for a in plan.partials]
    keys = [rows[name] for name in plan.keys]
    codes, firsts = group_codes(keys, rows.num_rows)
    if not keys and not touched_only:
        firsts = np.zeros(1, np.int64)
    memory = Memory()
    found = aggregated(calls, Rows(rows, {}), (codes, len(firsts)), _value, memory)
    columns = {name: key.take(pa.array(firsts)) for name, key in zip(plan.keys, keys, strict=True)}
    columns |= {a.name: column for a, column in zip(plan.partials, found, strict=True)}
    return pa.table(columns) if columns else pa.table({"rows": pa.nulls(len(firsts), pa.int64())})


def _value(expression: exp.Expr, rows: Rows) -> Values:
    return compile_expression(expression, rows.schema).evaluate(rows.table)  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _parsed(text: str) -> exp.Expr:
    return parse_expression(text)


def with_windows(rows: pa.Table, plan: AggregatePlan) -> pa.Table | None:
    """The rows with START and END of the windows that they fall into, a row of its own for each; None for sessions,
    and for times that are not timestamps, which are Spark's."""
    window = plan.window
    if window is None:
        return rows
    if window.is_session or rows.schema.field(TIME).type not in (TIMESTAMP, TIMESTAMP_NTZ):
        return None
    times = rows[TIME].cast(pa.int64()).combine_chunks()
    places, starts = _starts(window, times)
    found = rows.take(pa.array(places))
    found = found.append_column(START, starts.cast(TIMESTAMP))
    return found.append_column(END, pc.add(starts, pa.scalar(window.size_us, pa.int64())).cast(TIMESTAMP))


def _starts(window: WindowPlan, times: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """For each row and window: the row's place, the window's start; a row without a time is in no window."""
    none = times.is_null().to_numpy(zero_copy_only=False)
    known = times.fill_null(0).to_numpy(zero_copy_only=False)
    last = known - np.mod(known, window.slide_us)
    count = 1 if window.slide_us == window.size_us else -(-window.size_us // window.slide_us)
    starts = last[:, None] - np.arange(count)[None, :] * window.slide_us
    inside = starts + window.size_us > known[:, None]
    inside[none] = False
    inside[none, 0] = True
    places, _ = np.nonzero(inside)
    return places, pa.array(starts[inside], mask=none[places])
