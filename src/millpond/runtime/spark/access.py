"""How a table reaches Spark: a snapshot is handed over once per table version and kept until the version changes."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from millpond.contracts.table import ReadTable
from millpond.disk import disk_errors, make_folder, open_private
from millpond.runtime.spark.types import to_spark_schema

# Measured (docs/performance.md): above some tens of thousands of rows a Parquet file is faster than createDataFrame.
ROWS_DIRECT_MAX = 40_000
VERSIONS_KEPT = 3
# Files of passing rows that a thread may still read; a statement needs two or three.
PASSING_KEPT = 8

# Rows on the driver, or in Spark.
Relation: TypeAlias = pa.Table | DataFrame


class Exchange:
    """Tables on their way to Spark, shared by all flows of an app: a large snapshot is written once per version."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: dict[str, list[tuple[int, Path]]] = {}
        self._passing: dict[int, deque[Path]] = {}
        self._numbers = itertools.count()

    def frame(self, session: SparkSession, table: ReadTable, *, shared: bool) -> DataFrame:
        """The table as a DataFrame; `shared` when the version is a committed one that other flows may want too."""
        if len(table) <= ROWS_DIRECT_MAX or not shared:
            return arrow_frame(session, table.to_arrow())
        return session.read.parquet(f"file://{self._file(table)}")

    def rows(self, session: SparkSession, rows: pa.Table) -> DataFrame:
        """Rows of no table, needed for one batch: the files of earlier ones go."""
        if rows.num_rows <= ROWS_DIRECT_MAX:
            return arrow_frame(session, rows)
        return session.read.parquet(f"file://{self._passing_file(rows)}")

    def _passing_file(self, rows: pa.Table) -> Path:
        make_folder(self._folder)
        with self._lock:
            mine = self._passing.setdefault(threading.get_ident(), deque())
            path = self._folder / f"rows-{next(self._numbers)}.parquet"
            mine.append(path)
            if len(mine) > PASSING_KEPT:
                mine.popleft().unlink(missing_ok=True)
        _write(rows, path)
        return path

    def _file(self, table: ReadTable) -> Path:
        with self._lock:
            files = self._files.setdefault(table.name.lower(), [])
            for version, path in files:
                if version == table.version:
                    return path
            make_folder(self._folder)
            path = self._folder / f"{_plain(table.name.lower())}-{table.version}.parquet"
            _write(table.to_arrow(), path)
            files.append((table.version, path))
            while len(files) > VERSIONS_KEPT:
                files.pop(0)[1].unlink(missing_ok=True)
            return path


class Views:
    """The temporary views of one Spark session, which is started when the first is asked for; a table of unchanged
    version is not registered again."""

    def __init__(self, spark: Callable[[], SparkSession], exchange: Exchange, prefix: str) -> None:
        self.spark = spark
        self._exchange = exchange
        self._prefix = prefix
        self._versions: dict[str, int] = {}
        self._made: set[str] = set()

    @property
    def session(self) -> SparkSession:
        return self.spark()

    def table(self, table: ReadTable, *, changed: bool = False) -> str:
        """The view of a table; `changed` when a transaction's own changes are in it, which no version number tells."""
        view = self._name(table.name)
        self._made.add(view)
        if changed or self._versions.get(view) != table.version:
            self._exchange.frame(self.session, table, shared=not changed).createOrReplaceTempView(view)
            self._versions[view] = -1 if changed else table.version
        return view

    def frame(self, name: str, frame: DataFrame) -> str:
        """A view of a DataFrame."""
        view = self._name(name)
        self._versions.pop(view, None)
        self._made.add(view)
        frame.createOrReplaceTempView(view)
        return view

    def in_spark(self, relation: Relation) -> DataFrame:
        """Rows as a DataFrame; those of the driver in one piece, so that they keep their order."""
        if isinstance(relation, DataFrame):
            return relation
        if relation.num_rows > ROWS_DIRECT_MAX:
            return self._exchange.rows(self.session, relation)
        return arrow_frame(self.session, relation).coalesce(1)

    def _name(self, name: str) -> str:
        return f"{self._prefix}_{_plain(name.lower())}"

    def drop(self) -> None:
        """Remove them all: a session that the user brought is left as it was."""
        for view in self._made:
            self.session.catalog.dropTempView(view)
        self._made.clear()
        self._versions.clear()


def _write(rows: pa.Table, path: Path) -> None:
    with disk_errors(path), os.fdopen(open_private(path), "wb") as file:
        pq.write_table(rows, file, compression="none", use_dictionary=False, write_statistics=False)


def _plain(name: str) -> str:
    """A name that Spark takes for a temporary view; two names never become one."""
    if name.isascii() and name.replace("_", "a").isalnum():
        return name
    return "x" + name.encode().hex()


def arrow_frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    """Arrow rows as a DataFrame of exactly their types, in their order."""
    whole = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return session.createDataFrame(whole, to_spark_schema(rows.schema))
