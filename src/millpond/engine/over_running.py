"""Running values of window functions over a stream: one row by key, continued by the rows of each batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.table import WriteTable
from millpond.engine.row_sets import key_codes, positions
from millpond.errors import FlowError
from millpond.expressions.coercion import DOUBLE, bounded
from millpond.expressions.failures import NotCompilable
from millpond.expressions.sort_ranks import NULL_RANK, ranks
from millpond.plan.over_model import COUNT, DENSE, NEWEST, RANK, OverCall, OverWindow
from millpond.relational.codes import Numbers
from millpond.relational.window_frames import Frame
from millpond.relational.window_functions import FRAMED, decimal_averages, unscaled
from millpond.schema import Column, Schema

Mask = npt.NDArray[np.bool_]
# The suffixes of the columns of a call: its sum or value, and the number of its values.
VALUE, VALUES = "_v", "_n"
# A key with more rows in a batch is added up alone, the others together step by step.
STEPS_MAX = 64


def running_columns(window: OverWindow, rows: Schema) -> Iterator[Column]:
    """The columns of the running values of a window."""
    yield from (Column(name, pa.int64()) for name in (COUNT, RANK, DENSE))
    for call in window.calls:
        if not call.is_running or call.argument is None:
            continue
        if call.function != "count":
            yield Column(call.name + VALUE, _value_type(call, rows[call.argument].type))
        yield Column(call.name + VALUES, pa.int64())


def _value_type(call: OverCall, argument: pa.DataType | None) -> pa.DataType | None:
    if call.function == "sum":
        return call.type
    if call.function != "avg":
        return argument
    if argument is not None and pa.types.is_decimal(argument):
        return bounded(argument.precision + 10, argument.scale)
    return DOUBLE


@dataclass(frozen=True)
class BatchKeys:
    """The keys of a batch's rows in a window: the code of each row's key, the keys by code, and their stored rows, NULL
    for a new key."""

    codes: Numbers
    keys: pa.Table
    held: pa.Table

    @classmethod
    def of(cls, table: WriteTable, window: OverWindow, rows: pa.Table) -> BatchKeys:
        own = rows.select(list(window.keys))
        codes, firsts = key_codes(own.columns, rows.num_rows)
        keys = own.take(pa.array(firsts))
        held = table.lookup(keys)
        return cls(codes, keys, held.take(positions(keys, held)).combine_chunks())


@dataclass
class RunningState:
    """`held` has the stored row of the key of each row of the batch, NULL for a new one; `new` are the values after
    each row."""

    table: WriteTable
    window: OverWindow
    rows: pa.Table
    held: pa.Table
    codes: Numbers
    new: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, table: WriteTable, window: OverWindow, rows: pa.Table, keys: BatchKeys) -> RunningState:
        # The keys themselves are those of the rows.
        values = keys.held.select([name for name in keys.held.column_names if name not in window.keys])
        return cls(table, window, rows, values.take(pa.array(keys.codes)), keys.codes)

    def values(self, parts: Numbers, fresh: Mask, times: Numbers) -> Mapping[str, pa.Array]:
        """The values of the running functions for the batch's rows, of which `fresh` ones begin anew."""
        segments = _Segments.of(parts)
        before = np.where(fresh, 0, self._whole(COUNT))
        number = segments.running(np.ones(len(parts), np.int64)) + before
        self.new[COUNT] = pa.array(number)
        self._ranks(segments, number, fresh, times)
        found: dict[str, pa.Array] = {}
        for call in self.window.calls:
            if not call.is_running:
                continue
            if call.function in ("row_number", "rank", "dense_rank"):
                column = {"row_number": COUNT, "rank": RANK, "dense_rank": DENSE}[call.function]
                found[call.name] = self.new[column]
            elif call.argument is None:
                found[call.name] = self.new[COUNT]
            else:
                found[call.name] = self._value(call, segments, fresh)
        return found

    def _whole(self, name: str) -> Numbers:
        return np.asarray(pc.fill_null(self.held[name], 0).to_numpy(), np.int64)

    def _ranks(self, segments: _Segments, number: Numbers, fresh: Mask, times: Numbers) -> None:
        """RANK is the number of the first row with the same order, DENSE_RANK counts the different orders."""
        if self.window.time is None:
            self.new[RANK] = self.new[DENSE] = pa.array(number)
            return
        known = self.held[NEWEST].is_valid().to_numpy() & ~fresh
        same = np.asarray(pc.fill_null(pc.equal(self.held[NEWEST], self.rows[self.window.time]), False).to_numpy())
        ordered = times[segments.order]
        repeats = np.concatenate([[False], ordered[1:] == ordered[:-1]])
        first = segments.is_first
        continued = np.where(first, (known & same)[segments.order], repeats)
        dense = segments.back(segments.cumulated((~continued).astype(np.int64)))
        self.new[DENSE] = pa.array(dense + np.where(known, self._whole(DENSE), 0))
        marks = np.where(continued, 0, number[segments.order])
        marks = np.where(first & continued, self._whole(RANK)[segments.order], marks)
        self.new[RANK] = pa.array(segments.back(segments.largest(marks)))

    def _value(self, call: OverCall, segments: _Segments, fresh: Mask) -> pa.Array:
        assert call.argument is not None
        values = self.rows[call.argument].combine_chunks()
        valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)
        counts = segments.running(valid.astype(np.int64)) + np.where(fresh, 0, self._whole(call.name + VALUES))
        self.new[call.name + VALUES] = pa.array(counts)
        if call.function == "count":
            return pa.array(counts)
        before = self.held[call.name + VALUE].combine_chunks()
        before = pc.if_else(pa.array(fresh), pa.scalar(None, before.type), before)
        if call.function in ("sum", "avg"):
            return self._sum(call, segments, (values, before), counts)
        if call.ignores_nulls:
            found = segments.known_end(values.cast(before.type), before, last=call.function == "last")
        elif call.function == "first":
            at = segments.back(segments.order[segments.starts])
            known = (self._whole(COUNT) > 0) & ~fresh
            found = pc.if_else(pa.array(known), before, values.cast(before.type).take(pa.array(at)))
        elif call.function == "last":
            found = values.cast(before.type)
        else:
            found = self._extreme(segments, values.cast(before.type), before, smallest=call.function == "min")
        self.new[call.name + VALUE] = found
        return found

    def _extreme(self, segments: _Segments, values: pa.Array, before: pa.Array, *, smallest: bool) -> pa.Array:
        both = pa.concat_arrays([before, values])
        places = ranks(both)
        scores = np.where(places == NULL_RANK, -1, (int(places.max(initial=0)) - places) if smallest else places)
        start, own = scores[: len(before)], scores[len(before) :]
        best = segments.back(segments.largest(np.maximum(own, start)[segments.order]))
        chosen = np.full(int(scores.max(initial=0)) + 1, -1, np.int64)
        chosen[scores[scores >= 0]] = np.flatnonzero(scores >= 0)
        at = np.where(best >= 0, chosen[np.maximum(best, 0)], 0)
        return both.take(pa.array(at, mask=best < 0))

    def _sum(self, call: OverCall, segments: _Segments, values: tuple[pa.Array, pa.Array], counts: Numbers) -> pa.Array:
        own, before = values
        type_ = before.type
        if type_ == DOUBLE:
            sums = segments.double_sums(own.cast(DOUBLE, safe=False), before)
            self.new[call.name + VALUE] = pa.array(sums, mask=counts == 0)
            if call.function == "sum":
                return self.new[call.name + VALUE]
            return pa.array(np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0), mask=counts == 0)
        # The sum so far is one more value before the first row of its part.
        widened = own.cast(type_) if pa.types.is_decimal(type_) else own.cast(pa.int64())
        laid, frame = segments.with_start(widened, before)
        try:
            found = FRAMED["sum"]([laid], frame, type_)
        except NotCompilable as error:
            message = f"{call.text}: the sum is out of range"
            raise FlowError("MP408", message, hint="Cast the argument to a larger type, such as DOUBLE.") from error
        self.new[call.name + VALUE] = found
        if call.function == "sum":
            return found
        exact = unscaled(found)
        sums_ = exact if exact is not None else [int(v.scaleb(type_.scale)) if v else 0 for v in found.to_pylist()]
        average = decimal_averages(sums_, counts, type_.scale, call.type)
        if average is None:
            raise FlowError("MP408", f"{call.text}: the average is out of range", hint="Cast the argument to DOUBLE.")
        return average

    def store(self, stays: Mask, now: int | None) -> None:
        """Store the values after the last row of each key."""
        keys = self.rows.select(list(self.window.keys))
        time = self.rows[self.window.time] if self.window.time is not None else None
        codes = self.codes
        last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
        np.maximum.at(last, codes, np.where(stays, np.arange(len(codes)), 0))
        newest = pa.chunked_array([pa.array(np.full(len(codes), now or 0), pa.int64())])
        if time is not None:
            newest = self._newest(time, codes, stays)
        columns = {name: keys[name] for name in self.window.keys} | {NEWEST: newest} | self.new
        schema = self.table.schema.arrow()
        taken = pa.table({name: columns[name] for name in schema.names}).take(pa.array(last))
        self.table.upsert(taken.cast(schema))

    def _newest(self, time: pa.ChunkedArray, codes: Numbers, stays: Mask) -> pa.ChunkedArray:
        """The newest order of each key, at all of its rows: a late event does not move it back."""
        held = self.held[NEWEST].combine_chunks()
        both = pa.concat_arrays([held, time.combine_chunks().cast(held.type)])
        places = ranks(both)
        count = len(codes)
        usable = np.where(stays, places[count:], NULL_RANK)
        best = np.full(int(codes.max(initial=-1)) + 1, NULL_RANK, np.int64)
        np.maximum.at(best, codes, np.maximum(usable, places[:count]))
        chosen = np.zeros(int(places.max(initial=0)) + 1, np.int64)
        chosen[places[places >= 0]] = np.flatnonzero(places >= 0)
        return pa.chunked_array([both.take(pa.array(chosen[best[codes]]))])


