"""What the captures of all databases share: rows of a snapshot, changes put together into batches, altered columns."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

import pyarrow as pa

from millpond.contracts.changes import Changes, Committed, Event, Following
from millpond.contracts.feeder import Position, RowForm
from millpond.contracts.source import BAD, RAW
from millpond.errors import Problem, Severity
from millpond.schema import Schema

# Decoded rows that are returned together; the first that is reached counts.
ROWS_MAX, BYTES_MAX = 20_000, 16 << 20
# How long transactions that follow each other without a gap are put together.
GATHERED_S = 0.2


class SnapshotForm(RowForm):
    """Rows of a snapshot have the columns of the table, and say which are bad."""

    may_be_bad = True

    def __init__(self, columns: Schema) -> None:
        sent = [pa.field(column.name, column.type) for column in columns]
        self.schema = pa.schema([*sent, pa.field(BAD, pa.string()), pa.field(RAW, pa.binary())])


class BatchedFollowing(Following):
    """Changes that a server sends one by one, returned in batches. Transactions are returned together where they
    come fast; what belongs to an open one is returned when it is much."""

    def __init__(self, position: Position) -> None:
        self._events: deque[Event] = deque()
        self._rows = self._bytes = 0
        self._in_transaction = False
        # Behind the last whole transaction that was decoded and not returned, and what was returned last.
        self._reached: Position | None = None
        self._given: Position = position

    def receive(self, wait_s: float) -> bool:
        """Decode the next message of the server; False if none came for so long."""
        raise NotImplementedError

    def decoded(self) -> Iterable[Changes]:
        """The changes that were decoded since the last call."""
        raise NotImplementedError

    def quiet(self) -> Position | None:
        """Where the log of the server is, if it is further than what was returned and nothing is on its way."""
        return None

    def next(self, wait_s: float) -> Event | None:
        began = time.monotonic()
        while not self._events:
            waiting = self._rows or self._reached is not None
            # Whole transactions are returned at once when nothing follows; the rest of one is on its way.
            is_whole = waiting and not self._in_transaction
            passed_s = time.monotonic() - began
            if is_whole and passed_s >= GATHERED_S:
                # A log without a gap, of which nothing may be ours.
                self.flush(ends=True)
            elif self.receive(0.0 if is_whole else max(wait_s - passed_s, 0.0)):
                continue
            elif is_whole:
                self.flush(ends=True)
            elif not self._in_transaction and (position := self.quiet()) is not None:
                self._given = position
                self._events.append(Committed(position))
            elif passed_s >= wait_s:
                return None
        return self._events.popleft()

    def added(self, rows: int, size: int) -> None:
        """Rows of the open transaction were decoded."""
        self._rows += rows
        self._bytes += size
        if self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX:
            self.flush(ends=False)

    def ended(self, position: Position) -> None:
        """A transaction is whole."""
        self._in_transaction, self._reached = False, position
        if self._rows >= ROWS_MAX // 2:
            self.flush(ends=True)

    def flush(self, *, ends: bool) -> None:
        """Hand over what was decoded; `ends`: the transactions are whole."""
        self._events.extend(self.decoded())
        self._rows = self._bytes = 0
        if ends and self._reached is not None:
            self._given, self._reached = self._reached, None
            self._events.append(Committed(self._given))


def altered(shown: str, known: Schema | None, now: Schema) -> Problem | None:
    """A warning where a table has other columns than the app has started with."""
    if known is None:
        return None
    added = [c.name for c in now if known.get(c.name) is None]
    gone = [c.name for c in known if now.get(c.name) is None]
    other = [c.name for c in known if (found := now.get(c.name)) is not None and found.type != c.type]
    parts = [
        *(f"'{name}' was added, the table does not have it yet" for name in added),
        *(f"'{name}' is gone, it is NULL from now on" for name in gone),
        *(f"'{name}' has another type, its values are cast" for name in other),
    ]
    if not parts:
        return None
    hint = "Restart the app: it then uses the current columns."
    return Problem("MP503", f"Columns of '{shown}' have changed: {'; '.join(parts)}.", None, hint, Severity.WARNING)
