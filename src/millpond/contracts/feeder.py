"""The contract of a source that Spark cannot read itself: rows in bounded parts, and how rows become records.

A `Feeder` only returns the records after a position, a `TableReader` only the current content. Everything else is done
by the engine: the journal of positions, the feed files that make a batch repeatable, replay after a crash, lag, dead
letters, and the commit of a loaded table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from millpond.contracts.source import Found, Progress, SourceSpec, SourceStatus
from millpond.contracts.stored_json import Json, StoredJson
from millpond.errors import Problem, SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A JSON value; only the source that created it interprets it.
Position: TypeAlias = StoredJson

# Rows of a batch, so that the flow processes the first of many records while the others are being read.
LIVE_ROWS = 200_000
# Feed files that wait to be read; a poll that would add more stops, and continues at the next.
FILES_MAX = 10_000


@dataclass(frozen=True)
class Polled:
    """Records in stream order, as rows of `RowForm.schema`, and the position after them.

    `records`: their number, if a row contains several. `raw`: some of them can be read only by Spark. `small`: there
    are so few that `RowForm.together` gets them with their neighbours. `cut(n)` divides them after the n-th row, each
    part with its position; without it they are all in one batch. `continues`: the next part must be in the same batch;
    only the last of them has a position."""

    rows: pa.RecordBatch
    position: Position = None
    records: int | None = None
    raw: bool = False
    small: bool = False
    bytes: int = 0
    cut: Callable[[int], tuple[Polled, Polled]] | None = None
    continues: bool = False

    @property
    def count(self) -> int:
        """The number of records."""
        return self.rows.num_rows if self.records is None else self.records


# Stores records that a source was given; they are durable when it returns.
Take = Callable[[Iterable[Polled]], None]


class RowForm:
    """How rows become records. A source whose rows have the stream's columns needs none of this: the engine adds the
    hidden columns, the stream order and, if rows have no column BAD, that none is bad.

    Records have the columns of the source and any of ORDER_MAJOR, ORDER_MINOR, BAD, RAW and the hidden columns; absent
    ones are added. A bad record has the reason in BAD, its bytes in RAW, and NULL in the columns."""

    # The columns of the rows that the source yields; without ORDER_MINOR, the engine numbers the rows.
    schema: pa.Schema
    # Whether rows that are not `raw` may be bad records. False avoids a search for them in large batches.
    may_be_bad: bool = False
    # The maximal number of records that a row contains.
    bundle_max: int = 1
    # Columns with few distinct values, which need little space in a feed file.
    repeated: tuple[str, ...] = ()

    def arrow_records(self, rows: pa.Table, *, raw: bool) -> pa.Table | None:
        """Rows as records on the driver, in any order; `raw`: some of them may be raw. None if Spark must read them.
        The same rows must always give the same records."""
        return None if raw else rows

    def records(self, rows: DataFrame, *, raw: bool) -> DataFrame:
        """The same in Spark; `raw`: some of them may be raw, which is always the case for rows of `Feeder.again`.
        Lazy."""
        return rows

    def count(self, rows: pa.Table) -> int:
        """The number of records that rows contain."""
        return int(rows.num_rows)

    def together(self, small: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Combine rows that were polled as `small`, in their order; each part has whether it is raw."""
        yield from ((rows, False) for rows in small)


