"""Aggregates of a whole table."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.expressions.drawing import table
from tests.expressions.judge import VIEW, nullable
from tests.seeds import FRESH

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


@pytest.mark.parametrize(
    "text",
    ["n", "SUM(n) + 1", "kurtosis(n)", "approx_count_distinct(n)", "mode(n + f)", "collect_set(f)", "sum(s = 'a')"],
)
def test_other_aggregates_are_refused(text: str) -> None:
    with pytest.raises(NotCompilable):
        aggregate(text, ROWS.slice(0, 2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("COUNT(n, s)", 3),
        ("COUNT(DISTINCT n, s)", 3),
        ("count_if(n = 2)", 2),
        ("bool_and(n > 0)", True),
        ("bit_xor(n)", 1),
        ("max_by(s, n)", "b"),
        ("min_by(s, n)", "b"),
        ("first(n)", 1),
        ("last(n) IGNORE NULLS", 2),
        ("collect_list(n)", [1, 2, 2]),
        ("collect_set(n)", [1, 2]),
        ("listagg(s, '-') WITHIN GROUP (ORDER BY n DESC)", "ä-b-b"),
        ("median(n)", 2.0),
        ("percentile(n, 0.25)", 1.5),
        ("percentile_cont(0.25) WITHIN GROUP (ORDER BY n DESC)", 2.0),
        ("mode(n)", 2),
        ("stddev_pop(n)", 0.4714045207910317),
        ("covar_pop(n, n)", 0.2222222222222222),
    ],
)
def test_an_aggregate_that_is_no_sum(text: str, expected: object) -> None:
    assert aggregate(text) == expected


# Each of a table of one partition, whose rows Spark takes in their order.
MORE = (
    "count(i4, s)", "count(DISTINCT i1, b)", "count_if(b)", "bool_and(b)", "any(b)", "every(b)", "bit_and(i4)",
    "bit_or(i8)", "bit_xor(i2)", "first(s)", "first(s, true)", "last(s)", "last(s) IGNORE NULLS", "max_by(s, i4)",
    "min_by(d1, dt)", "max_by(i4, f8)", "min_by(s, struct(b, f8))", "max(a)", "min(st)", "max(struct(f8, s))",
    "collect_list(i4)", "collect_list(st)", "collect_set(s)", "collect_set(d1)", "listagg(s, ',')",
    "listagg(s, ',') WITHIN GROUP (ORDER BY i4, s DESC)", "string_agg(DISTINCT s, '') WITHIN GROUP (ORDER BY s)",
    "median(i4)", "percentile(d1, 0.3)", "percentile(i8, 1)", "percentile_cont(0.4) WITHIN GROUP (ORDER BY i4 DESC)",
    "stddev(i4)", "stddev_pop(d1)", "variance(i2)", "var_pop(i4)", "corr(i4, i2)", "covar_pop(i1, i2)",
    "covar_samp(i1, d1)", "regr_slope(i1, i2)", "regr_intercept(i1, i2)", "regr_r2(i1, i2)", "regr_count(i1, i2)",
    "regr_avgx(i1, i2)", "regr_avgy(i1, i2)", "regr_sxx(i1, i2)", "regr_sxy(i1, i2)", "regr_syy(i1, i2)",
    "sum(DISTINCT i1)", "avg(DISTINCT d1)", "any_value(s) IGNORE NULLS",
)  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("seed", [5, FRESH], ids=["fixed", "fresh"])
def test_more_aggregates_are_sparks_aggregates(spark: Any, seed: int) -> None:
    rows = table(seed, 40, extreme=False)
    spark.createDataFrame(rows).coalesce(1).createOrReplaceTempView(VIEW)
    schema = Schema.from_arrow(rows.schema)
    # Spark fails on LISTAGG ... WITHIN GROUP beside DISTINCT.
    together = [text for text in MORE if "DISTINCT" not in text]
    parts = [together, *([text] for text in MORE if text not in together)]
    queries = [", ".join(f"{text} AS `{text}`" for text in part) for part in parts]
    answers = [spark.sql(f"SELECT {query} FROM {VIEW}").toArrow() for query in queries]
    theirs = {name: answer.column(name) for answer in answers for name in answer.column_names}
    for text in MORE:
        their = theirs[text]
        found = compile_aggregate(parse_expression(text), schema).evaluate(rows)
        assert found.type == nullable(their.type), text
        mine, wanted = found.as_py(), their[0].as_py()
        if text.startswith("collect_set"):
            mine, wanted = sorted(mine), sorted(wanted)
        assert mine == (pytest.approx(wanted, rel=1e-9) if isinstance(wanted, float) else wanted), text


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
