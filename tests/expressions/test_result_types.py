"""The types of expressions, as Spark 4.2 gives them under ANSI rules."""

import pyarrow as pa
import pytest
from sqlglot import exp

from millpond.expressions.result_types import assignable, comparable, family, infer
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name
from millpond.sql.parser import parse_expression

COLUMNS = {
    "i1": pa.int8(),
    "i2": pa.int16(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "f4": pa.float32(),
    "f8": pa.float64(),
    "d": pa.decimal128(12, 2),
    "e": pa.decimal128(38, 10),
    "s": pa.large_string(),
    "b": pa.bool_(),
    "dt": pa.date32(),
    "ts": TIMESTAMP,
    "a": pa.list_(pa.int32()),
    "m": pa.map_(pa.string(), pa.int32()),
    "st": pa.struct([("x", pa.int32())]),
}


class Columns:
    def resolve(self, column: exp.Column) -> pa.DataType | None:
        return COLUMNS.get(column.name.lower())


def inferred(text: str) -> str:
    return type_name(infer(parse_expression(text), Columns()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "INT"),
        ("-2147483648", "INT"),
        ("2147483648", "BIGINT"),
        ("10000000000", "BIGINT"),
        ("12345678901234567890", "DECIMAL(20,0)"),
        ("1.5", "DECIMAL(2,1)"),
        ("0.05", "DECIMAL(2,2)"),
        ("1e0", "DOUBLE"),
        ("10L", "BIGINT"),
        ("'x'", "STRING"),
        ("TRUE", "BOOLEAN"),
        ("NULL", "VOID"),
        ("DATE '2024-01-01'", "DATE"),
        ("TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP"),
    ],
)
def test_a_literal_has_the_type_of_what_is_written(text: str, expected: str) -> None:
    assert inferred(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i1 + i2", "SMALLINT"),
        ("i4 + i8", "BIGINT"),
        ("i4 / i4", "DOUBLE"),
        ("i4 div i4", "BIGINT"),
        ("i4 + f4", "DOUBLE"),
        ("f4 + f4", "FLOAT"),
        ("d + 1.5", "DECIMAL(13,2)"),
        ("d + i4", "DECIMAL(13,2)"),
        ("d * 2", "DECIMAL(14,2)"),
        ("d * i4", "DECIMAL(23,2)"),
        ("d / d", "DECIMAL(27,15)"),
        ("d % 7", "DECIMAL(3,2)"),
        ("e * e", "DECIMAL(38,6)"),
        ("e / e", "DECIMAL(38,6)"),
        ("e + CAST(1 AS DECIMAL(38,20))", "DECIMAL(38,9)"),
        ("d + f8", "DOUBLE"),
        ("'1' + 1", "BIGINT"),
        ("'1' + 1.5", "DOUBLE"),
        ("dt + 1", "DATE"),
        ("dt + INTERVAL 1 MONTH", "DATE"),
        ("dt + INTERVAL 1 HOUR", "TIMESTAMP"),
        ("ts - INTERVAL 5 SECONDS", "TIMESTAMP"),
        ("round(d, 1)", "DECIMAL(12,1)"),
        ("round(d, -1)", "DECIMAL(11,0)"),
        ("ceil(d)", "DECIMAL(11,0)"),
        ("floor(f8)", "BIGINT"),
    ],
)
def test_arithmetic_follows_sparks_promotion(text: str, expected: str) -> None:
    assert inferred(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("coalesce(i4, 1.5)", "DECIMAL(11,1)"),
        ("coalesce(i4, s)", "BIGINT"),
        ("coalesce(dt, ts)", "TIMESTAMP"),
        ("coalesce(NULL, i1)", "TINYINT"),
        ("CASE WHEN b THEN i4 ELSE f4 END", "DOUBLE"),
        ("IF(b, d, e)", "DECIMAL(38,10)"),
        ("nullif(i4, 1.0)", "INT"),
        ("greatest(i4, d)", "DECIMAL(12,2)"),
        ("i4 = s", "BOOLEAN"),
        ("s LIKE 'a%'", "BOOLEAN"),
        ("TRY_CAST(s AS DECIMAL(5,2))", "DECIMAL(5,2)"),
        ("upper(s)", "STRING"),
        ("length(s)", "INT"),
        ("year(ts)", "INT"),
        ("date_trunc('day', ts)", "TIMESTAMP"),
        ("size(a)", "INT"),
        ("a[0]", "INT"),
        ("m['k']", "INT"),
    ],
)
def test_a_function_gives_what_spark_gives(text: str, expected: str) -> None:
    assert inferred(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("COUNT(*)", "BIGINT"),
        ("COUNT(DISTINCT s)", "BIGINT"),
        ("SUM(i4)", "BIGINT"),
        ("SUM(d)", "DECIMAL(22,2)"),
        ("SUM(e)", "DECIMAL(38,10)"),
        ("SUM(f4)", "DOUBLE"),
        ("SUM(d * i4)", "DECIMAL(33,2)"),
        ("AVG(d)", "DECIMAL(16,6)"),
        ("AVG(i4)", "DOUBLE"),
        ("MAX(s)", "STRING"),
        ("collect_list(i4)", "ARRAY<INT>"),
        ("stddev(i4)", "DOUBLE"),
    ],
)
def test_an_aggregate_has_sparks_type(text: str, expected: str) -> None:
    assert inferred(text) == expected


