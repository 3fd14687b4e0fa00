"""Window frames: rows sorted for OVER into partitions and peers, and the part of the partition that each row sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.expressions.calls import read
from millpond.expressions.coercion import DATE, INTEGERS
from millpond.expressions.failures import NotCompilable
from millpond.expressions.sort_ranks import NULL_RANK, combined, ranks
from millpond.expressions.terms import Constant, Interval
from millpond.relational.codes import Numbers, Values, group_codes, whole
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ

DAY_US = 86_400_000_000
CURRENT, UNBOUNDED = "CURRENT ROW", "UNBOUNDED"


@dataclass(frozen=True)
class Key:
    """A column of ORDER BY: its values, its direction, and whether NULLs are first."""

    values: Values
    descending: bool
    nulls_first: bool

    @cached_property
    def places(self) -> Numbers:
        """Numbers that sort as the rows do."""
        found = ranks(self.values)
        null = found == NULL_RANK
        found = -found if self.descending else found
        return np.where(null, np.iinfo(np.int64).min if self.nulls_first else np.iinfo(np.int64).max, found)


@dataclass(frozen=True)
class Ordered:
    """`rows` are the positions of the query's rows, sorted by partition and keys. For each sorted row, `starts` and
    `ends` bound its partition, `first_peers` and `last_peers` the rows with equal keys."""

    rows: Numbers
    starts: Numbers
    ends: Numbers
    first_peers: Numbers
    last_peers: Numbers
    keys: tuple[Key, ...]

    @property
    def places(self) -> Numbers:
        return np.arange(len(self.rows))

    def values(self, column: Values) -> pa.Array:
        """Return a column in the sorted order."""
        return whole(column).take(pa.array(self.rows))

    def unordered(self, values: pa.Array) -> pa.Array:
        """Return sorted values in the order of the query's rows."""
        back = np.empty(len(self.rows), np.int64)
        back[self.rows] = self.places
        return values.take(pa.array(back))


def ordered(partition: Sequence[Values], keys: Sequence[Key], count: int) -> Ordered:
    """Sort rows by partition, then by the keys; the sort is stable."""
    groups, _ = group_codes(partition, count)
    peers = combined([key.places for key in keys], count)
    rows = np.lexsort((peers, groups))
    starts, ends = runs(groups[rows])
    # Both numberings are dense, so their product cannot overflow.
    both = groups[rows] * (int(peers.max(initial=0)) + 1) + peers[rows]
    firsts, lasts = runs(both)
    return Ordered(rows, starts, ends, firsts, lasts, tuple(keys))


