"""The table of records that could not be used: where each came from, as it came, and why."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import BAD, ORDER_MINOR, RAW
from millpond.contracts.table import Store, TableSpec, Transaction
from millpond.plan.meaning import plain_text
from millpond.plan.model import FlowPlan, Step
from millpond.plan.system import DEAD_LETTERS as SCHEMA

NAME = "dead_letters"
SPEC = TableSpec(NAME, SCHEMA)
# Under this key and the time of some letters: which flow they are of, and which of its statements refused them.
ORIGIN = "letters:"
# In place of a statement: all of them refused the record; or the letter is no record that could be sent again.
ALL_STATEMENTS, NO_RECORD = "", "-"


@dataclass(frozen=True)
class Letters:
    """Where dead letters of one flow or load go; those of a load have no flow and cannot be sent again."""

    store: Store
    flow: str
    source: str
    rows_max: int
    flow_id: str = ""
    statement: str = ALL_STATEMENTS
    # What refused the record: the statement's number in its flow, as `explain` counts them, and its line in the file.
    number: int | None = None
    line: int | None = None

    def of(self, flow: FlowPlan, step: Step) -> Letters:
        """The letters of one statement."""
        number = 1 + sum(other.index < step.index for other in flow.steps)
        return replace(self, statement=statement_id(flow, step), number=number, line=step.place.line)

    def without_record(self) -> Letters:
        """Letters that tell of a row which is no record of the source, or only a part of what came of one."""
        return replace(self, statement=NO_RECORD)

    def forget(self, tx: Transaction) -> None:
        """Remove the letters of an earlier load: a load tells of everything that does not fit."""
        tx.table(NAME).delete("flow = ? AND source = ?", [self.flow, self.source])

    def add_bad_records(self, tx: Transaction, bad: pa.Table) -> None:
        """Records that could not be read, as a source's `records` marks them."""
        self.add(tx, bad, ["MP504"] * bad.num_rows, bad[BAD].to_pylist(), bad[RAW].to_pylist())

    def add(
        self, tx: Transaction, rows: pa.Table, codes: list[str], reasons: list[str], raw: list[bytes | None]
    ) -> None:
        """One letter per row; partition and position are the row's own where it has them."""
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
        excess = len(table) - self.rows_max
        if excess > 0:
            kept = table.to_arrow().slice(excess)
            table.replace(kept)
            self._forget_before(tx, pc.min(kept["at"]).as_py())

    def _forget_before(self, tx: Transaction, oldest: datetime | None) -> None:
        """Origins of letters that are gone; there are never many more of them than letters."""
        limit = "" if oldest is None else origin_key(oldest)
        for key in self.store.items(ORIGIN):
            if key < limit:
                tx.put(key, None)


def statement_id(flow: FlowPlan, step: Step) -> str:
    """What tells a statement from the others of its flow, whatever is added to the file around it."""
    text = _text(step)
    earlier = sum(_text(other) == text for other in flow.steps if other.index < step.index)
    return f"{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}:{earlier}"


def origin_key(at: datetime) -> str:
    return f"{ORIGIN}{round(at.timestamp() * 1_000_000):020d}"


def _text(step: Step) -> str:
    return plain_text(step.statement) if step.statement is not None else step.query.sql("spark")


class _Clock:
    """Gives each call a later time than the one before, so that a time names the letters that were added together."""

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
