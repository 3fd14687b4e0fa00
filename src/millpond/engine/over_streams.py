"""Window functions (OVER) over a stream: the rows of a batch with their values, from the rows stored before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.contracts.table import TableSpec
from millpond.engine.batch import Batch
from millpond.engine.batch_run import BatchRun
from millpond.engine.companions import free_numbers
from millpond.engine.key_lookups import Lookups
from millpond.engine.over_late import FORGOTTEN, NEWEST_OF_ALL, not_passed, on_time, without_nulls
from millpond.engine.over_running import BatchKeys, RunningState, running_columns
from millpond.engine.row_sets import positions, rows_with
from millpond.engine.waiting_events import ARRIVED, now_us
from millpond.engine.watermark import as_scalar, at
from millpond.expressions.coercion import INTEGERS
from millpond.expressions.sort_ranks import ranks
from millpond.plan.model import Step
from millpond.plan.over_model import NEWEST, NUMBER, TIME, FrameKind, OverCall, OverFrame, OverPlan, OverWindow
from millpond.plan.statement_groups import ORDER, carry_order
from millpond.relational.codes import Numbers
from millpond.relational.window_frames import Frame, runs
from millpond.relational.window_functions import FRAMED, end_of
from millpond.schema import TIMESTAMP, Column, Schema

Mask = npt.NDArray[np.bool_]


def over_specs(plan: OverPlan, rows: Schema) -> Iterator[TableSpec]:
    """The hidden tables of a statement; `rows` are the columns of its rows."""
    for window in plan.windows:
        keys = tuple(rows[name] for name in window.keys)
        time = (Column(TIME, rows[window.time].type),) if window.time is not None else ()
        if window.looks_back:
            columns = (Column(NUMBER, pa.int64(), nullable=False), *keys, *time, *(rows[a] for a in window.arguments))
            schema = Schema.of(columns, (NUMBER,))
            yield TableSpec(window.stored, schema, indexes=(window.keys,), hidden=True)
        newest = Column(NEWEST, rows[window.time].type if window.time is not None else pa.int64())
        schema = Schema.of((*keys, newest, *running_columns(window, rows)), window.keys)
        yield TableSpec(window.running, schema, hidden=True, null_keys=True)
    if plan.waits:
        yield TableSpec(plan.held, Schema.of((*rows.columns, Column(ARRIVED, pa.int64()))), hidden=True)


def with_windows(run: BatchRun, step: Step) -> BatchRun:
    """The batch as the statement reads it: its rows, with the values of the window functions."""
    plan = step.over
    assert plan is not None
    run.work.lookups = Lookups(run.batch, run.work.evaluator, run.work.context.store)
    run.work.reads = step.reads
    query = run.work.cache.once("over", plan.rows, lambda: carry_order(plan.rows))
    assert query is not None, "the statement starts from the stream"
    rows = run.work.rows(query, run.batch.relation).combine_chunks()
    rows = rows.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")])
    for window in plan.windows:
        rows = without_nulls(run, window, rows)
    arrived = run.arrived
    if plan.waits:
        rows = not_passed(run, plan, rows)
        rows, arrived = _released(run, plan, rows)
    rows, keys = on_time(run, plan, rows)
    for number, window in enumerate(plan.windows):
        rows = _Rows.of(run, plan, window, rows, keys[number], f"{FORGOTTEN}{number}").with_values()
    rows = rows.drop_columns([name for name in rows.column_names if name.startswith(FORGOTTEN)])
    batch = Batch.of(run.batch.id, rows, run.batch.bad)
    return replace(run, batch=batch, arrived=arrived, records=run.records or run.batch)


def _released(run: BatchRun, plan: OverPlan, rows: pa.Table) -> tuple[pa.Table, dict[tuple[int, int], int]]:
    """The held and new rows that the watermark has passed, in order of time, and the batches of those that were held;
    the others are held from now on."""
    held, time, reached = run.work.table(plan.held), plan.windows[0].time, run.watermark.after
    before = held.to_arrow()
    now = rows.append_column(ARRIVED, pa.array(np.full(rows.num_rows, run.batch.id), pa.int64()))
    events = pa.concat_tables([before, now.select(before.column_names).cast(before.schema)]).combine_chunks()
    passed = pa.array(np.zeros(events.num_rows, bool))
    if reached is not None and time is not None:
        passed = pc.less_equal(events[time].cast(TIMESTAMP), as_scalar(reached))
    held.replace(events.filter(pc.invert(passed)))
    ready = events.filter(passed)
    order = np.lexsort((np.arange(ready.num_rows), ranks(ready[time]))) if time is not None else None
    ready = ready if order is None else ready.take(pa.array(order))
    places = zip(*(ready[name].to_pylist() for name in ORDER), strict=True)
    batches = dict(zip(places, ready[ARRIVED].to_pylist(), strict=True))
    return ready.drop_columns([ARRIVED]), batches


@dataclass(frozen=True)
class _Rows:
    """The rows that are stored of the batch's keys, and those of the batch, both in order of arrival. `parts` number
    the keys, and anew where a key had been forgotten; `stays`: its part is the last one of its key; `fresh`: nothing
    before it counts; `times` are the places of the rows in the order of the window."""

    run: BatchRun
    plan: OverPlan
    window: OverWindow
    rows: pa.Table
    past: pa.Table
    parts: Numbers
    times: Numbers
    stays: Mask
    fresh: Mask
    keys: BatchKeys

    @classmethod
    def of(cls, run: BatchRun, plan: OverPlan, window: OverWindow, rows: pa.Table, keys: BatchKeys, mark: str) -> _Rows:
        names = list(window.keys)
        codes = keys.codes
        if window.looks_back:
            found = rows_with(run.work.table(window.stored), names, keys.keys)
            past = found.sort_by([(NUMBER, "ascending")]).combine_chunks()
            before = positions(past.select(names), keys.keys.cast(past.select(names).schema))
            codes = np.concatenate([np.asarray(before.to_numpy(zero_copy_only=False), np.int64), codes])
        else:
            past = rows.slice(0, 0)
        again = rows[mark].to_numpy() if mark in rows.column_names else np.zeros(rows.num_rows, bool)
        parts, fresh = _generations(codes, again)
        last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
        np.maximum.at(last, codes, parts)
        times = _times(window, past, rows)
        return cls(run, plan, window, rows, past, parts, times, parts == last[codes], fresh[past.num_rows :], keys)

    def with_values(self) -> pa.Table:
        """The batch's rows with one column for each function; stores what later batches need."""
        rows, count = self.rows, self.past.num_rows
        state = RunningState.of(self.run.work.table(self.window.running), self.window, rows, self.keys)
        running = state.values(self.parts[count:], self.fresh, self.times[count:])
        for call in self.window.calls:
            value = running[call.name] if call.is_running else self._looked_back(call)
            rows = rows.append_column(call.name, value.cast(call.type))
        if rows.num_rows:
            now = now_us() if self.window.time is None else None
            state.store(self.stays[count:], now)
            if self.window.looks_back:
                self._store()
            self._forget()
        return rows

    def _forget(self) -> None:
        """Remove the keys that 'retention' has forgotten by now, which no later event can bring back."""
        newest = self.run.work.tx.get(NEWEST_OF_ALL + self.window.running)
        if self.plan.retention_us is None or newest is None:
            return
        table = self.run.work.table(self.window.running)
        edge: Any = newest - self.plan.retention_us
        gone = table.find(f"{NEWEST} < ?", [edge if self.window.time is None else at(edge)])
        if not gone.num_rows:
            return
        keys = gone.select(list(self.window.keys))
        if self.window.looks_back:
            stored = self.run.work.table(self.window.stored)
            rows = rows_with(stored, list(self.window.keys), keys)
            if rows.num_rows:
                stored.delete(keys=rows.select([NUMBER]))
        table.delete(keys=keys)

    def _looked_back(self, call: OverCall) -> pa.Array:
        gathered, frame = self._frames(call.frame)
        if call.argument is None:
            return pa.array(frame.high - frame.low)
        name = call.argument
        both = pa.chunked_array([*self.past[name].chunks, *self.rows[name].cast(self.past[name].type).chunks])
        values = both.combine_chunks().take(pa.array(gathered))
        if call.function == "lag":
            found = end_of(values, frame, last=False)
            missing = pa.array(frame.high == frame.low)
            return found if call.default is None else pc.if_else(missing, self.rows[call.default], found)
        if call.ignores_nulls:
            return _known_end(values, frame, last=call.function == "last")
        if call.function in ("first", "last"):
            return end_of(values, frame, last=call.function == "last")
        return FRAMED[call.function]([values], frame, call.type)

    @cached_property
    def _order(self) -> Numbers:
        """The rows by part, in the order of the window."""
        return np.lexsort((self.times, self.parts))

    def _frames(self, bounds: OverFrame) -> tuple[Numbers, Frame]:
        """The rows in the order of the window, and for each row of the batch the part of them that is its frame."""
        order = self._order
        parts = self.parts[order]
        starts, _ = runs(parts)
        places = np.arange(len(order))
        if bounds.kind is FrameKind.ROWS:
            low = np.maximum(starts, places - bounds.start)
            high = np.maximum(low, places - bounds.end + 1)
            high = np.where(places - bounds.end < starts, low, high)
        else:
            numbers = self._numbers()[order]
            low = _searched(parts, numbers, numbers - bounds.start, "left")
            high = places + 1 if not bounds.end else _searched(parts, numbers, numbers - bounds.end, "right")
            high = np.maximum(low, np.minimum(high, places + 1))
        back = np.empty(len(order), np.int64)
        back[order] = places
        mine = back[self.past.num_rows :]
        frame = Frame(low[mine], high[mine])
        if self.plan.late == "update" and self._is_disordered():
            return self._disordered(order, frame, bounds)
        return order, frame

    def _numbers(self) -> Numbers:
        """The order of the window as numbers with distances."""
        time = self.window.time
        assert time is not None
        both = pa.chunked_array([*self.past[TIME].chunks, *self.rows[time].cast(self.past[TIME].type).chunks])
        whole = both.combine_chunks()
        whole = whole.cast(pa.int32()) if pa.types.is_date(whole.type) else whole
        return np.asarray(whole.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)

    def _is_disordered(self) -> bool:
        order = np.argsort(self.parts, kind="stable")
        parts, times = self.parts[order], self.times[order]
        return bool(((parts[1:] == parts[:-1]) & (times[1:] < times[:-1])).any())

    def _disordered(self, order: Numbers, frame: Frame, bounds: OverFrame) -> tuple[Numbers, Frame]:
        """The frames of rows in keys with late events, one event after the other: each sees what had arrived before it
        and was still stored."""
        kept = _Kept(self.window, self.times, self._numbers() if self.window.range_kept is not None else self.times)
        extra: list[Numbers] = [order]
        low, high, size = frame.low.copy(), frame.high.copy(), len(order)
        for part in self._disordered_parts():
            kept.start()
            for row in np.flatnonzero(self.parts == part).tolist():
                place = kept.add(row)
                own = row - self.past.num_rows
                if own < 0:
                    continue
                found = kept.frame(place, bounds)
                low[own], high[own] = size, size + len(found)
                extra.append(np.asarray(found, np.int64))
                size += len(found)
                kept.prune()
        return np.concatenate(extra), Frame(low, high)

    def _disordered_parts(self) -> list[int]:
        order = np.argsort(self.parts, kind="stable")
        parts, times = self.parts[order], self.times[order]
        wrong = (parts[1:] == parts[:-1]) & (times[1:] < times[:-1])
        return [int(part) for part in np.unique(parts[1:][wrong])]

    def _store(self) -> None:
        """Store the rows that later frames can contain, and remove those that they cannot."""
        window, count = self.window, self.past.num_rows
        order = self._order
        parts = self.parts[order]
        _, ends = runs(parts)
        stays = ends - np.arange(len(order)) <= window.rows_kept
        if window.range_kept is not None:
            numbers = self._numbers()[order]
            stays |= numbers >= numbers[ends - 1] - window.range_kept
        stays &= self.stays[order]
        kept = np.zeros(len(order), bool)
        kept[order] = stays
        table = self.run.work.table(window.stored)
        gone = ~kept[:count]
        if gone.any():
            table.delete(keys=self.past.filter(pa.array(gone)).select([NUMBER]))
        new = self.rows.filter(pa.array(kept[count:]))
        if new.num_rows:
            numbers_ = free_numbers(self.run.work, window.stored, NUMBER, new.num_rows)
            columns = {NUMBER: numbers_, **{name: new[name] for name in (*window.keys, *window.arguments)}}
            if window.time is not None:
                columns[TIME] = new[window.time]
            schema = table.schema.arrow()
            table.insert(pa.table({name: columns[name] for name in schema.names}).cast(schema))


