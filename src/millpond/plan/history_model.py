"""The plan of a table's history, as data: its period and time, and the columns of the hidden table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.relational.moments import VALID_FROM, VALID_TO
from millpond.schema import TIMESTAMP, Column

# The option, and the ending of the hidden table's name.
HISTORY = "history"

# The time from which a row was valid, and the time from which it no longer was: NULL while it is valid.
FROM, TO = VALID_FROM, VALID_TO
# The versions of the table between which it contained the row: GONE is the first version without it, or NULL.
VERSION, GONE = "__version", "__gone"
# The commit times of these versions.
AT, GONE_AT = "__at", "__gone_at"
# The time at which a row that was deleted ended, if no later row ended it before.
ENDED = "__ended"
# Whether the row is valid, or in the table: these are found by an index when the next row of their key arrives.
OPEN = "__open"

ADDED = (
    Column(FROM, TIMESTAMP, nullable=False),
    Column(TO, TIMESTAMP),
    Column(VERSION, pa.int64(), nullable=False),
    Column(GONE, pa.int64()),
    Column(AT, TIMESTAMP),
    Column(GONE_AT, TIMESTAMP),
    Column(ENDED, TIMESTAMP),
    Column(OPEN, pa.bool_()),
)


# What a table of a query carries for the engine: the constant version or time that must be held.
MOMENT = "mp_moment"


@dataclass(frozen=True)
class HistoryPlan:
    """The history of `table` with this `key`: a row that is no longer valid is kept for `period_us`. `time` is the
    column with the time from which a row is valid; None for the time of the commit."""

    table: str
    key: tuple[str, ...]
    time: str | None
    period_us: int
