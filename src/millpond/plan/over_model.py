"""The plan of window functions (OVER) over a stream, as data: their rows, their frames, and what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
from sqlglot import exp

# Columns of the stored rows: the number of a row, and the order of a window; of the running values: the newest order,
# the number of rows, and the numbers of RANK and DENSE_RANK.
NUMBER, TIME = "n", "t"
NEWEST, COUNT, RANK, DENSE = "newest", "rows", "rank", "dense"
# The prefix of the hidden tables of a statement.
OVER = "over_"


class FrameKind(StrEnum):
    """How a frame is bounded."""

    ROWS = "rows"
    RANGE = "range"
    RUNNING = "running"  # from the first row of the key


@dataclass(frozen=True)
class OverFrame:
    """The rows that a function looks back at: from `start` to `end` rows, or units of the order, before the current
    one."""

    kind: FrameKind
    start: int = 0
    end: int = 0


RUNNING = OverFrame(FrameKind.RUNNING)


@dataclass(frozen=True)
class OverCall:
    """One function: `name` is the column of its value, `argument` and `default` are columns of the rows. `text` is the
    call as written. `ignores_nulls`: the first or last value that is not NULL."""

    name: str
    function: str
    type: pa.DataType
    frame: OverFrame
    text: str
    argument: str | None = None
    default: str | None = None
    ignores_nulls: bool = False

    @property
    def is_running(self) -> bool:
        return self.frame.kind is FrameKind.RUNNING


@dataclass(frozen=True)
class OverWindow:
    """The functions of one PARTITION BY and ORDER BY: `keys` and `time` are columns of the rows; without `time` the
    order is that of arrival. `stored` is the table of rows that frames look back at, `running` the one of running
    values, by key."""

    keys: tuple[str, ...]
    time: str | None
    calls: tuple[OverCall, ...]
    stored: str
    running: str
    order: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns that are stored of each row."""
        return tuple(dict.fromkeys(c.argument for c in self.calls if not c.is_running and c.argument is not None))

    @property
    def looks_back(self) -> bool:
        """Whether rows are stored, because a frame has a beginning."""
        return any(not call.is_running for call in self.calls)

    @property
    def rows_kept(self) -> int:
        """The number of newest rows of a key that are stored."""
        return max((c.frame.start for c in self.calls if c.frame.kind is FrameKind.ROWS), default=0)

    @property
    def range_kept(self) -> int | None:
        """The distance from the newest order up to which rows are stored."""
        return max((c.frame.start for c in self.calls if c.frame.kind is FrameKind.RANGE), default=None)


@dataclass(frozen=True)
class OverPlan:
    """`rows` is the query for the rows of a batch: keys, orders, arguments and other columns; the statement's query
    reads these and the values of the functions as BATCH. `written` is the query as it was before. `waits`: events
    are held in the table `held` until the watermark has passed them. `late` is 'late.rows'."""

    rows: exp.Select
    written: exp.Query
    windows: tuple[OverWindow, ...]
    late: str = "dead-letter"
    retention_us: int | None = None
    waits: bool = False
    held: str = ""

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the hidden tables."""
        stored = (w.stored for w in self.windows if w.looks_back)
        return (*stored, *(w.running for w in self.windows), *((self.held,) if self.waits else ()))