@pytest.mark.parametrize("text", ["no_such_function(i4)", "unknown_column + 1", "true = 1", "'1' + '2'", "dt = 1"])
def test_a_type_that_cannot_be_inferred_is_none(text: str) -> None:
    assert infer(parse_expression(text), Columns()) is None


def test_an_unknown_column_in_a_comparison_still_makes_a_boolean() -> None:
    assert inferred("unknown_column = 1") == "BOOLEAN"


def test_every_type_has_a_family() -> None:
    found = {family(type_) for type_ in (*COLUMNS.values(), TIMESTAMP_NTZ, pa.binary(), pa.null(), pa.duration("us"))}
    assert found == {"number", "string", "boolean", "time", "binary", "nested", "void", "interval"}


def test_strings_compare_with_everything_simple_but_numbers_not_with_dates() -> None:
    assert comparable(pa.string(), pa.int32())
    assert comparable(pa.string(), pa.date32())
    assert comparable(pa.date32(), TIMESTAMP)
    assert not comparable(pa.int32(), pa.date32())
    assert not comparable(pa.bool_(), pa.int32())


def test_a_stored_column_takes_numbers_for_numbers_and_anything_for_text() -> None:
    assert assignable(pa.int64(), pa.int32())
    assert assignable(pa.int32(), pa.string())
    assert assignable(pa.null(), pa.int32())
    assert assignable(pa.date32(), TIMESTAMP)
    assert not assignable(pa.string(), pa.int32())
    assert not assignable(pa.string(), pa.date32())
    assert not assignable(pa.bool_(), pa.int32())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("element_at(a, 1)", "INT"),
        ("split(s, ',')", "ARRAY<STRING>"),
        ("map('k', d)", "MAP<STRING, DECIMAL(12,2)>"),
        ("struct(i4, s AS t)", "STRUCT<i4: INT, t: STRING>"),
        ("map_entries(m)", "ARRAY<STRUCT<key: STRING, value: INT>>"),
        ("from_json(s, 'a INT, b ARRAY<STRING>').b[0]", "STRING"),
        ("transform(a, x -> x + i8)", "ARRAY<BIGINT>"),
        ("aggregate(a, 0, (acc, x) -> acc + x)", "INT"),
        ("filter(a, x -> x > 0)", "ARRAY<INT>"),
        ("date_format(ts, 'yyyy')", "STRING"),
        ("extract(SECOND FROM ts)", "DECIMAL(8,6)"),
        ("crc32(s)", "BIGINT"),
        ("sin(f8) + atan2(f8, f8)", "DOUBLE"),
        ("ceil(d, 1)", "DECIMAL(12,1)"),
        ("try_add(d, i4)", "DECIMAL(13,2)"),
        ("str_to_map(s)", "MAP<STRING, STRING>"),
        ("uuid()", "STRING"),
    ],
)
def test_a_function_has_the_type_that_it_declares_wherever_it_is_evaluated(text: str, expected: str) -> None:
    assert inferred(text) == expected
