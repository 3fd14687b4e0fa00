"""The table dead_letters: records and rows that were rejected, with their source, bytes and reason."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import BAD, ORDER_MINOR, RAW
from millpond.contracts.table import Store, TableSpec, Transaction
from millpond.plan.definition import plain_text
from millpond.plan.hidden_tables import DEAD_LETTERS as SCHEMA
from millpond.plan.model import FlowPlan, Step

NAME = "dead_letters"
SPEC = TableSpec(NAME, SCHEMA)
# Ledger key prefix, followed by the time of letters: the flow and statement that rejected them, for a replay.
ORIGIN = "letters:"
# Instead of a statement: all statements rejected the record; or the letter is not a record that can be replayed.
ALL_STATEMENTS, NO_RECORD = "", "-"


@dataclass(frozen=True)
class Letters:
    """Writes the dead letters of one flow or load; those of a load have no flow and cannot be replayed."""

    store: Store
    flow: str
    source: str
    rows_max: int
    flow_id: str = ""
    statement: str = ALL_STATEMENTS
    # The statement that rejected the record: its number in the flow, as in `explain`, and its line in the file.
    number: int | None = None
    line: int | None = None

    def of(self, flow: FlowPlan, step: Step) -> Letters:
        """The letters of one statement."""
        number = 1 + sum(other.index < step.index for other in flow.steps)
        return replace(self, statement=statement_id(flow, step), number=number, line=step.place.line)

    def without_record(self) -> Letters:
        """For rows that are not records of the source, or only a part of the rows of a record, and cannot be
        replayed."""
        return replace(self, statement=NO_RECORD)

    def forget(self, tx: Transaction) -> None:
        """Remove the letters of an earlier load, because each load reports all its rejected rows again."""
        tx.table(NAME).delete("flow = ? AND source = ?", [self.flow, self.source])

    def add_bad_records(self, tx: Transaction, bad: pa.Table) -> None:
        """Add letters for bad records, as marked by a source's `records`."""
        self.add(tx, bad, ["MP504"] * bad.num_rows, bad[BAD].to_pylist(), bad[RAW].to_pylist())

    def add(
        self, tx: Transaction, rows: pa.Table, codes: list[str], reasons: list[str], raw: list[bytes | None]
    ) -> None:
        """Add one letter per row, with the row's partition and position if it has them."""
        if not rows.num_rows:
            return
        now = _CLOCK.now()
        letters = pa.table(
            {
                "at": [now] * rows.num_rows,
                "flow": [self.flow] * rows.num_rows,
                "statement": [self.number] * rows.num_rows,
                "line": [self.line] * rows.num_rows,
                "source": [self.source] * rows.num_rows,
                "partition": _texts(rows, "_partition", "_source"),
                "position": _texts(rows, "_offset", ORDER_MINOR),
                "code": codes,
                "reason": reasons,
                "raw": raw,
            },
            schema=SCHEMA.arrow(),
        )
        table = tx.table(NAME)
        table.insert(letters)
        if self.flow_id:
            tx.put(origin_key(now), [self.flow_id, self.statement])
        # The oldest letters are dropped: a broken source must not fill the disk.
        excess = len(table) - self.rows_max
        if excess > 0:
            kept = table.to_arrow().slice(excess)
            table.replace(kept)
            self._forget_before(tx, pc.min(kept["at"]).as_py())

    def _forget_before(self, tx: Transaction, oldest: datetime | None) -> None:
        """Remove the origins of removed letters, so that there are not many more of them than letters."""
        limit = "" if oldest is None else origin_key(oldest)
        for key in self.store.items(ORIGIN):
            if key < limit:
                tx.put(key, None)


def statement_id(flow: FlowPlan, step: Step) -> str:
    """The identity of a statement within its flow, which does not change when statements are added to the file."""
    text = _text(step)
    earlier = sum(_text(other) == text for other in flow.steps if other.index < step.index)
    return f"{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}:{earlier}"


def origin_key(at: datetime) -> str:
    return f"{ORIGIN}{round(at.timestamp() * 1_000_000):020d}"


def _text(step: Step) -> str:
    return plain_text(step.statement) if step.statement is not None else step.query.sql("spark")


class _Clock:
    """A strictly increasing clock, so that a time identifies the letters that were added together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = datetime.min.replace(tzinfo=UTC)

    def now(self) -> datetime:
        with self._lock:
            self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
            return self._last


_CLOCK = _Clock()


def _texts(rows: pa.Table, *names: str) -> list[str | None]:
    for name in names:
        if name in rows.column_names:
            return [None if value is None else str(value) for value in rows[name].to_pylist()]
    return [None] * rows.num_rows
