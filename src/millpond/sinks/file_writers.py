"""Writes rows to files with Spark: in one job, in order, so that every value can be read back unchanged."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType, TimestampNTZType, TimestampType

# For nested values, where the short form of the top level is not possible.
_NESTED_TIME = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_JSON = {"ignoreNullFields": "false", "timeZone": "UTC", **_NESTED_TIME}
# NULL is an empty field, the empty string a pair of quotes; blanks are part of a value.
_CSV = {
    "header": "true",
    "nullValue": "",
    "emptyValue": '""',
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
WRITERS = {"jsonl": ("json", _JSON), "json": ("json", _JSON), "csv": ("csv", _CSV), "parquet": ("parquet", {})}


def write_files(rows: DataFrame, folder: Path, format_: str) -> tuple[int, list[Path]]:
    """Write rows to a new folder; returns their number and the files that are not empty, in order."""
    name, options = WRITERS[format_]
    counted = Observation()
    shaped = rows.observe(counted, F.count(F.lit(1)).alias("rows"))
    if format_ != "parquet":
        shaped = shaped.select(*[as_text(rows[quoted(f.name)], f.dataType, format_).alias(f.name) for f in rows.schema])
    shaped.write.format(name).options(**options).save(f"file://{folder}")
    count = int(counted.get["rows"])
    files = sorted(file for file in folder.iterdir() if file.name.startswith("part-"))
    return count, [file for file in files if count and _has_rows(file, format_)]


def json_options() -> dict[str, str]:
    """Spark's options for JSON, the same for files and messages."""
    return dict(_JSON)


def as_text(column: Column, type_: DataType, format_: str) -> Column:
    """A column for text formats: times in ISO 8601 and UTC, in CSV nested values as JSON."""
    if isinstance(type_, TimestampType):
        in_utc = F.to_utc_timestamp(column, F.current_timezone())
        return F.concat(F.replace(in_utc.cast("string"), F.lit(" "), F.lit("T")), F.lit("Z"))
    if isinstance(type_, TimestampNTZType):
        return F.replace(column.cast("string"), F.lit(" "), F.lit("T"))
    if format_ == "csv" and isinstance(type_, StructType | ArrayType | MapType):
        return F.to_json(column, _JSON)
    if format_ == "csv" and isinstance(type_, BinaryType):
        return F.base64(column)
    return column


def _has_rows(file: Path, format_: str) -> bool:
    """Whether a part contains rows: Spark writes an empty first one, in CSV with a header."""
    if format_ == "parquet":
        return int(pq.read_metadata(file).num_rows) > 0
    if format_ != "csv":
        return file.stat().st_size > 0
    with file.open("rb") as lines:
        next(lines, None)
        return next(lines, None) is not None


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"
