"""The reader of a flow: a stream that Spark reads itself, or the feed of a source that Spark cannot read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millpond.contracts.source import FeedBatches, SourceSpec, SourceStatus
from millpond.engine.feeds.feed_reader import FeedReader
from millpond.errors import Problem
from millpond.registry import find


class StreamReader(Protocol):
    """Implemented by NativeStream, FeedReader and joins of two streams; NativeStream describes each method."""

    @property
    def interval_s(self) -> float: ...

    def require(self, spark: Callable[[], SparkSession]) -> None: ...

    def stream(self, spark: SparkSession) -> DataFrame:
        """Not called if there is a feed."""

    def fed(self, spark: SparkSession, files: Sequence[Path]) -> DataFrame:
        """The content of feed files as Spark reads it: a batch for `records`. Called only if Spark evaluates the
        batch."""

    def poll(self, *, final: bool = False) -> bool:
        """Poll for new records and make them visible to `stream`; True if there were any. Called once before a flow
        catches up, after which everything that the source had must be visible, and then every `interval_s`."""

    def records(self, batch: DataFrame) -> DataFrame: ...

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        """The records of a batch on the driver: read from its feed files without Spark, or fetched by one simple job.
        None if Spark must read them, or if the batch has feed files that are not known."""

    def all_good(self, files: Sequence[Path]) -> int | None:
        """The number of records in these feed files, if none of them can be a bad record, so that no search for bad
        ones is needed; else None."""

    def size_hint(self, batch: DataFrame) -> int: ...

    def originals(self, batch: DataFrame, records: pa.Table, files: Sequence[Path] | None = None) -> list[bytes | None]:
        """The original bytes of some records of a batch; read from its feed files if these are known."""

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame: ...

    def committed(self, batch_id: int) -> None: ...

    def status(self) -> SourceStatus: ...

    @property
    def given(self) -> FeedBatches | None:
        """The feed files of the source; None if Spark reads the source itself."""

    def problems(self) -> list[Problem]: ...

    def close(self) -> None: ...


def open_reader(spec: SourceSpec, scheme: str, folder: Path, *, local: bool = True, owner: str = "") -> StreamReader:
    """The reader of a source; `folder` is the flow's own, for what must be remembered; `local`: Spark runs within the
    driver; `owner` names what is created on a server for it. Raises SourceError MP501 if the source does not exist,
    MP506 if it cannot be reached."""
    plugin = find("source", scheme)
    if plugin.open_native is not None:
        return plugin.open_native(spec, folder)
    return FeedReader(spec, plugin, folder, small=local, owner=owner)