@dataclass(frozen=True)
class _Segments:
    """Rows sorted by part, in order of arrival: `starts` is the place of the first row of each row's part."""

    order: Numbers
    starts: Numbers
    is_first: Mask

    @classmethod
    def of(cls, parts: Numbers) -> _Segments:
        order = np.argsort(parts, kind="stable")
        ordered = parts[order]
        first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, bool)
        starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0)) if len(order) else order
        return cls(order, starts, first)

    def back(self, values: Any) -> Any:
        """Sorted values in the order of the rows."""
        found = np.empty_like(values)
        found[self.order] = values
        return found

    def cumulated(self, values: Numbers) -> Numbers:
        """Running sums of sorted values, from the start of each part."""
        sums = np.concatenate([[0], np.cumsum(values)])
        return np.asarray(sums[1:] - sums[self.starts], np.int64)

    def running(self, values: Numbers) -> Numbers:
        """Running sums in the order of the rows."""
        return np.asarray(self.back(self.cumulated(values[self.order])), np.int64)

    def largest(self, values: Numbers) -> Numbers:
        """The largest of sorted values, which are at least -1, so far in each part."""
        span = int(values.max(initial=0)) + 2
        numbers = np.cumsum(self.is_first) - 1
        return np.asarray(np.maximum.accumulate(numbers * span + values + 1) - numbers * span - 1, np.int64)

    def known_end(self, values: pa.Array, before: pa.Array, *, last: bool) -> pa.Array:
        """The first or last value so far that is not NULL; `before` is that of the part before the rows."""
        known = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)[self.order]
        if not last:
            known &= self.cumulated(known.astype(np.int64)) == 1
        at = np.asarray(self.back(self.largest(np.where(known, np.arange(len(known)), -1))), np.int64)
        own = values.take(pa.array(self.order[np.maximum(at, 0)], mask=at < 0))
        return pc.coalesce(own, before) if last else pc.coalesce(before, own)

    def with_start(self, values: pa.Array, before: pa.Array) -> tuple[pa.Array, Frame]:
        """The values with that of `before` in front of each part, and for each row the frame up to it."""
        numbers = np.cumsum(self.is_first) - 1
        firsts = self.order[self.is_first]
        both = pa.concat_arrays([before.cast(values.type).take(pa.array(firsts)), values])
        count = len(firsts)
        laid = np.empty(count + len(self.order), np.int64)
        laid[self.starts[self.is_first] + np.arange(count)] = np.arange(count)
        places = np.arange(len(self.order)) + numbers + 1
        laid[places] = count + self.order
        low, high = self.back(self.starts + numbers), self.back(places + 1)
        return both.take(pa.array(laid)), Frame(low, high)

    def double_sums(self, values: pa.Array, before: pa.Array) -> npt.NDArray[np.float64]:
        """Running sums of doubles, added in order of arrival, so that batches do not change the rounding."""
        known = np.asarray(pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False), np.float64)[self.order]
        start = np.asarray(pc.fill_null(before, 0.0).to_numpy(zero_copy_only=False), np.float64)[self.order]
        sums = known.copy()
        sums[self.is_first] += start[self.is_first]
        steps = np.arange(len(sums)) - self.starts
        sizes = np.diff(np.append(np.flatnonzero(self.is_first), len(sums)))
        for begin, size in zip(np.flatnonzero(self.is_first)[sizes > STEPS_MAX], sizes[sizes > STEPS_MAX], strict=True):
            sums[begin : begin + size] = np.cumsum(sums[begin : begin + size])
        short = np.repeat(sizes <= STEPS_MAX, sizes)
        for step in range(1, int(steps[short].max(initial=0)) + 1):
            at = np.flatnonzero(short & (steps == step))
            sums[at] += sums[at - 1]
        return np.asarray(self.back(sums), np.float64)
