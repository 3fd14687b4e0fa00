"""The contract of a source of changes: one consistent snapshot of several tables, and every change made since.

The engine stores the position in the same commit as the changes before it, and confirms it to the server only
afterwards. So a crash neither loses nor repeats a change, and a transaction of the server, whatever tables it changed,
is one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from millpond.contracts.feeder import Polled, Position, RowForm
from millpond.contracts.source import Progress, SourceSpec
from millpond.errors import Problem

if TYPE_CHECKING:
    from millpond.schema import Schema

# The position is no longer available on the server; capture is not possible. `cdc.lost` and `cdc.fallback` determine
# what happens then.
POSITION_GONE, NOT_POSSIBLE = "MP513", "MP514"


class Operation(IntEnum):
    """The operation of a change; in a stream of changes, the rows of a snapshot are events too."""

    SNAPSHOT = 0
    INSERT = 1
    UPDATE = 2
    DELETE = 3


@dataclass(frozen=True)
class Capture:
    """What is captured from one server: `tables` by the names under which their changes arrive, each with its URI,
    options and columns. `owner` names the app and its state directory, for objects that are created on the server.
    `keyed`: changes are applied to a table, which needs a key; otherwise they are events."""

    owner: str
    tables: Mapping[str, SourceSpec]
    keyed: bool = True


def starts_empty(values: Mapping[str, Any]) -> bool:
    """Whether a capture with these options leaves out the existing rows."""
    load = values.get("initial.load")
    return load == "none" or (load is None and values.get("cdc.start") not in (None, "initial"))


@dataclass(frozen=True)
class Changes:
    """Changes of one table, in their order; they may be of several transactions.

    `rows` has the columns of the table as they are after each change; of a delete as they were, as far as the server
    sends them, else NULL. It may have BAD and RAW too: a bad row is a dead letter and changes nothing. `operations` has
    an int8 for each row. `before` is a struct of columns as they were, at least of the key, for updates that changed
    the key and wherever the server sends the row as it was; NULL for the others. `kept` has, for a column whose value
    the server does not send where it has not changed, true where that is so. `times` (when each was committed) and
    `offsets` (where its transaction is in the server's log, as a number that grows) are for streams."""

    table: str
    rows: pa.RecordBatch
    operations: pa.Array
    before: pa.StructArray | None = None
    kept: Mapping[str, pa.Array] = field(default_factory=dict)
    times: pa.Array | None = None
    offsets: pa.Array | None = None


@dataclass(frozen=True)
class Truncated:
    """All rows of a table were removed; in order with its changes."""

    table: str


@dataclass(frozen=True)
class Altered:
    """The columns of a table have changed. `columns` are those of the rows that follow; the engine uses those of its
    table: absent ones are NULL, others are cast. `problem` is the warning."""

    table: str
    columns: Schema
    problem: Problem


@dataclass(frozen=True)
class Committed:
    """Everything since the previous boundary consists of complete transactions and can be committed at `position`. Also
    yielded without changes from time to time, so that the server can discard its log for a table without changes."""

    position: Position


Event: TypeAlias = Changes | Truncated | Altered | Committed


class Snapshot:
    """One consistent state of several tables; its changes continue exactly at `position`."""

    position: Position

    def form(self, table: str) -> RowForm:
        """How a table's rows become records."""
        raise NotImplementedError

    def read(self, table: str) -> Iterable[Polled]:
        """A table's rows, in parts of bounded size."""
        raise NotImplementedError

    def progress(self, table: str) -> Progress:
        """How far reading is. Callable from any thread; the engine counts rows itself."""
        return Progress()

    def close(self) -> None:
        """Called at the end, also after an error."""


@dataclass(frozen=True)
class LogLag:
    """How far a capture is behind the log of the server: the bytes that are not read yet, those that the server keeps
    for it, and the seconds that the oldest change has waited; None if unknown."""

    unread: int | None = None
    kept: int | None = None
    seconds: float | None = None


class Following:
    """The changes after a position, as they are made. Used by one thread at a time, except `lag`."""

    def next(self, wait_s: float) -> Event | None:
        """The next event; None if there was none for about this time. Never waits longer. Raises SourceError MP506 if
        the connection is lost: the engine then follows again from the last committed position."""
        raise NotImplementedError

    def acknowledge(self, position: Position) -> None:
        """Called when everything up to a position is stored here: the server may discard it."""
        raise NotImplementedError

    def lag(self) -> LogLag:
        """How far it is behind. Callable from any thread."""
        return LogLag()

    def close(self) -> None:
        """Called at the end, also after an error."""


class ChangeSource:
    """One server whose tables are captured. Opening it raises SourceError MP506 if it cannot be reached, MP507 and
    MP508 for an invalid login or configuration, MP514 if capture is not possible, with the setting to change."""

    def snapshot(self, tables: Sequence[str], position: Position | None) -> Snapshot:
        """A snapshot of some tables. `position` is that of the capture of the others, None for a new capture: then
        objects on the server are created here, so that no change after the snapshot is lost."""
        raise NotImplementedError

    def start(self, *, latest: bool = False) -> Position:
        """Instead of a snapshot: the position at which to start without the existing rows ('cdc.start',
        'initial.load'). `latest`: the end of the log, whatever 'cdc.start' is. Objects on the server are created here
        too."""
        raise NotImplementedError

    def end(self) -> Position:
        """The current end of the server's log: everything committed before the call is before it."""
        raise NotImplementedError

    def follow(self, position: Position) -> Following:
        """The changes after a position; MP513 if the server no longer has them."""
        raise NotImplementedError

    def contains(self, snapshot: Position, position: Position) -> bool:
        """Whether a snapshot at the first position contains what was committed up to the second."""
        raise NotImplementedError

    def problems(self) -> list[Problem]:
        """Warnings since the last call."""
        return []

    def close(self) -> None:
        """Called when the app stops; objects on the server are kept."""
