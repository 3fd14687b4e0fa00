"""The memory:// source: records that Python sends with `app.feed("memory://name").send(rows)`.

Guarantee: exactly once. A record is durable when `send` returns, and it is read once, in the order of sending.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pyarrow as pa

from millpond.contracts.feeder import Polled, Position, Take
from millpond.contracts.source import (
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    Found,
    Mode,
    SourcePlugin,
    SourceSpec,
    SourceStatus,
)
from millpond.contracts.table import Rows
from millpond.errors import Problem, Severity
from millpond.options import INTEGER, POSITIVE, Option, choice
from millpond.sources.records.column_types import VALUE
from millpond.sources.records.python_records import columns_of, json_records, known_names, unknown_names
from millpond.sources.records.sent import RECORDS, SentRecords

INTERVAL_S = 0.02

UNFED = "no record was sent to it yet"

OPTIONS = (
    Option("sample.rows", INTEGER, "1000", "Rows that are read to discover the columns."),
    Option("max.rows.per.batch", POSITIVE, "1000000", "The maximal number of rows of a batch."),
    Option(
        "on.unknown.field",
        choice("reject", "ignore"),
        "reject",
        "What `send` does with a name that is not a column of the stream: raise MP202, or ignore it.",
    ),
)


class MemoryFeeder(SentRecords):
    """Records that a program sends; `send` may be called from any thread. A position has the next number."""

    interval_s = INTERVAL_S

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec)
        self._lock = threading.Lock()
        self._next = 0
        self._warned = False

    def begin(self, known: Sequence[Position], take: Take) -> None:
        self._take = take
        self._next = known[-1]["next"] if known else 0

    def send(self, rows: Rows) -> int:
        """Store records; returns their number."""
        lines = json_records(rows)
        limit = max(self._spec.values["max.rows.per.batch"], 1)
        with self._lock:
            for first in range(0, len(lines), limit):
                self._take([self._polled(lines[first : first + limit])])
        return len(lines)

    def unknown_names(self, rows: Rows) -> list[str]:
        """The names in records that are not columns of this stream, unless it ignores them; none before its columns are
        known, because every name may become a column."""
        if not len(self._columns) or self._spec.values["on.unknown.field"] == "ignore":
            return []
        return unknown_names(rows, self._columns)

    @property
    def shown(self) -> str:
        """The name for messages."""
        return self._spec.shown

    @property
    def names(self) -> list[str]:
        """The names that records may have, for a hint."""
        return known_names(self._columns)

    def _polled(self, lines: list[bytes]) -> Polled:
        behind = self._next + len(lines)
        numbers = pa.array(range(self._next, behind), pa.int64())
        rows = pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()), numbers], schema=RECORDS)
        return Polled(rows, {"next": behind}, bytes=sum(map(len, lines)))

    def kept(self, position: Position) -> None:
        self._next = position["next"]

    def found(self, first: pa.Table) -> Found:
        columns = columns_of(first[VALUE].to_pylist())
        return Found(columns, detail="" if columns else UNFED)

    def poll(self, position: Position | None, *, final: bool = False) -> Iterable[Polled]:
        return ()

    def status(self, known: SourceStatus) -> SourceStatus:
        return known if self._next else SourceStatus("missing", "not_found", detail=UNFED)

    def problems(self) -> list[Problem]:
        if self._next or self._warned:
            return []
        self._warned = True
        message = f"'{self._spec.shown}' had no records at the start."
        hint = f'Send records from Python: app.feed("{self._spec.shown}").send(rows).'
        return [Problem("MP707", message, None, hint, Severity.WARNING)]


def validate(spec: SourceSpec) -> str | None:
    """The error of a URI as a sentence, or None."""
    return None if spec.uri.hosts or spec.uri.path else "A memory URI requires a name, such as memory://ticks."


PLUGIN = SourcePlugin(
    name="memory",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.APPEND,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET),
    local=True,
    counts_every_record=True,
    discover=lambda spec: Found(detail=UNFED),
    validate=validate,
    open_feeder=MemoryFeeder,
    pace=("sample.rows", "max.rows.per.batch", "on.unknown.field"),
    receives_records=True,
)
