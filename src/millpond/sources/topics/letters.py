"""Messages that were put aside: their values found again in a batch, and sent again as records."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.contracts.source import HIDDEN_OFFSET, HIDDEN_PARTITION, HIDDEN_SOURCE, SourceSpec
from millpond.errors import SourceError
from millpond.kafka.address import address_of
from millpond.sources.topics.messages import records_of

PLACE = (HIDDEN_SOURCE.name, HIDDEN_PARTITION.name, HIDDEN_OFFSET.name)
LETTER = ("raw", "partition", "position")
# What a letter does not hold, in the types of Kafka's own columns.
NOTHING = {"key": "binary", "timestamp": "timestamp", "headers": "array<struct<key: string, value: binary>>"}


def originals(batch: DataFrame, records: pa.Table) -> list[bytes | None]:
    """The values of some messages of a batch."""
    places = list(zip(*(records[name].to_pylist() for name in PLACE), strict=True))
    wanted = batch.where(F.col("offset").isin([offset for _, _, offset in places]))
    rows = wanted.select("topic", F.col("partition").cast("string"), "offset", "value").toArrow()
    topic, partition, offset, value = (column.to_pylist() for column in rows.columns)
    found = dict(zip(zip(topic, partition, offset, strict=True), value, strict=True))
    return [found.get(place) for place in places]


def again(spec: SourceSpec, spark: SparkSession, letters: pa.Table) -> DataFrame:
    """Values as messages without keys; where the key or the topic matters they cannot be sent again."""
    address = address_of(spec.uri, spec.values)
    if spec.values.get("key") or len(address.topics) != 1 or address.pattern is not None:
        message = f"A message of '{spec.shown}' cannot be sent again: a dead letter holds its value only."
        raise SourceError("MP512", message, hint="Produce it to its topic again, with its key.")
    places = zip(*(letters[name].to_pylist() for name in LETTER), strict=True)
    rows = [(address.topics[0], raw, int(partition), int(offset)) for raw, partition, offset in places]
    batch = spark.createDataFrame(rows, "topic string, value binary, partition int, offset bigint")
    return records_of(batch.selectExpr("*", *(f"CAST(NULL AS {t}) `{n}`" for n, t in NOTHING.items())), spec)
