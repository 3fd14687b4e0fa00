"""The types of functions that only Spark evaluates are Spark's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from millpond.engine.spark.transfer import to_spark_schema
from millpond.expressions.result_types import infer
from millpond.sql.parser import parse_expression

COLUMNS = {
    "i": pa.int32(),
    "n": pa.int64(),
    "x": pa.float64(),
    "p": pa.decimal128(12, 2),
    "s": pa.string(),
    "b": pa.binary(),
    "d": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "a": pa.list_(pa.string()),
}
OVER = "OVER (PARTITION BY s ORDER BY t)"
# Each is typed as in Spark.
WINDOWS = (
    f"lag(p) {OVER}", f"lag(i, 1, 0) {OVER}", f"lead(d) {OVER}", f"first_value(s) {OVER}", f"last_value(n) {OVER}",
    f"nth_value(p, 2) {OVER}", f"row_number() {OVER}", f"rank() {OVER}", f"dense_rank() {OVER}", f"ntile(4) {OVER}",
    f"percent_rank() {OVER}", f"cume_dist() {OVER}", f"sum(i) {OVER}", f"sum(p) {OVER}", f"avg(p) {OVER}",
    f"avg(i) {OVER}", f"count(*) {OVER}", f"max(t) {OVER}", f"min(s) {OVER}", f"lag(p) {OVER} + 1",
    f"lag(s) IGNORE NULLS {OVER}", f"first_value(i) IGNORE NULLS {OVER}", f"max_by(s, t) {OVER}",
    f"coalesce(lag(n) {OVER}, 0)", f"sum(x) {OVER}", f"collect_list(i) {OVER}", f"any_value(d) {OVER}",
)  # fmt: skip
AGGREGATES = (
    "max_by(s, t)", "min_by(p, i)", "max_by(struct(i, s), t)", "mode(s)", "median(i)", "percentile(i, 0.5)",
    "approx_percentile(p, 0.5)", "percentile_approx(i, 0.5, 100)", "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY i)", "listagg(s, ',')", "string_agg(s)", "bool_and(i > 1)",
    "every(i > 1)", "bit_and(i)", "bit_xor(n)", "corr(i, n)", "covar_pop(i, x)", "kurtosis(i)", "skewness(i)",
    "regr_slope(i, x)",
    "regr_count(i, x)", "count_if(i > 1)", "approx_count_distinct(s)", "collect_set(p)", "array_agg(s)", "try_sum(p)",
    "try_avg(i)", "stddev(p)", "var_samp(i)", "first(d)", "last(s)", "any_value(b)", "sum(i)", "avg(p)",
)  # fmt: skip
OTHERS = (
    "i & 3", "n | 1L", "i ^ 2", "~ i", "bit_count(i)", "shiftleft(i, 1)", "hash(i, s)", "xxhash64(s)", "md5(s)",
    "sha1(s)", "sha2(s, 256)", "crc32(s)", "base64(b)", "unbase64(s)", "hex(i)", "unhex(s)", "encode(s, 'utf-8')",
    "decode(b, 'utf-8')", "format_string('%s', s)", "format_number(p, 2)", "date_format(t, 'yyyy')", "dayname(d)",
    "monthname(d)", "weekofyear(d)", "make_date(i, 1, 1)", "add_months(d, 1)", "trunc(d, 'MM')", "months_between(t, t)",
    "timestamp_seconds(n)", "unix_date(d)", "date_from_unix_date(i)", "localtimestamp()", "url_encode(s)", "soundex(s)",
    "levenshtein(s, s)", "ascii(s)", "conv(s, 10, 16)", "bin(n)", "factorial(i)", "hypot(x, x)", "atan2(x, x)",
    "degrees(x)", "rint(x)", "array_compact(a)", "array_sort(a)", "nvl2(i, s, s)", "try_add(i, i)", "typeof(i)",
    "uuid()", "current_user()", "to_json(named_struct('a', i))", "get_json_object(s, '$.a')", "json_array_length(s)",
    "equal_null(i, i)", "luhn_check(s)", "width_bucket(x, 0.0D, 10.0D, 5)", "to_csv(named_struct('a', i))", "isnan(x)",
)  # fmt: skip


class Known:
    def resolve(self, column: exp.Column) -> pa.DataType | None:
        return COLUMNS.get(column.name)


@pytest.mark.spark
@pytest.mark.parametrize("texts", [WINDOWS, AGGREGATES, OTHERS], ids=["windows", "aggregates", "others"])
def test_a_type_is_that_of_spark(spark: Any, texts: tuple[str, ...]) -> None:
    empty = pa.schema(COLUMNS.items()).empty_table()
    spark.createDataFrame(empty, to_spark_schema(empty.schema)).createOrReplaceTempView("typed")
    wanted = spark.sql(f"SELECT {', '.join(texts)} FROM typed").schema
    found = {text: infer(parse_expression(text), Known()) for text in texts}
    unknown = [text for text, type_ in found.items() if type_ is None]
    assert unknown == []
    ours = to_spark_schema(pa.schema([(str(n), type_) for n, type_ in enumerate(found.values())]))
    pairs = zip(texts, ours, wanted, strict=True)
    different = {t: (a.dataType.simpleString(), b.dataType.simpleString()) for t, a, b in pairs}
    assert {t: both for t, both in different.items() if both[0] != both[1]} == {}


@pytest.mark.parametrize("text", ["max_by(s, t, 2)", "percentile(i, array(0.5))", "median(INTERVAL 1 YEAR)"])
def test_what_depends_on_more_is_left_to_spark(text: str) -> None:
    assert infer(parse_expression(text), Known()) is None