class Feeder(RowForm):
    """A source that is read as a stream. One object per flow and run, used by one thread at a time. Only `poll` must be
    implemented; it raises SourceError MP501 if the source does not exist, MP506 if it cannot be reached: the engine
    reports it and tries again."""

    # The interval of `poll` while the app runs, in seconds.
    interval_s: float = 1.0
    rows_live: int | None = LIVE_ROWS
    files_max: int = FILES_MAX
    # Set before `begin`: a folder of the state directory for what the source itself must keep; and how many rows were
    # kept but are not in the tables yet, callable from any thread.
    folder: Path | None = None
    waiting: Callable[[], int] = staticmethod(lambda: 0)

    def begin(self, known: Sequence[Position], take: Take) -> Position | None:
        """Called once, before anything else. `known` are the stored positions, oldest first: the last one is where the
        source is, unless positions state only what has changed (see `merge`). A source that is given its records calls
        `take` with them, from any thread. Returns a position to be stored before the first record."""
        return None

    def poll(self, position: Position | None, *, final: bool = False) -> Iterable[Polled]:
        """The records after a position, None for the first ones. Called once before a flow catches up, when everything
        that the source contains must be yielded, and then every `interval_s`. What is yielded counts when it was
        `kept`; after a crash or a full disk it is polled again. Parts should be small enough to be held in memory; the
        engine writes them to feed files of at most 'max.rows.per.batch' rows. `final`: the app runs with `--once`, and
        this is the only poll; a source whose content is complete yields all of it."""
        raise NotImplementedError

    def merge(self, before: Position, after: Position) -> Position:
        """Merge two consecutive positions into one; overridden if positions state only what has changed. May modify
        `before`."""
        return after

    def kept(self, position: Position) -> None:
        """Called when everything up to a position, polled or given, is on disk."""

    def whole(self) -> Position | None:
        """The complete position, if positions state only what has changed; else None."""
        return None

    def originals(self, records: pa.Table, fed: Callable[[], pa.Table]) -> list[bytes | None]:
        """The original bytes of records, None if they are not available: they are stored as JSON then. Called for good
        records that a statement rejected; `fed` reads their rows."""
        return [None] * records.num_rows

    def again(self, letters: pa.Table) -> pa.Table:
        """Dead letters as rows, each at its original partition and position; `raw` may have been repaired. Raises
        SourceError MP512 if a record of this source cannot be made from bytes alone."""
        raise SourceError("MP512", "Records of this source cannot be replayed: their bytes are not stored.")

    def found(self, first: pa.Table) -> Found:
        """The columns of the first rows that wait to be read; for a source that is given its records."""
        return Found()

    def redefine(self, spec: SourceSpec) -> None:
        """Called when columns were discovered, or options changed, after the source was opened; for a source that is
        given its records."""

    def status(self, known: SourceStatus) -> SourceStatus:
        """Adds the statistics of the source to those of the engine; callable from any thread."""
        return known

    def problems(self) -> list[Problem]:
        """Warnings since the last call; called after `poll`, from its thread."""
        return []

    def stop(self) -> None:
        """Called when the flow stops, from any thread: a poll that is under way should end soon."""

    def close(self) -> None:
        """Called after the last poll."""


@dataclass(frozen=True)
class Content:
    """The current content of a table's source, in bounded parts. `whole`: rows of the table that are not among them are
    deleted; otherwise they are the rows that were added or changed since `mark`. `mark` is called when all parts were
    read: what to store with them, as JSON. `close` is called at the end, also after an error."""

    parts: Iterable[Polled]
    whole: bool = True
    mark: Callable[[], Json] = lambda: None
    close: Callable[[], None] = lambda: None


class TableReader(RowForm):
    """A source that is read as a table: its whole content, or what has changed since. Used from one thread. Raises
    SourceError MP501 if the source does not exist, MP506 if it cannot be reached."""

    # How often the source is checked while the app runs, in seconds; None: only at each start.
    interval_s: float | None = None

    def begin(self, fingerprint: str | None) -> None:
        """Called once, before anything else, with the fingerprint of the table's current content, None at the first
        load. A source that cannot be reached yet raises MP506, and is opened again as determined by `patience`."""

    def fingerprint(self) -> str | None:
        """Changes whenever the content may have changed; cheap. None if that cannot be determined without reading."""
        return None

    def read(self, mark: StoredJson) -> Content:
        """The current content, in stream order; `mark` is the value that the last read stored, None at the first."""
        raise NotImplementedError

    def progress(self) -> Progress:
        """Callable from any thread while content is read. The engine counts rows itself."""
        return Progress()

    def status(self, known: SourceStatus) -> SourceStatus:
        """Adds the statistics of the source to those of the engine; callable from any thread."""
        return known

    def problems(self) -> list[Problem]:
        """Warnings since the last call."""
        return []

    def close(self) -> None:
        """Called when the app stops."""
