"""The transfer of rows to Spark: types, and the snapshot of a table, which is written once per version."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql import types as spark

from millpond.contracts.table import ReadTable, TableFiles
from millpond.disk import disk_errors, make_folder, open_beside
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema

_SIMPLE: tuple[tuple[pa.DataType, spark.DataType], ...] = (
    (pa.bool_(), spark.BooleanType()),
    (pa.int8(), spark.ByteType()),
    (pa.int16(), spark.ShortType()),
    (pa.int32(), spark.IntegerType()),
    (pa.int64(), spark.LongType()),
    (pa.float32(), spark.FloatType()),
    (pa.float64(), spark.DoubleType()),
    (pa.string(), spark.StringType()),
    (pa.binary(), spark.BinaryType()),
    (pa.date32(), spark.DateType()),
    (TIMESTAMP, spark.TimestampType()),
    (TIMESTAMP_NTZ, spark.TimestampNTZType()),
    (pa.null(), spark.NullType()),
)
_TO_SPARK = dict(_SIMPLE)
_TO_ARROW = {type(of_spark): of_arrow for of_arrow, of_spark in _SIMPLE}


def to_spark_type(type_: pa.DataType) -> spark.DataType:
    """The Spark type of an Arrow type."""
    if type_ in _TO_SPARK:
        return _TO_SPARK[type_]
    if pa.types.is_decimal(type_):
        return spark.DecimalType(type_.precision, type_.scale)
    if pa.types.is_map(type_):
        return spark.MapType(to_spark_type(type_.key_type), to_spark_type(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return spark.ArrayType(to_spark_type(type_.value_type))
    if pa.types.is_struct(type_):
        return spark.StructType([spark.StructField(f.name, to_spark_type(f.type)) for f in type_])
    if pa.types.is_timestamp(type_):
        return spark.TimestampType() if type_.tz else spark.TimestampNTZType()
    if pa.types.is_large_string(type_):
        return spark.StringType()
    raise AssertionError(f"no Spark type for {type_}")


def to_arrow_type(type_: spark.DataType) -> pa.DataType:
    """The Arrow type of a Spark type."""
    if type(type_) in _TO_ARROW:
        return _TO_ARROW[type(type_)]
    if isinstance(type_, spark.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, spark.MapType):
        return pa.map_(to_arrow_type(type_.keyType), to_arrow_type(type_.valueType))
    if isinstance(type_, spark.ArrayType):
        return pa.list_(to_arrow_type(type_.elementType))
    if isinstance(type_, spark.StructType):
        return pa.struct([pa.field(f.name, to_arrow_type(f.dataType)) for f in type_])
    if isinstance(type_, spark.DayTimeIntervalType):
        return pa.duration("us")
    return pa.string()


def to_spark_schema(schema: pa.Schema) -> spark.StructType:
    """A schema with all fields nullable: constraints are checked by us, not by Spark."""
    return spark.StructType([spark.StructField(f.name, to_spark_type(f.type), True) for f in schema])


def from_spark_schema(schema: spark.StructType) -> Schema:
    """The columns of a Spark query, as a Schema."""
    return Schema.of(Column(f.name, to_arrow_type(f.dataType)) for f in schema)


# Rows, wherever they are: on the driver, or in Spark.
Dataset: TypeAlias = pa.Table | DataFrame


def schema_of(relation: Dataset) -> Schema:
    """The columns of rows, wherever they are."""
    if isinstance(relation, DataFrame):
        return from_spark_schema(relation.schema)
    return Schema.of(Column(field.name, field.type) for field in relation.schema)


# Measured (docs/performance.md): above some tens of thousands of rows a Parquet file is faster than createDataFrame.
ROWS_DIRECT_MAX = 40_000
VERSIONS_KEPT = 3
# The names of columns with keys whose rows in files are not to be read.
HIDDEN = "__mp_hidden"
# Files of transferred rows that a thread may still read; a statement needs two or three.
PASSING_KEPT = 8


class Exchange:
    """Transfers tables to Spark for all flows of an app: a large snapshot is written once per version."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: dict[str, list[tuple[int, Path]]] = {}
        self._passing: dict[int, deque[Path]] = {}
        self._numbers = itertools.count()

    def frame(self, session: SparkSession, table: ReadTable, *, shared: bool) -> DataFrame:
        """The table as a DataFrame; `shared`: the version is committed, so other flows can use the same snapshot."""
        if len(table) <= ROWS_DIRECT_MAX or not shared:
            return arrow_frame(session, table.to_arrow())
        files = table.files()
        if files is not None:
            return self._of_files(session, files, table.schema)
        return session.read.parquet(f"file://{self._file(table)}")

    def _of_files(self, session: SparkSession, files: TableFiles, schema: Schema) -> DataFrame:
        """A table that Spark reads itself: only what its files do not have passes through the driver."""
        names, beside = list(schema.names), arrow_frame(session, files.rows)
        if not files.paths:
            return beside.select(*map(column, names))
        read = session.read.schema(beside.schema).parquet(*files.paths)
        if files.hidden.num_rows:
            marks = [f"{HIDDEN}{n}" for n in range(len(files.key))]
            hidden = arrow_frame(session, files.hidden.rename_columns(marks))
            equal = [column(name).eqNullSafe(column(mark)) for name, mark in zip(files.key, marks, strict=True)]
            read = read.join(hidden, reduce(and_, equal), "left_anti").unionByName(beside)
        return read.select(*map(column, names))

    def rows(self, session: SparkSession, rows: pa.Table) -> DataFrame:
        """Rows that belong to no table, for one batch; files of earlier rows are removed."""
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
    """The temporary views of one Spark session, which is started with the first view; a table whose version has not
    changed is not registered again."""

    def __init__(self, spark: Callable[[], SparkSession], exchange: Exchange, prefix: str) -> None:
        self.spark = spark
        self._exchange = exchange
        self._prefix = prefix
        self._versions: dict[str, int] = {}
        self._made: set[str] = set()
        # The number of uses of Spark through these views; see engine_use.
        self.asked = 0

    @property
    def session(self) -> SparkSession:
        self.asked += 1
        return self.spark()

    def table(self, table: ReadTable, *, changed: bool = False) -> str:
        """The view of a table; `changed` when it includes a transaction's own changes, which have no version number."""
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

    def in_spark(self, relation: Dataset) -> DataFrame:
        """Rows as a DataFrame; rows of the driver in one partition, so that they keep their order."""
        if isinstance(relation, DataFrame):
            return relation
        if relation.num_rows > ROWS_DIRECT_MAX:
            return self._exchange.rows(self.session, relation)
        return arrow_frame(self.session, relation).coalesce(1)

    def _name(self, name: str) -> str:
        return f"{self._prefix}_{_plain(name.lower())}"

    def drop(self) -> None:
        """Remove all views, so that a session of the user is left unchanged."""
        for view in self._made:
            self.session.catalog.dropTempView(view)
        self._made.clear()
        self._versions.clear()


def _write(rows: pa.Table, path: Path) -> None:
    with disk_errors(path), os.fdopen(open_beside(path), "wb") as file:
        pq.write_table(rows, file, compression="none", use_dictionary=False, write_statistics=False)


def column(name: str) -> SparkColumn:
    """A column of any name."""
    return functions.col(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _plain(name: str) -> str:
    """A valid name for a temporary view; different names remain different."""
    if name.isascii() and name.replace("_", "a").isalnum():
        return name
    return "x" + name.encode().hex()


def arrow_frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    """Arrow rows as a DataFrame with the same types and order."""
    whole = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return session.createDataFrame(whole, to_spark_schema(rows.schema))
