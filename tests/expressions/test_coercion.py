"""Which types fit each other: asked of Spark for every pair of simple types."""

from typing import Any

import pyarrow as pa
import pytest

from millpond.expressions.coercion import assignable, common, comparable, wider_decimal
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name

TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(12, 2),
    pa.decimal128(38, 10),
    pa.string(),
    pa.binary(),
    pa.date32(),
    TIMESTAMP,
    TIMESTAMP_NTZ,
    pa.list_(pa.int32()),
    pa.list_(pa.int64()),
    pa.struct([("x", pa.int32())]),
    pa.map_(pa.string(), pa.int32()),
]
PAIRS = [(left, right) for left in TYPES for right in TYPES]


def analyses(spark: Any, query: str) -> bool:
    try:
        spark.sql(query).schema  # noqa: B018
    except Exception:
        return False
    return True


def explained(spark: Any, statement: str) -> str:
    try:
        return str(spark.sql(f"EXPLAIN {statement}").collect()[0][0])
    except Exception as error:
        return str(error)


@pytest.mark.spark
def test_comparable_is_what_spark_compares(spark: Any) -> None:
    columns = ", ".join(f"CAST(NULL AS {type_name(t)}) AS c{place}" for place, t in enumerate(TYPES))
    spark.sql(f"SELECT {columns}").createOrReplaceTempView("typed")
    for left, right in PAIRS:
        text = f"c{TYPES.index(left)} = c{TYPES.index(right)}"
        expected = analyses(spark, f"SELECT {text} FROM typed")
        assert comparable(left, right) == expected, f"{type_name(left)} = {type_name(right)}"


@pytest.mark.spark
def test_the_common_type_is_sparks_coalesce(spark: Any) -> None:
    columns = ", ".join(f"CAST(NULL AS {type_name(t)}) AS c{place}" for place, t in enumerate(TYPES))
    spark.sql(f"SELECT {columns}").createOrReplaceTempView("typed")
    for left, right in PAIRS:
        query = f"SELECT coalesce(c{TYPES.index(left)}, c{TYPES.index(right)}) AS x FROM typed"
        expected = spark.sql(query).schema[0].dataType.simpleString() if analyses(spark, query) else "?"
        found = type_name(common([left, right])).lower().replace(", ", ",").replace(": ", ":")
        assert found == expected, f"{type_name(left)} and {type_name(right)}"


@pytest.mark.spark
def test_assignable_is_what_spark_stores(spark: Any) -> None:
    for target in TYPES:
        spark.sql(f"CREATE TABLE stored (c {type_name(target)}) USING parquet")
        try:
            for source in TYPES:
                said = explained(spark, f"INSERT INTO stored SELECT CAST(NULL AS {type_name(source)}) AS c")
                expected = said.startswith("== Physical Plan")
                assert assignable(source, target) == expected, f"{type_name(source)} into {type_name(target)}: {said}"
        finally:
            spark.sql("DROP TABLE stored")


def test_decimals_beyond_38_digits_keep_the_whole_ones() -> None:
    assert wider_decimal(pa.decimal128(38, 0), pa.decimal128(38, 38)) == pa.decimal128(38, 0)
    assert wider_decimal(pa.decimal128(12, 2), pa.decimal128(10, 5)) == pa.decimal128(15, 5)
