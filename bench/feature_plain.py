"""The features of feature_cases.py in plain Structured Streaming, as an expert would set it up: tables in memory and
broadcast, as many partitions as cores, JSON lines from a folder, one file a trigger."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from feature_cases import Case, Plain
from feature_rows import rounds, rows, tables
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from timing import jobs_so_far

PATIENCE_S = 300.0
SCHEMAS = {
    "events": "id BIGINT, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), note STRING, ts TIMESTAMP",
    "quotes": "symbol STRING, bid DECIMAL(12,2), ts TIMESTAMP",
    "visits": "id BIGINT, place STRUCT<city: STRING, zip: INT>, tags ARRAY<STRING>, attributes MAP<STRING, STRING>",
}


def trigger_ms(progress: list[Any]) -> list[float]:
    """How long Spark took for each trigger that ran a batch, all of it counted."""
    return [p["durationMs"]["triggerExecution"] for p in progress if "addBatch" in p["durationMs"]]


def session() -> SparkSession:
    cores = str(os.cpu_count())
    builder: Any = SparkSession.builder.master("local[*]").appName("plain").config("spark.driver.memory", "4g")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def plain_figures(cases: Sequence[Case], sizes: Sequence[int]) -> Iterator[tuple[str, dict[str, float] | Exception]]:
    """The figures of every feature that plain Spark has."""
    spark = session()
    for name, data in tables().items():
        frame: Any = spark.createDataFrame(data)
        frame.cache().createOrReplaceTempView(name)
        frame.count()
    root = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    for case in cases:
        if case.plain is None:
            continue
        try:
            for found in _figures_of(spark, root / case.name, case, case.plain, sizes):
                yield case.name, found
        except (PySparkException, TimeoutError) as error:
            yield case.name, error
    spark.stop()
    shutil.rmtree(root, ignore_errors=True)


def _figures_of(
    spark: SparkSession, folder: Path, case: Case, plain: Plain, sizes: Sequence[int]
) -> Iterator[dict[str, float]]:
    query, first, files = _start(spark, folder, case.streams, plain), 0, 0
    try:
        for count in sizes:
            warm, measured = rounds(count)
            taken: list[list[Any]] = []
            for number in range(warm + measured):
                if number == warm:
                    jobs = jobs_so_far(spark)
                done = len(_ran(query))
                _send(folder, case, first, count, number)
                first += count
                files += 1
                _until_taken(query, files)
                taken.append(_ran(query)[done:])
            # A round may be several triggers: two files of two streams, and one without rows that closes windows.
            batches = [sum(p["durationMs"]["addBatch"] for p in progress) for progress in taken[warm:]]
            named = {
                "ms": statistics.median(batches),
                "trigger_ms": statistics.median(sum(trigger_ms(progress)) for progress in taken[warm:]),
                "jobs": (jobs_so_far(spark) - jobs) / measured,
            }
            yield {f"{case.name}_{count}_{what}": value for what, value in named.items()}
    finally:
        query.stop()


def _start(spark: SparkSession, folder: Path, streams: Sequence[str], plain: Plain) -> Any:
    """The running query of a feature."""
    read: dict[str, DataFrame] = {}
    for stream in streams:
        (folder / stream).mkdir(parents=True)
        read[stream] = (
            spark.readStream.schema(SCHEMAS[stream]).option("maxFilesPerTrigger", 1).json(f"{folder / stream}")
        )
        if "ts TIMESTAMP" in SCHEMAS[stream] and plain.mode:
            read[stream] = read[stream].withWatermark("ts", "5 seconds")
        read[stream].createOrReplaceTempView(stream)
    rows_read = spark.sql(plain.select) if plain.mode else read[streams[0]]

    def write(batch: DataFrame, _: int) -> None:
        asked = plain.then if plain.mode else plain.select
        if asked:
            batch.createOrReplaceTempView("grouped" if plain.mode else streams[0])
            batch = batch.sparkSession.sql(asked)
        writer = batch.write.mode("append")
        writer.json(f"{folder}/out") if plain.files else writer.format("noop").save()

    writer = rows_read.writeStream.foreachBatch(write).outputMode(plain.mode or "append")
    return writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(processingTime="0 seconds").start()


def _send(folder: Path, case: Case, first: int, count: int, number: int) -> None:
    """One file for each stream, written elsewhere and moved in whole."""
    made = []
    for stream in case.streams:
        found = rows(stream, first, count, late=case.late, bad=case.bad)
        written = folder / f"{stream}.tmp"
        written.write_text("".join(json.dumps(row) + "\n" for row in found))
        made.append((written, folder / stream / f"{count}-{number}.json"))
    for written, place in made:
        written.rename(place)


def _ran(query: Any) -> list[Any]:
    """The triggers that ran a batch."""
    return [progress for progress in query.recentProgress if "addBatch" in progress["durationMs"]]


def _until_taken(query: Any, files: int) -> None:
    """Return when every stream has had so many files: rows are counted once for each time that a query reads them."""
    deadline = time.monotonic() + PATIENCE_S
    while not (ran := _ran(query)) or any(_files_taken(source) < files for source in ran[-1]["sources"]):
        if query.exception() is not None:
            raise query.exception()
        if time.monotonic() > deadline:
            raise TimeoutError("the query did not take the rows in time")
        time.sleep(0.005)


def _files_taken(source: Any) -> int:
    """How many files a stream has had: its offset is JSON in a text, null before the first."""
    offset = json.loads(source["endOffset"] or "null")
    return 0 if offset is None else int(offset["logOffset"]) + 1