def runs(codes: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each position the start and the end of its run of equal codes."""
    if not len(codes):
        return codes, codes
    changes = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    begins, ends = np.insert(changes, 0, 0), np.append(changes, len(codes))
    lengths = ends - begins
    return np.repeat(begins, lengths), np.repeat(ends, lengths)


@dataclass(frozen=True)
class Frame:
    """For each sorted row the first position of its frame and the position after its last. `whole`: all frames are
    whole partitions. `growing`: all frames start with their partition."""

    low: Numbers
    high: Numbers
    whole: bool = False
    growing: bool = False


def frame_of(spec: exp.WindowSpec | None, rows: Ordered) -> Frame:
    """Return the frames of the written clause; the default is up to the last peer with ORDER BY, else the partition."""
    if spec is None:
        if not rows.keys:
            return Frame(rows.starts, rows.ends, whole=True, growing=True)
        return Frame(rows.starts, rows.last_peers, growing=True)
    if spec.args.get("exclude"):
        raise NotCompilable("a frame with EXCLUDE")
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE"):
        raise NotCompilable(f"a {kind} frame")
    if _units(spec, "start") != _units(spec, "end") and None not in (_units(spec, "start"), _units(spec, "end")):
        raise NotCompilable("a frame whose bounds are intervals of different units")
    start = _bound(spec, "start")
    end = _bound(spec, "end") if spec.args.get("end") is not None else CURRENT
    bound = _by_rows if kind == "ROWS" else _by_range
    low, high = bound(rows, start, first=True), bound(rows, end, first=False)
    low = np.clip(low, rows.starts, rows.ends)
    high = np.maximum(np.clip(high, rows.starts, rows.ends), low)
    growing = start == f"-{UNBOUNDED}"
    return Frame(low, high, whole=growing and end == UNBOUNDED, growing=growing)


def _units(spec: exp.WindowSpec, name: str) -> str | None:
    """Return the units of a frame bound that is an interval."""
    written = spec.args.get(name)
    return written.sql(dialect="spark").split(" ", 2)[-1] if isinstance(written, exp.Interval) else None


Bound = str | int | float | Interval


def _bound(spec: exp.WindowSpec, name: str) -> Bound:
    """Return a frame bound: CURRENT, a number of rows or a distance, negative if PRECEDING, or UNBOUNDED with its
    sign."""
    written, side = spec.args[name], str(spec.args.get(f"{name}_side") or "").upper()
    before = side == "PRECEDING"
    if isinstance(written, str):
        if written.upper() == CURRENT:
            return CURRENT
        return f"-{UNBOUNDED}" if before else UNBOUNDED
    term = read(written)
    value = term.value if isinstance(term, Constant) else None
    if isinstance(value, Interval):
        return Interval(-value.months, -value.microseconds) if before else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotCompilable("a frame bound that is not an integer or an interval")
    return -value if before else value


def _by_rows(rows: Ordered, bound: Bound, *, first: bool) -> Numbers:
    if bound == f"-{UNBOUNDED}":
        return rows.starts
    if bound == UNBOUNDED:
        return rows.ends
    if not isinstance(bound, int) and bound != CURRENT:
        raise NotCompilable("a ROWS frame bound that is not an integer")
    return rows.places + (bound if isinstance(bound, int) else 0) + (0 if first else 1)


def _by_range(rows: Ordered, bound: Bound, *, first: bool) -> Numbers:
    if bound == f"-{UNBOUNDED}":
        return rows.starts
    if bound == UNBOUNDED:
        return rows.ends
    if bound == CURRENT or not rows.keys:
        return rows.first_peers if first else rows.last_peers
    if len(rows.keys) != 1:
        raise NotCompilable("a RANGE frame over several columns")
    key = rows.keys[0]
    values, null, distance = _distances(rows, key, bound)
    return _searched(rows, values, null, distance, first=first)


def _distances(rows: Ordered, key: Key, bound: Bound) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], int]:
    """Return the sort column as ascending integers, where it is NULL, and the distance of a bound."""
    array = rows.values(key.values)
    null = array.is_null().to_numpy(zero_copy_only=False)
    numbers = array.cast(pa.int32()).cast(pa.int64()) if array.type == DATE else array
    if array.type in (TIMESTAMP, TIMESTAMP_NTZ) and isinstance(bound, Interval) and not bound.months:
        distance, numbers = bound.microseconds, array.cast(pa.int64())
    elif array.type == DATE and isinstance(bound, Interval) and not bound.months and not bound.microseconds % DAY_US:
        distance = bound.microseconds // DAY_US
    elif isinstance(bound, int) and (array.type in INTEGERS or array.type == DATE):
        distance = bound
        numbers = numbers.cast(pa.int64())
    else:
        raise NotCompilable(f"a RANGE frame with this bound over a column of type {array.type}")
    values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    if len(values) and max(abs(int(values.min())), abs(int(values.max()))) + abs(distance) >= 2**62:
        raise NotCompilable("a RANGE frame over values near the limits of their type")
    return (-values if key.descending else values), null, distance


def _searched(
    rows: Ordered,
    values: npt.NDArray[np.int64],
    null: npt.NDArray[np.bool_],
    distance: int,
    *,
    first: bool,
) -> Numbers:
    """Return the positions of bounds by binary search in each partition; the frame of a NULL contains only NULLs."""
    found = np.where(first, rows.first_peers, rows.last_peers)
    for start in np.unique(rows.starts):
        end = int(rows.ends[start])
        known = np.flatnonzero(~null[start:end]) + start
        if len(known):
            # NULLs are at one end of the partition, so the other rows are adjacent.
            part = values[known]
            found[known] = known[0] + np.searchsorted(part, part + distance, "left" if first else "right")
    return found
