"""The plain way: Structured Streaming as somebody who knows it writes it, for bench/flows.py. Prints seconds or ms."""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

# Queries side by side, how many batches of each are measured, and how long they are waited for.
COUNTS = (5, 10, 20, 40)
BATCHES = 3
PATIENCE_S = 20.0
# How often a query over many rows is asked for its progress, as in flows.py.
LOOK_S = 0.02
SCHEMA = "id BIGINT, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), ts TIMESTAMP"


def session() -> SparkSession:
    """As somebody who knows Spark sets it up on one machine: as many shuffle partitions as cores."""
    cores = os.cpu_count() or 1
    builder = SparkSession.builder.master("local[*]").appName("plain").config("spark.driver.memory", "4g")
    builder = builder.config("spark.sql.shuffle.partitions", cores).config("spark.sql.session.timeZone", "UTC")
    return builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()


def users(spark: SparkSession) -> DataFrame:
    """The table of the join, held in memory."""
    found = spark.range(100_000).selectExpr("concat('u', id) AS user_id", "'x' AS name", "'GOLD' AS tier").cache()
    found.count()
    return found


def events(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of events."""
    (folder / "plain-in").mkdir(exist_ok=True)
    return spark.readStream.schema(SCHEMA).json(str(folder / "plain-in"))


def join(spark: SparkSession, folder: Path) -> float:
    """Seconds to join every event with a table that is read once and broadcast, file to file."""
    rows = events(spark, folder).join(F.broadcast(users(spark)), "user_id", "left")
    return timed(rows.writeStream.format("json").option("path", str(folder / "plain-out")), folder)


def join_each(spark: SparkSession, folder: Path) -> float:
    """The same by foreachBatch, which is what it takes to read the table anew for every batch."""
    table = users(spark)

    def write(batch: DataFrame, number: int) -> None:
        batch.join(F.broadcast(table), "user_id", "left").write.mode("append").json(str(folder / "plain-each"))

    return timed(events(spark, folder).writeStream.foreachBatch(write), folder)


def aggregate(spark: SparkSession, folder: Path) -> float:
    """Seconds to keep COUNT and SUM of every user in Spark's state store, the changed groups taken and dropped."""
    rows = events(spark, folder).groupBy("user_id").agg(F.count("*").alias("n"), F.sum("price").alias("price"))
    return timed(rows.writeStream.outputMode("update").foreachBatch(_drop), folder)


def window(spark: SparkSession, folder: Path) -> float:
    """Seconds to keep the average price of every symbol and minute."""
    rows = events(spark, folder).withWatermark("ts", "5 seconds").groupBy("symbol", F.window("ts", "1 minute"))
    return timed(rows.agg(F.avg("price")).writeStream.outputMode("update").foreachBatch(_drop), folder)


def _drop(batch: DataFrame, number: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


def timed(writer: Any, folder: Path) -> float:
    """Seconds for the last of the files that our own flow was given, which came in three portions: the query runs, and
    the first two go through it, so that neither is cold."""
    name = f"plain-checkpoint-{time.monotonic_ns()}"
    query: Any = writer.option("checkpointLocation", str(folder / name)).trigger(processingTime="0 seconds").start()
    seconds, wanted = 0.0, 0
    for number in range(3):
        files = sorted((folder / "in").glob(f"{number}-*"))
        wanted += sum(file.read_bytes().count(b"\n") for file in files)
        started = time.monotonic()
        for file in files:
            os.link(file, folder / "plain-in" / file.name)
        while sum(progress["numInputRows"] for progress in query.recentProgress) < wanted:
            if query.exception() is not None:
                raise query.exception()
            time.sleep(LOOK_S)
        seconds = time.monotonic() - started
    query.stop()
    return seconds


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
    return float(statistics.median(durations["triggerExecution"] for durations in ran[len(ran) // 4 :]))


def many(spark: SparkSession, folder: Path) -> list[float]:
    """The median trigger of queries side by side, each counting a few rows, in ms: of 5, then of 10, 20 and 40."""
    queries: list[Any] = []
    batches: list[int] = []
    medians = []
    for count in COUNTS:
        while len(queries) < count:
            queries.append(_counting(spark, folder / f"plain-{len(queries)}", batches))
        _until_all_have(batches, [1] * count)
        before = list(batches)
        _until_all_have(batches, [done + BATCHES for done in before])
        medians.append(statistics.median(ms for q, done in zip(queries, before, strict=True) for ms in _after(q, done)))
    return medians


def _counting(spark: SparkSession, folder: Path, batches: list[int]) -> Any:
    """A query that counts a few rows, and its batches in a place of its own."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    place = len(batches)
    batches.append(0)

    def write(batch: DataFrame, _: int) -> None:
        batch.count()
        batches[place] += 1

    writer: Any = rows.writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", str(folder)).trigger(processingTime="0 seconds").start()


def _until_all_have(batches: list[int], wanted: list[int]) -> None:
    # Counted here: to ask Spark how each query does would cost more than the queries do.
    deadline = time.monotonic() + PATIENCE_S
    while any(done < least for done, least in zip(batches, wanted, strict=True)) and time.monotonic() < deadline:
        time.sleep(0.1)


def _after(query: Any, done: int) -> list[float]:
    """The triggers that came after so many batches."""
    return [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["batchId"] > done]


if __name__ == "__main__":
    spark = session()
    what, folder = sys.argv[1], Path(sys.argv[2])
    single = {f.__name__: f for f in (join, join_each, aggregate, window, floor)}
    figures = many(spark, folder) if what == "many" else [single[what](spark, folder)]
    print(*figures, flush=True)
    # Queries that run are not stopped one by one, which takes as long as all that was measured.
    os._exit(0)
