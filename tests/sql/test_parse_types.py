"""Types as SQL writes them."""

import pyarrow as pa
import pytest

from millpond.errors import SqlError
from millpond.sql.parser import parse_type

UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BOOLEAN", pa.bool_()),
        ("tinyint", pa.int8()),
        ("BYTE", pa.int8()),
        ("SMALLINT", pa.int16()),
        ("INT", pa.int32()),
        ("Integer", pa.int32()),
        ("BIGINT", pa.int64()),
        ("LONG", pa.int64()),
        ("FLOAT", pa.float32()),
        ("REAL", pa.float32()),
        ("DOUBLE", pa.float64()),
        ("DECIMAL", pa.decimal128(10, 0)),
        ("NUMERIC(12, 2)", pa.decimal128(12, 2)),
        ("DEC(5)", pa.decimal128(5, 0)),
        ("STRING", pa.string()),
        ("VARCHAR(10)", pa.string()),
        ("CHAR(3)", pa.string()),
        ("BINARY", pa.binary()),
        ("DATE", pa.date32()),
        ("TIMESTAMP", UTC),
        ("TIMESTAMP_LTZ", UTC),
        ("TIMESTAMP_NTZ", pa.timestamp("us")),
        ("TIMESTAMP(3)", UTC),
        ("TIMESTAMP_LTZ(6)", UTC),
        ("TIMESTAMP_NTZ(0)", pa.timestamp("us")),
        ("ARRAY<STRING>", pa.list_(pa.string())),
        ("ARRAY<ARRAY<INT>>", pa.list_(pa.list_(pa.int32()))),
        ("MAP<STRING, ARRAY<DECIMAL(12,2)>>", pa.map_(pa.string(), pa.list_(pa.decimal128(12, 2)))),
        ("STRUCT<a: INT, b STRING>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("STRUCT<>", pa.struct([])),
        ("STRUCT<date: DATE, `x y`: STRUCT<z: INT>>", None),
    ],
)
def test_a_type_is_an_arrow_type(text: str, expected: pa.DataType | None) -> None:
    inner = pa.struct([("date", pa.date32()), ("x y", pa.struct([("z", pa.int32())]))])
    assert parse_type(text) == (inner if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("STRIN", "Did you mean 'STRING'?"),
        ("TEXT", "Use STRING."),
        ("DATETIME", "Use TIMESTAMP."),
        ("DECIMAL(39)", "The precision must be 1 to 38"),
        ("DECIMAL(5,6)", "the scale at most the precision"),
        ("DECIMAL(1,2,3)", ""),
        ("'INT'", "Types are INT"),
    ],
)
def test_what_is_no_type_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_type(text)
    assert caught.value.code == "MP108"
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text", ["", "INT INT", "ARRAY", "ARRAY<INT", "MAP<INT>", "STRUCT<INT>", "DECIMAL(x)", "INT(3)"]
)
def test_half_a_type_is_refused(text: str) -> None:
    with pytest.raises(SqlError):
        parse_type(text)
