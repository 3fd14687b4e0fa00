"""Records that Arrow could not read, put on disk for Spark to parse with all its cores."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.disk import make_folder
from millpond.sources.ddl import table_ddl
from millpond.sources.feed import FeedWriter
from millpond.sources.files.contents import Chunk, Contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rows per spooled file.
SPOOL_ROWS = 1_000_000


class Spool:
    """The text chunks of one load; what an earlier load left is removed."""

    def __init__(self, folder: Path, contents: Contents) -> None:
        self._folder, self._contents = folder, contents
        self._writer: FeedWriter | None = None
        self._files = 0
        shutil.rmtree(folder, ignore_errors=True)

    @property
    def is_empty(self) -> bool:
        return self._files == 0

    def write(self, chunk: Chunk) -> None:
        if self._writer is None:
            make_folder(self._folder)
            self._writer = FeedWriter(self._folder / f"{self._files:06d}.parquet")
            self._files += 1
        self._writer.write(chunk.batch)
        if self._writer.rows >= SPOOL_ROWS:
            self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def merged_into(self, records: pa.Table, spark: SparkSession) -> pa.Table:
        """The records that were parsed before and those of the spool, in stream order."""
        self._close()
        fed = spark.read.schema(table_ddl(self._contents.schema)).parquet(f"file://{self._folder}")
        others = self._contents.records(fed, text=True).toArrow()
        both = pa.concat_tables([records, others.select(records.column_names).cast(records.schema)])
        shutil.rmtree(self._folder, ignore_errors=True)
        return both.sort_by([(ORDER_MAJOR, "ascending"), (ORDER_MINOR, "ascending")])
