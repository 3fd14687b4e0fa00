"""Decodes Avro messages and unwraps Debezium's envelope: both become JSON text, parsed like that of any message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.contracts.change_stream import BEFORE, OPERATION
from millpond.contracts.source import DELETED, SourceSpec
from millpond.errors import SourceError
from millpond.kafka import avro
from millpond.kafka.avro import Decoder
from millpond.kafka.debezium import envelope_of, payload_of
from millpond.sources.records.column_types import PROBLEM, SUSPECT, VALUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OPENED, _DECODED = "_mp_envelope", "_mp_avro"


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


def decoder_of(spec: SourceSpec, which: str = avro.VALUE) -> Decoder:
    return Decoder.of(spec.values, spec.base, which)


def values_as_json(rows: DataFrame, spec: SourceSpec) -> DataFrame:
    """Raw records with their values decoded; a value that cannot be decoded is a problem of its record."""
    from pyspark.sql import functions as F

    rows = rows.withColumn(_DECODED, _decoded(F.when(~F.col(DELETED), F.col(VALUE)), spec, avro.VALUE))
    text = F.coalesce(F.col(f"{_DECODED}.text"), F.lit("{}")).cast("binary")
    problem = F.coalesce(F.col(PROBLEM), F.col(f"{_DECODED}.problem"))
    return rows.withColumns({VALUE: text, PROBLEM: problem}).drop(_DECODED)


def key_as_json(key: Column, spec: SourceSpec) -> Column:
    """A message key as a struct of its JSON `text` and the `problem` with it."""
    return _decoded(key, spec, avro.KEY)


def _decoded(value: Column, spec: SourceSpec, which: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    decoder, what = decoder_of(spec, which), "value" if which == avro.VALUE else "key"

    def decode(found: bytes | None) -> tuple[str | None, str | None]:
        try:
            return (None if found is None else decoder.json(bytes(found))), None
        except ValueError as error:
            return None, f"the message {what}: {error}"
        except SourceError as error:
            # Not an error of the message: raised, so that the batch is retried.
            raise RuntimeError(f"{error.code} {error.problems[0].message} {error.hint}") from error

    made = StructType([StructField("text", StringType()), StructField("problem", StringType())])
    return F.udf(decode, made, useArrow=False)(value)
