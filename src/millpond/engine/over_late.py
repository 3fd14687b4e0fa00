"""Rows that window functions over a stream do not take: late ones, and those without an order; forgotten keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.batch_run import BatchRun
from millpond.engine.late_rows import LATE, NO_TIME
from millpond.engine.over_running import BatchKeys
from millpond.engine.rejected_rows import add_dead_letters
from millpond.engine.waiting_events import now_us
from millpond.engine.watermark import as_scalar
from millpond.expressions.coercion import INTEGERS
from millpond.expressions.sort_ranks import ranks
from millpond.plan.over_model import NEWEST, OverPlan, OverWindow
from millpond.relational.codes import Numbers
from millpond.schema import TIMESTAMP

Mask = npt.NDArray[np.bool_]
# Under this key and the name of the table of running values: the newest time of all keys, for 'retention'.
NEWEST_OF_ALL = "over_newest:"
# The prefix of a column that marks the rows of forgotten keys, followed by the number of the window.
FORGOTTEN = "__forgotten"
EARLIER = "the event is earlier than one of its key that was seen before"
PASSED = "the watermark had passed the event before it arrived"


def without_nulls(run: BatchRun, window: OverWindow, rows: pa.Table) -> pa.Table:
    """The rows without those that have no order, which become dead letters."""
    if window.time is None or not rows[window.time].null_count:
        return rows
    null = pc.is_null(rows[window.time])
    reason = f"column '{window.order}': the order of a window function is NULL"
    _reject(run, rows.filter(null), NO_TIME, [reason] * int(pc.sum(null).as_py()))
    return rows.filter(pc.invert(null))


def _reject(run: BatchRun, rows: pa.Table, code: str, reasons: list[str]) -> None:
    if rows.num_rows:
        add_dead_letters(run, rows, [code] * rows.num_rows, reasons, rows.slice(0, 0))


def not_passed(run: BatchRun, plan: OverPlan, rows: pa.Table) -> pa.Table:
    """The rows without those that the watermark had passed before they arrived."""
    time, reached = plan.windows[0].time, run.watermark.before
    if time is None or reached is None or rows[time].type != TIMESTAMP or plan.late == "update":
        return rows
    late = pc.less_equal(rows[time], as_scalar(reached))
    if plan.late != "drop":
        _reject(run, rows.filter(late), LATE, [_late_reason(plan.windows[0], PASSED)] * int(pc.sum(late).as_py() or 0))
    return rows.filter(pc.invert(late))


def _late_reason(window: OverWindow, why: str = EARLIER) -> str:
    return f"column '{window.order}': {why}"


def on_time(run: BatchRun, plan: OverPlan, rows: pa.Table) -> tuple[pa.Table, list[BatchKeys]]:
    """The rows without late ones, unless 'late.rows' = 'update', and their keys in each window. With 'retention', a
    column for each window is true for rows whose key had been forgotten."""
    keys = [BatchKeys.of(run.work.table(window.running), window, rows) for window in plan.windows]
    if not rows.num_rows:
        return rows, keys
    orders = [_order(run, plan, window, rows, own) for window, own in zip(plan.windows, keys, strict=True)]
    found = [_late_and_forgotten(order) for order in orders]
    drops = plan.late != "update"
    if drops and len(orders) > 1 and any(late.any() for late, _ in found):
        # An event that is late in one window is not an earlier event in the others.
        found = _one_by_one(orders)
    late = np.logical_or.reduce([late for late, _ in found]) & drops
    for number, (_, forgotten) in enumerate(found):
        if plan.retention_us is not None:
            rows = rows.append_column(f"{FORGOTTEN}{number}", pa.array(forgotten))
    _put_newest(run, plan, orders, ~late)
    if not late.any():
        return rows, keys
    if plan.late != "drop":
        first = np.argmax(np.stack([late for late, _ in found]), axis=0)[late]
        _reject(run, rows.filter(pa.array(late)), LATE, [_late_reason(plan.windows[n]) for n in first.tolist()])
    rows = rows.filter(pa.array(~late))
    return rows, [BatchKeys.of(run.work.table(window.running), window, rows) for window in plan.windows]


@dataclass(frozen=True)
class _Order:
    """The order of one window as numbers: `own` of the batch's rows; `before` is the newest one of each key before the
    batch, where it is `known`; `newest` that of all keys. `codes` are the keys of the rows. `is_timed`: an
    earlier row is late. `retention`: the distance after which a key is forgotten."""

    codes: Numbers
    own: Numbers
    before: Numbers
    known: Mask
    is_timed: bool
    retention: int | None
    newest: int | None


def _order(run: BatchRun, plan: OverPlan, window: OverWindow, rows: pa.Table, keys: BatchKeys) -> _Order:
    size = keys.keys.num_rows
    time = rows[window.time] if window.time is not None else pa.chunked_array([_now(rows.num_rows)])
    before = keys.held[NEWEST].cast(time.type)
    both = pa.chunked_array([*before.chunks, *time.chunks], time.type)
    is_number = pa.types.is_timestamp(both.type) or both.type in INTEGERS
    numbers = np.asarray(pc.fill_null(both.cast(pa.int64()), 0).to_numpy(), np.int64) if is_number else ranks(both)
    retained = both.type == pa.int64() or pa.types.is_timestamp(both.type)
    retention = plan.retention_us if retained else None
    newest = run.work.tx.get(NEWEST_OF_ALL + window.running) if retention is not None else None
    known = np.asarray(before.is_valid().to_numpy(), bool)
    return _Order(keys.codes, numbers[size:], numbers[:size], known, window.time is not None, retention, newest)


def _late_and_forgotten(order: _Order) -> tuple[Mask, Mask]:
    """For each row, in order of arrival: whether it is earlier than one of its key before it, and whether its key had
    been forgotten. With 'retention': a key is forgotten when the newest event of all keys is so much newer than its
    own. An event that is older than that itself is late."""
    numbers = np.concatenate([order.before, order.own])
    places = _places(order, numbers)
    size, codes = len(order.before), order.codes
    sorted_ = np.argsort(codes, kind="stable")
    previous = np.empty(len(codes), np.int64)
    previous[sorted_] = _running_max(codes[sorted_], places[size:][sorted_], places[:size])
    late = (places[size:] < previous) & order.is_timed
    if order.retention is None:
        return late, np.zeros(len(codes), bool)
    by_place = np.zeros(int(places.max(initial=0)) + 1, np.int64)
    by_place[places[places >= 0]] = numbers[places >= 0]
    until = np.maximum.accumulate(order.own if order.newest is None else np.maximum(order.own, order.newest))
    late = late | (order.own < until - order.retention)
    known = previous >= 0
    forgotten = known & (until - by_place[np.where(known, previous, 0)] > order.retention) & ~late
    return late, forgotten


def _places(order: _Order, numbers: Numbers) -> Numbers:
    """Places from 0 in the order of the numbers, which are those of the keys and of the rows; -1 for a new key. Where
    these are small, they are distances."""
    known = np.concatenate([order.known, np.ones(len(order.own), bool)])
    least, largest = int(numbers[known].min()), int(numbers[known].max())
    if order.retention is None and (largest - least + 2) * (len(order.before) + 1) < 2**62:
        return np.where(known, numbers - least, -1)
    return np.where(known, np.unique(numbers, return_inverse=True)[1], -1)


def _one_by_one(orders: list[_Order]) -> list[tuple[Mask, Mask]]:
    """The same for several windows, one event after the other: those that are late in any window do not count."""
    count = len(orders[0].own)
    newest = [[t if k else None for t, k in zip(o.before.tolist(), o.known.tolist(), strict=True)] for o in orders]
    until = [order.newest for order in orders]
    found = [(np.zeros(count, bool), np.zeros(count, bool)) for _ in orders]
    columns = [(order.codes.tolist(), order.own.tolist()) for order in orders]
    for row in range(count):
        for n, order in enumerate(orders):
            code, time = columns[n][0][row], columns[n][1][row]
            previous, limit = newest[n][code], until[n]
            found[n][0][row] = order.is_timed and previous is not None and time < previous
            if order.retention is not None:
                limit = time if limit is None else max(limit, time)
                found[n][0][row] |= time < limit - order.retention
                found[n][1][row] = previous is not None and limit - previous > order.retention
        if any(late[row] for late, _ in found):
            continue
        for n in range(len(orders)):
            code, time = columns[n][0][row], columns[n][1][row]
            previous, limit = newest[n][code], until[n]
            newest[n][code] = time if previous is None else max(previous, time)
            until[n] = time if limit is None else max(limit, time)
    return found


def _put_newest(run: BatchRun, plan: OverPlan, orders: list[_Order], taken: Mask) -> None:
    """Store the newest time of all keys, for 'retention'."""
    for window, order in zip(plan.windows, orders, strict=True):
        times = order.own[taken].tolist() + ([order.newest] if order.newest is not None else [])
        if order.retention is not None and times:
            run.work.tx.put(NEWEST_OF_ALL + window.running, max(times))


def _now(count: int) -> pa.Array:
    return pa.array(np.full(count, now_us()), pa.int64())


def _running_max(codes: Numbers, values: Numbers, start: Numbers) -> Numbers:
    """The largest value before each row of its run of equal codes, which begins with a start value."""
    span = int(max(values.max(initial=0), start.max(initial=0))) + 2
    first = np.concatenate([[True], codes[1:] != codes[:-1]])
    shifted = np.where(first, start[codes], np.concatenate([[0], values[:-1]]))
    shifted = np.where(first, shifted, np.maximum(shifted, -1))
    return np.asarray(np.maximum.accumulate(codes * span + shifted + 1) - codes * span - 1, np.int64)
