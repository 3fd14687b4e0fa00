"""Decodes Avro messages to JSON text, which is then parsed like that of any other message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.contracts.source import DELETED, SourceSpec
from millpond.errors import SourceError
from millpond.kafka.avro import KEY, VALUE, Decoder
from millpond.sources.records import columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DECODED = "_mp_avro"


def decoder_of(spec: SourceSpec, which: str = VALUE) -> Decoder:
    return Decoder.of(spec.values, spec.base, which)


def values_as_json(rows: DataFrame, spec: SourceSpec) -> DataFrame:
    """Raw records with their values decoded; a value that cannot be decoded is a problem of its record."""
    from pyspark.sql import functions as F

    rows = rows.withColumn(_DECODED, _decoded(F.when(~F.col(DELETED), F.col(columns.VALUE)), spec, VALUE))
    text = F.coalesce(F.col(f"{_DECODED}.text"), F.lit("{}")).cast("binary")
    problem = F.coalesce(F.col(columns.PROBLEM), F.col(f"{_DECODED}.problem"))
    return rows.withColumns({columns.VALUE: text, columns.PROBLEM: problem}).drop(_DECODED)


def key_as_json(key: Column, spec: SourceSpec) -> Column:
    """A message key as a struct of its JSON `text` and the `problem` with it."""
    return _decoded(key, spec, KEY)


def _decoded(value: Column, spec: SourceSpec, which: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    decoder, what = decoder_of(spec, which), "value" if which == VALUE else "key"

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