def _known_end(values: pa.Array, frame: Frame, *, last: bool) -> pa.Array:
    """The first or last value of each frame that is not NULL."""
    places, size = np.arange(len(values)), len(values)
    known = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)
    if last:
        nearest = np.concatenate([[-1], np.maximum.accumulate(np.where(known, places, -1))])[frame.high]
    else:
        after = np.minimum.accumulate(np.where(known, places, size)[::-1])[::-1]
        nearest = np.concatenate([after, [size]])[frame.low]
    outside = (nearest < frame.low) | (nearest >= frame.high)
    return values.take(pa.array(np.where(outside, 0, nearest), mask=outside))


def _generations(codes: Numbers, forgotten: Mask) -> tuple[Numbers, Mask]:
    """Numbers of the parts of keys, and which rows are in a part that has begun anew, because the key had been
    forgotten; `forgotten` is of the last rows."""
    if not forgotten.any():
        return codes, np.zeros(len(codes), bool)
    again = np.concatenate([np.zeros(len(codes) - len(forgotten), np.int64), forgotten.astype(np.int64)])
    order = np.argsort(codes, kind="stable")
    counts = np.cumsum(again[order])
    starts = np.searchsorted(codes[order], codes[order], "left")
    before = np.where(starts > 0, counts[np.maximum(starts - 1, 0)], 0)
    generation = np.empty(len(codes), np.int64)
    generation[order] = counts - before
    parts = np.unique(codes * (int(generation.max()) + 1) + generation, return_inverse=True)[1].astype(np.int64)
    return parts, generation > 0


