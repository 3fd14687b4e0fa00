"""The plain way: Structured Streaming with Spark's default settings, for bench/flows.py. Prints seconds or ms."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id BIGINT, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), ts TIMESTAMP"


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[*]").appName("plain").config("spark.driver.memory", "4g")
    return builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()


def join(spark: SparkSession, folder: Path) -> float:
    """Seconds to join every event with a table read once, file to file; the session is warmed up first."""
    users = spark.range(100_000).selectExpr("concat('u', id) AS user_id", "'x' AS name", "'GOLD' AS tier").cache()
    users.count()
    spark.read.schema(SCHEMA).json(str(folder / "in")).limit(10_000).join(users, "user_id", "left").count()
    events = spark.readStream.schema(SCHEMA).json(str(folder / "in"))
    rows = events.join(users, "user_id", "left")
    started = time.monotonic()
    writer = rows.writeStream.format("json").option("path", str(folder / "plain-out"))
    query = writer.option("checkpointLocation", str(folder / "plain-checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return time.monotonic() - started


def floor(spark: SparkSession, folder: Path) -> float:
    """The median trigger of an empty foreachBatch, in ms."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    times: list[float] = []

    def nothing(batch: DataFrame, number: int) -> None:
        times.append(number)

    query: Any = rows.writeStream.foreachBatch(nothing)
    query = query.option("checkpointLocation", str(folder / "plain-floor")).trigger(processingTime="0 seconds").start()
    while len(times) < 40:
        time.sleep(0.05)
    ran = [p["durationMs"] for p in query.recentProgress if "addBatch" in p["durationMs"]]
    query.stop()
    return statistics.median(durations["triggerExecution"] for durations in ran[len(ran) // 4 :])


def many(spark: SparkSession, folder: Path, count: int) -> float:
    """The median trigger of as many queries side by side, each writing a few rows, in ms."""
    queries = []
    for number in range(count):
        rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()

        def write(batch: DataFrame, _: int) -> None:
            batch.count()

        writer: Any = rows.writeStream.foreachBatch(write)
        where = str(folder / f"plain-{count}-{number}")
        queries.append(writer.option("checkpointLocation", where).trigger(processingTime="0 seconds").start())
    deadline = time.monotonic() + 600
    while min(len(_ran(query)) for query in queries) < 6 and time.monotonic() < deadline:
        time.sleep(0.2)
    times = [ms for query in queries for ms in _ran(query)[1:]]
    for query in queries:
        query.stop()
    return statistics.median(times)


def _ran(query: Any) -> list[float]:
    return [p["durationMs"]["triggerExecution"] for p in query.recentProgress if "addBatch" in p["durationMs"]]


if __name__ == "__main__":
    spark = session()
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what.startswith("many"):
        print(many(spark, folder, int(what.removeprefix("many"))))
    else:
        print({"join": join, "floor": floor}[what](spark, folder))
    spark.stop()
