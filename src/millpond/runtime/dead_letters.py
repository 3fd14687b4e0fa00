"""The table of records that could not be used: where each came from, as it came, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from millpond.contracts.source import BAD, ORDER_MINOR, RAW
from millpond.contracts.table import TableSpec, Transaction
from millpond.plan.system import DEAD_LETTERS as SCHEMA

NAME = "dead_letters"
SPEC = TableSpec(NAME, SCHEMA)


@dataclass(frozen=True)
class Letters:
    """Where dead letters of one flow or load go."""

    flow: str
    source: str
    rows_max: int

    def add_bad_records(self, tx: Transaction, bad: pa.Table) -> None:
        """Records that could not be read, as a source's `records` marks them."""
        self.add(tx, bad, ["MP504"] * bad.num_rows, bad[BAD].to_pylist(), bad[RAW].to_pylist())

    def add(
        self, tx: Transaction, rows: pa.Table, codes: list[str], reasons: list[str], raw: list[bytes | None]
    ) -> None:
        """One letter per row; partition and position are the row's own where it has them."""
        if not rows.num_rows:
            return
        now = datetime.now(UTC)
        letters = pa.table(
            {
                "at": [now] * rows.num_rows,
                "flow": [self.flow] * rows.num_rows,
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
        excess = len(table) - self.rows_max
        if excess > 0:
            table.replace(table.to_arrow().slice(excess))


def _texts(rows: pa.Table, *names: str) -> list[str | None]:
    for name in names:
        if name in rows.column_names:
            return [None if value is None else str(value) for value in rows[name].to_pylist()]
    return [None] * rows.num_rows
