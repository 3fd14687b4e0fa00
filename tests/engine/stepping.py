"""An app whose batches a test hands over one by one: the real flow with its commit, without Spark's streaming."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.app.planning import plan_text
from millpond.app.running_plan import Running
from millpond.contracts.source import BAD, ORDER_MAJOR, ORDER_MINOR, RAW
from millpond.engine.progress import RUNNING
from millpond.engine.spark.transfer import arrow_frame
from millpond.testing.sql_files import sink_lines


class Given:
    """A reader whose batches are records already."""

    interval_s = 1.0

    def records(self, batch: Any) -> Any:
        return batch

    def __init__(self, size_hint: int) -> None:
        self._size_hint = size_hint
        # The batch itself, where it need not go through Spark.
        self.rows: pa.Table | None = None

    def size_hint(self, batch: Any) -> int:
        return self._size_hint

    def on_driver(self, batch: Any, files: Any) -> pa.Table | None:
        return self.rows

    def originals(self, batch: Any, records: pa.Table, files: Any = None) -> list[bytes | None]:
        return [None] * records.num_rows

    def committed(self, batch_id: int) -> None:
        return None

    @property
    def given(self) -> Given:
        return self

    def verify(self, batch_id: int) -> None:
        """What a batch consists of is known to the test alone."""

    def forget(self, batches: int) -> None:
        """Nothing is kept of a batch."""


class Stepper:
    """Feeds the first flow of an app; `restart` leaves everything that is only in memory behind. `large`: batches stay
    in Spark, as those of many rows do."""

    def __init__(self, sql: str, folder: Path, spark: Any, *, large: bool = False) -> None:
        self._sql, self._folder, self._spark = sql, folder, spark
        self._size_hint = 10_000_000 if large else 0
        self._next = 0
        self._nothing = spark.range(0)
        self._open()

    def _open(self) -> None:
        plan = plan_text(self._sql, base=self._folder)
        assert not plan.errors, "\n".join(map(str, plan.errors))
        self._running = Running(plan, self._folder / "state", self._spark, io.StringIO(), lambda found: plan)
        self._running.prepare(accept=False)
        self.flow = self._running.flows[0]
        self._reader = Given(self._size_hint)
        self.flow.reader = self._reader  # type: ignore[assignment]
        self.flow.state = RUNNING

    def feed(self, rows: Sequence[dict[str, Any]]) -> None:
        """One batch; the rows are in stream order."""
        source = self.flow.source
        assert source.columns is not None
        columns = {c.name: pa.array([r.get(c.name) for r in rows], c.type) for c in source.columns}
        columns |= {c.name: pa.nulls(len(rows), c.type) for c in source.hidden}
        columns |= {ORDER_MAJOR: pa.array([self._next] * len(rows), pa.int64())}
        columns |= {ORDER_MINOR: pa.array(range(len(rows)), pa.int64())}
        columns |= {BAD: pa.nulls(len(rows), pa.string()), RAW: pa.nulls(len(rows), pa.binary())}
        table = pa.table(columns)
        if self._size_hint:
            self.flow._on_batch(arrow_frame(self._spark, table), self._next)
        else:
            self._reader.rows = table
            self.flow._on_batch(self._nothing, self._next)
        self._next += 1

    def put(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Rows of a table that the flow only reads: one-shot statements are not run here."""
        self._running.context.store.table(table).insert(rows)

    def restart(self) -> None:
        self.close()
        self._open()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows."""
        return list(self._running.context.store.table(table).to_arrow().to_pylist())

    def tables(self) -> tuple[str, ...]:
        """All tables, hidden ones too."""
        return self._running.context.store.names()

    def sink(self, folder: str) -> list[dict[str, Any]]:
        """What a sink of JSON lines has got, in order."""
        return [json.loads(line) for line in sink_lines(self._folder / folder)]

    def close(self) -> None:
        self._running.close(stop_spark=False)
