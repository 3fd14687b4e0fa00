"""Kafka topics as a stream: Spark's own connector reads, and keeps the offsets in its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.source import BAD, DELETED, SourceSpec, SourceStatus
from millpond.errors import Problem
from millpond.kafka.address import address_of
from millpond.kafka.client import connected
from millpond.kafka.counting import counted
from millpond.sources.topics.looking import topics_there
from millpond.sources.topics.reading import reader_options
from millpond.sources.topics.sizes import batch_size
from millpond.sources.topics.starting import starting_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERVAL_S = 1.0
# Taken for the size of a batch when it cannot be told: large, so that it stays in Spark.
ROWS_UNKNOWN = 1_000_000


class KafkaStream:
    """A StreamReader over Kafka; see the contract."""

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        self._spec, self._folder = spec, folder
        self._address = address_of(spec.uri, spec.values)
        self._topics: tuple[str, ...] = ()
        self._seen: Any = None
        self._rows = self._bad = self._skipped = 0

    def require(self, spark: SparkSession) -> None:
        """Find the topics, or make them; MP501 when they are not there, MP506 when nobody answers."""
        self._topics = topics_there(spark, self._address, self._spec.values)

    def stream(self, spark: SparkSession) -> DataFrame:
        options = reader_options(self._spec, self._topics)
        with connected(spark, self._address, self._spec.values) as client:
            options["startingOffsets"] = starting_offsets(client, self._topics, self._spec.values, self._folder)
        return spark.readStream.format("kafka").options(**options).load()

    def poll(self, *, final: bool = False) -> bool:
        return False

    @property
    def interval_s(self) -> float:
        return INTERVAL_S

    def records(self, batch: DataFrame) -> DataFrame:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        from millpond.sources.topics.messages import records_of

        self._seen = Observation()
        counts = {"rows": F.lit(1), "bad": F.col(BAD), "skipped": F.when(F.col(DELETED), F.lit(1))}
        return records_of(batch, self._spec).observe(self._seen, *(F.count(v).alias(n) for n, v in counts.items()))

    def on_driver(self, files: Sequence[Path]) -> pa.Table | None:
        """There is no feed: Spark reads."""
        return None

    def all_good(self, files: Sequence[Path]) -> int | None:
        """There is no feed."""
        return None

    def size_hint(self, batch: DataFrame) -> int:
        size = batch_size(self._folder.parent / "checkpoint")
        return ROWS_UNKNOWN if size is None else size

    def originals(self, batch: DataFrame, records: pa.Table) -> list[bytes | None]:
        from millpond.sources.topics.letters import originals

        return originals(batch, records)

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        from millpond.sources.topics.letters import again

        return again(self._spec, spark, letters)

    def committed(self, batch_id: int) -> None:
        if self._seen is not None:
            rows, bad, skipped = counted(self._seen, "rows", "bad", "skipped")
            self._rows, self._bad, self._skipped = self._rows + rows, self._bad + bad, self._skipped + skipped
            self._seen = None

    def status(self) -> SourceStatus:
        detail = f"{self._skipped} messages without a value" if self._skipped else ""
        return SourceStatus(rows=self._rows, bad_records=self._bad, detail=detail)

    @property
    def given(self) -> None:
        return None

    def problems(self) -> list[Problem]:
        return []
