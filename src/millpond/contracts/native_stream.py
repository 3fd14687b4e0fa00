"""The contract of a source that Spark reads itself: a streaming DataFrame, and the records of its batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.contracts.source import FeedBatches, SourceStatus
from millpond.errors import Problem, SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class NativeStream:
    """A source that Spark reads itself, as the stream of one flow. One object per flow and run; used from the flow's
    thread, except `poll` and `status`. Offsets are stored in Spark's checkpoint only."""

    # The interval of `poll` while the app runs, in seconds.
    interval_s: float = 1.0

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Called before a flow starts: raises SourceError MP501 if the source does not exist, MP506 if it cannot be
        reached. Never waits."""

    def stream(self, spark: SparkSession) -> DataFrame:
        """Called once per (re)start: the streaming DataFrame whose batches are passed to `records`."""
        raise NotImplementedError

    def fed(self, spark: SparkSession, files: Sequence[Path]) -> DataFrame:
        """Never called, because there are no feed files."""
        raise NotImplementedError

    def poll(self, *, final: bool = False) -> bool:
        """Called every `interval_s`, never by two threads at once, to update the statistics of the source, such as its
        lag. Must not raise if the source is temporarily unreachable, which it reports in `status`. `final`: the app
        runs with `--once`, and this is the only call. Returns False, because Spark finds new records itself."""
        return False

    def records(self, batch: DataFrame) -> DataFrame:
        """A batch's records: the declared columns in order, the source's hidden columns, then ORDER_MAJOR, ORDER_MINOR,
        BAD and RAW, and for a keyed source DELETED and IDENTITY. Lazy; the same batch must always give the same
        records. A bad record is a row with BAD set and NULL columns, never an exception."""
        raise NotImplementedError

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        """The records of a batch, as returned by `records`, fetched to the driver by one simple job. Called for batches
        of bounded size; None if Spark must read them. There are no feed files."""
        return None

    def all_good(self, files: Sequence[Path]) -> int | None:
        """Never called, because there are no feed files."""
        return None

    def size_hint(self, batch: DataFrame) -> int:
        """The approximate number of rows that `records` returns, without a job of any size; only used to decide about
        caching."""
        raise NotImplementedError

    def originals(self, batch: DataFrame, records: pa.Table, files: Sequence[Path] | None = None) -> list[bytes | None]:
        """The original bytes of some records of a batch, None if they are not available. Called within the batch, for
        good records that a statement rejected; `records` are rows of `records(batch)`, in any order. `files` is None:
        a native stream has no feed files."""
        return [None] * records.num_rows

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        """Dead letters as records, in the form of `records`, each at its original partition and position; `raw` may
        have been repaired. Called between batches. Raises SourceError MP512 if a record of this source cannot be made
        from bytes alone."""
        raise SourceError("MP512", "Records of this source cannot be replayed: their bytes are not stored.")

    def committed(self, batch_id: int) -> None:
        """Called when the batch is committed; may never be called after a crash."""

    def status(self) -> SourceStatus:
        """For SHOW SOURCES; callable from any thread."""
        return SourceStatus()

    @property
    def given(self) -> FeedBatches | None:
        """None, because there are no feed files."""
        return None

    def problems(self) -> list[Problem]:
        """Warnings since the last call; called after `poll`, from its thread."""
        return []

    def close(self) -> None:
        """Called when the flow stops."""