def _times(window: OverWindow, past: pa.Table, rows: pa.Table) -> Numbers:
    if window.time is None:
        return np.zeros(past.num_rows + rows.num_rows, np.int64)
    before = past[TIME] if TIME in past.column_names else past[window.time]
    both = pa.chunked_array([*before.chunks, *rows[window.time].cast(before.type).chunks], before.type)
    return _places(both, len(both))


def _places(values: pa.ChunkedArray, groups: int) -> Numbers:
    """Numbers from 0 in the order of the values, -1 for NULL: their distances where these are small, else their
    ranks."""
    if not pa.types.is_timestamp(values.type) and values.type not in INTEGERS:
        return ranks(values)
    numbers = np.asarray(pc.fill_null(values.cast(pa.int64()), 0).to_numpy(), np.int64)
    known = np.asarray(values.is_valid().to_numpy(), bool)
    if not known.any():
        return np.full(len(numbers), -1, np.int64)
    least, largest = int(numbers[known].min()), int(numbers[known].max())
    if (largest - least + 2) * (groups + 1) >= 2**62:
        return ranks(values)
    return np.where(known, numbers - least, -1)


def _searched(parts: Numbers, numbers: Numbers, wanted: Numbers, side: str) -> Numbers:
    """The places of wanted numbers among those of the same part, which are sorted."""
    both = np.concatenate([numbers, wanted])
    least = int(both.min(initial=0)) if not len(both) else int(both.min())
    span = int(both.max(initial=0)) - least + 1 if len(both) else 1
    if span * (int(parts.max(initial=0)) + 1) >= 2**62:
        _, places = np.unique(both, return_inverse=True)
        span, least = int(places.max(initial=0)) + 1, 0
        both = places
    own, asked = both[: len(numbers)] - least, both[len(numbers) :] - least
    found = np.searchsorted(parts * span + own, parts * span + asked, "left" if side == "left" else "right")
    return np.asarray(found, np.int64)


