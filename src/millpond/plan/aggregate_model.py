"""GROUP BY, DISTINCT and windows over a stream, as data: what is kept of each group, and what users see of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

# Columns of the rows that are grouped: their time, and the window that they fall into.
TIME, START, END = "t", "ws", "we"
# With 'state.ttl': the time of a row, and in the companion the newest one of a group. Its name starts as those of
# arguments do, because groups are the same with and without it.
TOUCHED = "xt"


@dataclass(frozen=True)
class Accumulator:
    """One running value of a group: `partial` is an aggregate, as Spark writes it, over the batch's rows; `merge`
    names how two of them are joined."""

    name: str
    partial: str
    merge: str


@dataclass(frozen=True)
class Final:
    """One aggregate of the user's, got from an accumulator; `how` names the way. `type` is what Spark would give it,
    None where only Spark can tell. `text` is the call as it was written."""

    name: str
    how: str
    accumulators: tuple[str, ...]
    type: pa.DataType | None
    text: str


@dataclass(frozen=True)
class DistinctPlan:
    """COUNT(DISTINCT ...): the values seen are in `companion`, by group; only new ones add to the accumulator.
    `arguments` are columns of the rows, `where` the column of its FILTER, if any."""

    accumulator: str
    arguments: tuple[str, ...]
    where: str | None
    companion: str


@dataclass(frozen=True)
class KeptPlan:
    """Aggregates without a small running value: the rows' `arguments` are kept in `companion`, by the group's number,
    and Spark computes `finals` (name, aggregate, text as written) over those of the groups that a batch touched.
    `is_set`: equal values are kept once."""

    arguments: tuple[str, ...]
    finals: tuple[tuple[str, str, str], ...]
    is_set: bool
    companion: str


@dataclass(frozen=True)
class WindowPlan:
    """TUMBLING, SLIDING or SESSION over the rows' TIME; its ends are the group columns START and END. `column` is
    the time as the user named it."""

    kind: str
    size_us: int
    slide_us: int
    column: str

    @property
    def is_session(self) -> bool:
        return self.kind == "SESSION"


@dataclass(frozen=True)
class Expiry:
    """'state.ttl': a group leaves `ttl_us` after its newest event. `column` is the event time as the user named it;
    empty where the stream has no watermark, and the clock is read at each commit."""

    ttl_us: int
    column: str


@dataclass(frozen=True)
class AggregatePlan:
    """`rows` gives the groups (g0, g1, ...), the time of a window and the arguments (x0, x1, ...) of a batch's rows;
    accumulators are merged by group into `companion`; `outputs`, `having`, `order` and `limit` are over the groups and
    finals of the merged rows. `first_only` is DISTINCT: a group is told when it is new."""

    rows: exp.Select
    groups: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    finals: tuple[Final, ...]
    outputs: tuple[tuple[str, exp.Expression], ...]
    companion: str
    having: exp.Expression | None = None
    order: tuple[exp.Expression, ...] = ()
    limit: exp.Expression | None = None
    distincts: tuple[DistinctPlan, ...] = ()
    kept: KeptPlan | None = None
    window: WindowPlan | None = None
    first_only: bool = False
    expiry: Expiry | None = None

    @property
    def time(self) -> str | None:
        """The column of the rows that the watermark is compared with, if there is one."""
        if self.window is not None:
            return TIME
        return TOUCHED if self.expiry is not None and self.expiry.column else None

    @property
    def partials(self) -> tuple[Accumulator, ...]:
        """What is computed of a batch's rows, by group."""
        newest = (Accumulator(TOUCHED, f"max(`{TOUCHED}`)", "max"),) if self.time == TOUCHED else ()
        return (*self.accumulators, *newest)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that tell groups apart; a window is one more of them, with its two ends."""
        return (*self.groups, START, END) if self.window else self.groups

    @property
    def companions(self) -> tuple[str, ...]:
        """The hidden tables that hold what is kept."""
        kept = (self.kept.companion,) if self.kept else ()
        return (self.companion, *(d.companion for d in self.distincts), *kept)

    def texts(self) -> Iterator[tuple[str, str]]:
        """Each aggregate as it was written, with what is kept for it."""
        distinct = {d.accumulator for d in self.distincts}
        for final in self.finals:
            counts = distinct & set(final.accumulators)
            yield final.text, "each value once, and their number" if counts else "a running value"
        for _, _, text in self.kept.finals if self.kept else ():
            yield text, "each value once" if self.kept and self.kept.is_set else "its values"
