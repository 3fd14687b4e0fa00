"""A sink with a meter: what was published through it, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.sink import Mark, Sink
from millpond.runtime.figures.meter import Meter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class MeasuredSink:
    """A Sink that counts what another one publishes."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.meter = Meter()
        self.takes_arrow, self.marks_rows = sink.takes_arrow, sink.marks_rows

    def require(self, spark: Callable[[], SparkSession]) -> None:
        self._sink.require(spark)

    def prepare(self, rows: pa.Table) -> pa.Table:
        return self._sink.prepare(rows)

    def stage(self, rows: Any, mark: Mark) -> dict[str, Any] | None:
        # What prints has no second step.
        with self._counted():
            return self._sink.stage(rows, mark)

    def publish(self, staged: dict[str, Any]) -> None:
        with self._counted():
            self._sink.publish(staged)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        before = self._sink.rows_written()
        yield
        if rows := self._sink.rows_written() - before:
            self.meter.add(rows)

    def discard(self) -> None:
        self._sink.discard()

    def rows_written(self) -> int:
        return self._sink.rows_written()
