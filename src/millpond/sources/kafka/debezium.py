"""Unwraps messages in Debezium's envelope: the value becomes the row, which is then parsed like any JSON message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.contracts.change_stream import BEFORE, OPERATION
from millpond.contracts.source import DELETED
from millpond.kafka.debezium import envelope_of, payload_of
from millpond.sources.records.columns import PROBLEM, SUSPECT, VALUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OPENED = "_mp_envelope"


def unwrapped(rows: DataFrame) -> DataFrame:
    """Raw records whose values are rows, with the operation and the text of the row before. A delete has its row too,
    so that a stream can show it, and deletes its key."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    def opened(value: bytes | None) -> tuple[str | None, ...]:
        if value is None:
            return None, None, None, None
        try:
            found = envelope_of(bytes(value))
        except ValueError as error:
            return None, None, None, f"the value is not Debezium's envelope: {error}"
        return found.row, found.before, found.operation, None

    made = StructType([StructField(name, StringType()) for name in ("row", "before", "op", "problem")])
    rows = rows.withColumn(_OPENED, F.udf(opened, made, useArrow=False)(F.when(~F.col(DELETED), F.col(VALUE))))
    is_delete = F.coalesce(F.col(f"{_OPENED}.op") == "delete", F.lit(False))
    return rows.withColumns(
        {
            VALUE: F.coalesce(F.col(f"{_OPENED}.row"), F.lit("{}")).cast("binary"),
            # Unwrapping has verified that it is one object.
            SUSPECT: F.lit(False),
            PROBLEM: F.coalesce(F.col(PROBLEM), F.col(f"{_OPENED}.problem")),
            DELETED: F.col(DELETED) | is_delete,
            OPERATION: F.col(f"{_OPENED}.op"),
            BEFORE: F.col(f"{_OPENED}.before"),
        }
    ).drop(_OPENED)


def key_payload(key: Column) -> Column:
    """The text of message keys without their schemas; NULL for a key that is not text."""
    from pyspark.sql import functions as F

    def opened(found: bytes | None) -> str | None:
        try:
            return None if found is None else payload_of(bytes(found))
        except ValueError:
            return None

    return F.udf(opened, "string", useArrow=False)(key)
