"""Kafka topics as a stream: Spark's connector reads them, and stores the offsets in its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.contracts.native_stream import NativeStream
from millpond.contracts.source import SourceSpec, SourceStatus
from millpond.kafka.address import address_of
from millpond.kafka.admin import connected
from millpond.sources.kafka.fetch import Fetcher, FetchError, batch_range
from millpond.sources.kafka.lag import Identity, Reach, batch_size, committed_offsets
from millpond.sources.kafka.offsets import (
    first_offsets,
    reader_options,
    remember_beginning,
    starting_offsets,
    topics_found,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millpond.sources.kafka.arrow_messages import Tally

INTERVAL_S = 1.0
# The assumed size of a batch of unknown size: large, so that it stays in Spark.
ROWS_UNKNOWN = 1_000_000


class KafkaStream(NativeStream):
    """Messages as Spark's connector yields them."""

    interval_s = INTERVAL_S

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        self._spec, self._folder = spec, folder
        self._address = address_of(spec.uri, spec.values)
        self._topics: tuple[str, ...] = ()
        # Returns the counts of the current batch.
        self._seen: Callable[[], Tally] | None = None
        self._rows = self._bad = self._skipped = self._bytes = 0
        self._checkpoint, self._identity = folder.parent / "checkpoint", Identity(folder)
        self._reach = Reach(self._address, spec.values, self._checkpoint, self._identity)
        self._spark: SparkSession | None = None
        self._fetcher: Fetcher | None = None
        self._is_opened = False
        # The time of the newest message in the tables, in seconds since the epoch.
        self._newest: float | None = None

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Find the topics, or create them; MP501 if they are missing, MP506 if no broker responds."""
        values, session = self._spec.values, spark()
        with connected(session, self._address, values) as client:
            self._topics = topics_found(client, self._address, values)
            self._reach.note(client, self._topics, first_offsets(client, self._topics, values, self._folder) or {})
        self._spark = session

    def stream(self, spark: SparkSession) -> DataFrame:
        options = reader_options(self._spec, self._topics)
        with connected(spark, self._address, self._spec.values) as client:
            self._identity.require(client.ids(self._topics), committed_offsets(self._checkpoint))
            options["startingOffsets"] = starting_offsets(client, self._topics, self._spec.values, self._folder)
            remember_beginning(client, self._topics, self._folder)
        return spark.readStream.format("kafka").options(**options).load()

    def poll(self, *, final: bool = False) -> bool:
        """Spark polls for new messages itself; this only measures the lag, and reports a deleted topic after the retry
        options are exhausted."""
        if self._spark is not None and not final:
            self._reach.look(self._spark, self._topics)
            gone = self._reach.gone(self._spec.values["topic.wait.timeout"] / 1_000_000)
            if gone is not None:
                raise gone
        return False

    def records(self, batch: DataFrame) -> DataFrame:
        from millpond.sources.kafka.arrow_messages import observed
        from millpond.sources.kafka.messages import records_of

        records, self._seen = observed(batch, partial(records_of, spec=self._spec))
        return records

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        from millpond.sources.kafka.arrow_messages import gather

        gathered = gather(batch, self._spec, self.size_hint(batch), self._fetch)
        if gathered is None:
            return None
        self._seen = lambda: gathered.tally
        return gathered.records

    def _fetch(self, bytes_max: int) -> pa.Table:
        """The messages of the newest batch, without Spark."""
        if not self._is_opened:
            self._fetcher, self._is_opened = Fetcher.of(self._address, self._spec.values), True
        found = batch_range(self._checkpoint)
        if self._fetcher is None or found is None:
            raise FetchError
        return self._fetcher.messages(*found, bytes_max)

    def size_hint(self, batch: DataFrame) -> int:
        size = batch_size(self._checkpoint)
        return ROWS_UNKNOWN if size is None else size

    def originals(self, batch: DataFrame, records: pa.Table, files: Sequence[Path] | None = None) -> list[bytes | None]:
        from millpond.sources.kafka.messages import originals

        return originals(batch, records)

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        from millpond.sources.kafka.messages import again

        return again(self._spec, spark, letters)

    def committed(self, batch_id: int) -> None:
        if self._seen is None:
            return
        seen, self._seen = self._seen(), None
        self._rows, self._bad, self._skipped = (
            self._rows + seen.rows,
            self._bad + seen.bad,
            self._skipped + seen.skipped,
        )
        self._bytes += seen.bytes
        self._newest = seen.newest_us / 1_000_000 if seen.newest_us else self._newest

    def status(self) -> SourceStatus:
        lag, away = self._reach.lag, self._reach.away
        oldest = self._reach.oldest
        waited = max(0.0, time.time() - oldest) if lag and oldest is not None else None
        detail = f"{self._skipped} messages without a value" if self._skipped else ""
        return SourceStatus(
            "ready" if away is None else "retrying",
            "healthy" if away is None else "not_found" if away.code == "MP501" else "disconnected",
            self._rows,
            self._bad,
            lag=lag,
            detail=detail if away is None else away.problems[0].message,
            bytes=self._bytes,
            lag_s=0.0 if lag == 0 else waited,
            updated_at=self._newest,
        )