class _Kept:
    """The stored rows of one key, in the order of the window, while its events are taken one by one."""

    def __init__(self, window: OverWindow, times: Numbers, numbers: Numbers) -> None:
        self._window, self._times, self._numbers = window, times, numbers
        self._rows: list[int] = []

    def start(self) -> None:
        self._rows = []

    def add(self, row: int) -> int:
        """Insert a row behind those of the same order; returns its place."""
        place = len(self._rows)
        while place and self._times[self._rows[place - 1]] > self._times[row]:
            place -= 1
        self._rows.insert(place, row)
        return place

    def frame(self, place: int, bounds: OverFrame) -> list[int]:
        if bounds.kind is FrameKind.ROWS:
            return self._rows[max(0, place - bounds.start) : max(0, place - bounds.end + 1)]
        own = self._numbers[self._rows[place]]
        low, high = own - bounds.start, own - bounds.end
        return [row for row in self._rows[: place + 1] if low <= self._numbers[row] <= high]

    def prune(self) -> None:
        count, distance = self._window.rows_kept, self._window.range_kept
        edge = None if distance is None else self._numbers[self._rows[-1]] - distance
        cut = max(0, len(self._rows) - count)
        older = self._rows[:cut]
        self._rows = [row for row in older if edge is not None and self._numbers[row] >= edge] + self._rows[cut:]
