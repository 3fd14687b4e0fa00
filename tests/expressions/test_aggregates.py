"""Aggregates of a whole table."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.expressions.drawing import table
from tests.expressions.judge import VIEW

from millpond.errors import TableError
from millpond.expressions.aggregates import compile_aggregate
from millpond.expressions.compile import NotCompilable
from millpond.schema import Schema
from millpond.sql.parser import parse_expression

ROWS = pa.table(
    {
        "n": pa.array([1, 2, None, 2], pa.int32()),
        "big": pa.array([2**62, 2**62, 1, None], pa.int64()),
        "price": pa.array([Decimal("0.10"), Decimal("0.20"), None, Decimal("0.20")], pa.decimal128(12, 2)),
        "f": pa.array([1.5, float("nan"), -0.0, 0.0]),
        "s": ["b", "ä", None, "b"],
    }
)


def aggregate(text: str, rows: pa.Table = ROWS, *parameters: object) -> Any:
    compiled = compile_aggregate(parse_expression(text), Schema.from_arrow(rows.schema), parameters)
    found = compiled.evaluate(rows, parameters)
    assert found.type == compiled.type
    return found.as_py()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("COUNT(*)", 4),
        ("COUNT(n)", 3),
        ("COUNT(DISTINCT n)", 2),
        ("COUNT(DISTINCT f)", 3),
        ("SUM(n)", 5),
        ("SUM(DISTINCT n)", 3),
        ("AVG(n)", 5 / 3),
        ("SUM(price)", Decimal("0.50")),
        ("AVG(price)", Decimal("0.166667")),
        ("SUM(price * n)", Decimal("0.90")),
        ("MIN(n)", 1),
        ("MAX(s)", "ä"),
        ("MIN(f)", 0.0),
    ],
)
def test_an_aggregate_ignores_nulls_and_is_exact(text: str, expected: object) -> None:
    assert aggregate(text) == expected


@pytest.mark.parametrize("text", ["SUM(n)", "AVG(price)", "MIN(s)", "MAX(f)"])
def test_of_no_rows_it_is_null(text: str) -> None:
    assert aggregate(text, ROWS.slice(0, 0)) is None


def test_the_count_of_no_rows_is_zero() -> None:
    assert aggregate("COUNT(*)", ROWS.slice(0, 0)) == 0
    assert aggregate("COUNT(n)", ROWS.slice(0, 0)) == 0


def test_a_sum_beyond_its_type_is_an_error() -> None:
    with pytest.raises(TableError) as caught:
        aggregate("SUM(big)")
    assert caught.value.code == "MP408"


def test_parameters_stand_in_the_argument() -> None:
    assert aggregate("SUM(n * ?)", ROWS, 10) == 50


@pytest.mark.parametrize("text", ["stddev(n)", "COUNT(n, s)", "COUNT(DISTINCT n, s)", "SUM(s)", "n", "SUM(n) + 1"])
def test_other_aggregates_are_refused(text: str) -> None:
    with pytest.raises(NotCompilable):
        aggregate(text)


@pytest.mark.spark
def test_aggregates_are_sparks_aggregates(spark: Any) -> None:
    columns = ["i1", "i2", "i4", "d1", "d3", "d4", "f4", "f8", "s", "b", "dt", "ts"]
    numbers = ["i1", "i2", "i4", "d1", "d3", "d4", "f4", "f8"]
    texts = [f"{name}({c})" for c in columns for name in ("COUNT", "MIN", "MAX")]
    texts += [f"COUNT(DISTINCT {c})" for c in columns] + [f"{name}({c})" for c in numbers for name in ("SUM", "AVG")]
    for extreme in (False, True):
        rows = table(5, 40, extreme=extreme)
        spark.createDataFrame(rows).coalesce(1).createOrReplaceTempView(VIEW)
        query = ", ".join(f"{text} AS c{place}" for place, text in enumerate(texts))
        theirs = spark.sql(f"SELECT {query} FROM {VIEW}").toArrow()
        for place, text in enumerate(texts):
            their = theirs.column(place)
            compiled = compile_aggregate(parse_expression(text), Schema.from_arrow(rows.schema))
            assert compiled.type == their.type, text
            assert repr(compiled.evaluate(rows).as_py()) == repr(their[0].as_py()), text
