"""The plan of GROUP BY, DISTINCT and windows over a stream, as data: what is stored of each group, and its outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

# Columns of the grouped rows: their time, and the window that contains it.
TIME, START, END = "t", "ws", "we"
# With 'state.ttl': the time of a row, and in the companion the newest time of a group. Its name has the prefix of
# arguments, because the groups are the same with and without it.
TOUCHED = "xt"

# With grouping sets: the number of the set, which is the last of the groups.
SET = "gs"


@dataclass(frozen=True)
class Accumulator:
    """One running value of a group: `partial` is an aggregate over the batch's rows as Spark SQL; `merge` is the name
    of the function that merges two of them."""

    name: str
    partial: str
    merge: str


@dataclass(frozen=True)
class Final:
    """One aggregate of the user, computed from accumulators by the function `how`. `type` is its type in Spark, None if
    only Spark can determine it. `text` is the call as written."""

    name: str
    how: str
    accumulators: tuple[str, ...]
    type: pa.DataType | None
    text: str


@dataclass(frozen=True)
class DistinctPlan:
    """COUNT(DISTINCT ...): the values so far are stored in `companion`, by group; only new ones increase the
    accumulator. `arguments` are columns of the rows, `where` is the column of its FILTER, if any."""

    accumulator: str
    arguments: tuple[str, ...]
    where: str | None
    companion: str


@dataclass(frozen=True)
class KeptPlan:
    """Aggregates without a small running value: the rows' `arguments` are stored in `companion`, by the group's number,
    and Spark computes `finals` (name, aggregate, text as written) over those of the groups that a batch touched.
    `is_set`: equal values are stored once."""

    arguments: tuple[str, ...]
    finals: tuple[tuple[str, str, str], ...]
    is_set: bool
    companion: str


@dataclass(frozen=True)
class WindowPlan:
    """TUMBLING, SLIDING or SESSION over the rows' TIME; its bounds are the group columns START and END. `column` is the
    user's name of the time."""

    kind: str
    size_us: int
    slide_us: int
    column: str

    @property
    def is_session(self) -> bool:
        return self.kind == "SESSION"


@dataclass(frozen=True)
class Expiry:
    """'state.ttl': a group is dropped `ttl_us` after its newest event. `column` is the user's name of the event time;
    empty if the stream has no watermark, and the time of the commit is used."""

    ttl_us: int
    column: str


@dataclass(frozen=True)
class AggregatePlan:
    """`rows` is the query for the groups (g0, g1, ...), the time of a window and the arguments (x0, x1, ...) of a
    batch's rows; accumulators are merged by group into `companion`; `outputs`, `having`, `order` and `limit` are over
    the groups and finals of the merged rows. `first_only` is DISTINCT: a group is emitted only when it is new. `sets`
    are the groups of each grouping set: a row is counted in each. `qualify` is evaluated over closed windows."""

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
    sets: tuple[tuple[str, ...], ...] = ()
    qualify: exp.Expression | None = None

    @property
    def has_over(self) -> bool:
        """Whether window functions are evaluated over the groups."""
        return self.qualify is not None or any(e.find(exp.Window) for _, e in self.outputs)

    @property
    def time(self) -> str | None:
        """The column of the rows that is compared with the watermark, if there is one."""
        if self.window is not None:
            return TIME
        return TOUCHED if self.expiry is not None and self.expiry.column else None

    @property
    def partials(self) -> tuple[Accumulator, ...]:
        """The aggregates that are computed over a batch's rows, by group."""
        newest = (Accumulator(TOUCHED, f"max(`{TOUCHED}`)", "max"),) if self.time == TOUCHED else ()
        return (*self.accumulators, *newest)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a group, including the two bounds of a window."""
        return (*self.groups, START, END) if self.window else self.groups

    @property
    def companions(self) -> tuple[str, ...]:
        """The names of the hidden tables that store the state."""
        kept = (self.kept.companion,) if self.kept else ()
        return (self.companion, *(d.companion for d in self.distincts), *kept)

    def texts(self) -> Iterator[tuple[str, str]]:
        """Each aggregate as written, with a description of what is stored for it."""
        distinct = {d.accumulator for d in self.distincts}
        for final in self.finals:
            counts = distinct & set(final.accumulators)
            yield final.text, "the distinct values, and their number" if counts else "a running value"
        for _, _, text in self.kept.finals if self.kept else ():
            yield text, "the distinct values" if self.kept and self.kept.is_set else "its values"
