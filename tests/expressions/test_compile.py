"""Compiled expressions: what they read, what they give, how they fail, and what they refuse."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import BindError, TableError
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.schema import Schema
from millpond.sql.parser import parse_expression

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, None], pa.int32()),
        "n": pa.array([10, 0, None, 5], pa.int64()),
        "price": pa.array([Decimal("1.10"), Decimal("2.25"), None, Decimal("-3.35")], pa.decimal128(12, 2)),
        "name": pa.array(["Ann", "bo", None, "a%c"]),
        "at": pa.array([datetime(2024, 2, 29, 12, tzinfo=UTC)] * 4, pa.timestamp("us", tz="UTC")),
        "who": pa.array([{"first": "A", "Age": 3}] * 4, pa.struct([("first", pa.string()), ("Age", pa.int32())])),
    }
)
SCHEMA = Schema.from_arrow(ROWS.schema)


def values(text: str, *parameters: object, rows: pa.Table = ROWS) -> list[Any]:
    compiled = compile_expression(parse_expression(text), Schema.from_arrow(rows.schema), parameters)
    return list(compiled.evaluate(rows, parameters).to_pylist())


def test_the_result_has_the_inferred_type_and_the_tables_length() -> None:
    compiled = compile_expression(parse_expression("price * 2"), SCHEMA)
    found = compiled.evaluate(ROWS)
    assert compiled.type == found.type == pa.decimal128(14, 2)
    assert len(found) == 4
    assert len(compiled.evaluate(ROWS.slice(0, 0))) == 0
    assert compiled.evaluate(ROWS.to_batches()[0]).to_pylist() == found.to_pylist()


def test_only_the_columns_that_are_read_are_named() -> None:
    assert compile_expression(parse_expression("ID + n > 1 OR id IS NULL"), SCHEMA).columns == ("id", "n")


def test_a_table_in_chunks_gives_the_same_as_one_piece() -> None:
    chunked = pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1, 2), ROWS.slice(3)])
    assert values("coalesce(name, '?') || id", rows=chunked) == values("coalesce(name, '?') || id")


def test_a_constant_is_given_for_every_row() -> None:
    assert values("1 + 1") == [2, 2, 2, 2]


def test_null_is_neither_equal_nor_different() -> None:
    assert values("n = 10") == [True, False, None, False]
    assert values("n <> 10") == [False, True, None, True]
    assert values("n <=> NULL") == [False, False, True, False]
    assert values("n IN (10, NULL)") == [True, None, None, None]
    assert values("n NOT IN (10, NULL)") == [False, None, None, None]


def test_a_guard_before_and_keeps_the_other_side_from_failing() -> None:
    assert values("n <> 0 AND 10 / n > 1") == [False, False, None, True]
    assert values("n = 0 OR 10 / n > 1") == [False, True, None, True]


def test_a_case_evaluates_a_branch_only_for_its_rows() -> None:
    assert values("CASE WHEN n <> 0 THEN 10 / n END") == [1.0, None, None, 2.0]
    assert values("IF(n = 0, 0, 10 div n)") == [1, 0, None, 2]
    assert values("coalesce(n, 1 div 0)", rows=ROWS.filter(pa.array([True, True, False, True]))) == [10, 0, 5]
    assert values("nullif(n, 0)") == [10, None, None, 5]


def test_an_argument_after_a_null_is_not_evaluated() -> None:
    rows = pa.table({"a": pa.array([None, 1], pa.int32()), "b": pa.array([0, 1], pa.int32())})
    assert values("a + 1 div b", rows=rows) == [None, 2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / n", "division by zero"),
        ("id % 0", "remainder by zero"),
        ("id + 2147483647", "out of range"),
        ("CAST(name AS INT)", "cannot be cast to INT"),
        ("CAST(n AS DECIMAL(1,0))", r"cannot be cast to DECIMAL\(1,0\)"),
        ("element_at(array_of, 9)", "out of bounds"),
    ],
)
def test_a_failing_row_names_the_expression(text: str, reason: str) -> None:
    rows = ROWS.append_column("array_of", pa.array([[1]] * 4, pa.list_(pa.int32())))
    with pytest.raises(TableError, match=reason) as caught:
        values(f"id > 0 AND {text} > 0", rows=rows)
    assert caught.value.code == "MP408"
    assert "' failed on a row" in caught.value.problems[0].message
    assert caught.value.hint


def test_decimals_are_exact_and_round_half_up() -> None:
    assert values("price * 3.1") == [Decimal("3.410"), Decimal("6.975"), None, Decimal("-10.385")]
    assert values("CAST(price AS DECIMAL(5,1))") == [Decimal("1.1"), Decimal("2.3"), None, Decimal("-3.4")]
    assert values("price / 3")[0] == Decimal("0.366667")
    assert values("0.1 + 0.2 = 0.3")[0] is True
    assert values("price = 1.1000")[0] is True


def test_try_cast_gives_null_for_what_does_not_fit() -> None:
    assert values("TRY_CAST(name AS INT)") == [None] * 4
    assert values("TRY_CAST(n * 30 AS TINYINT)") == [None, 0, None, None]


def test_like_takes_regex_characters_as_they_are() -> None:
    rows = pa.table({"s": ["a.c", "abc", "a%c", "a\nc", "ab\\c"]})
    assert values("s LIKE 'a.c'", rows=rows) == [True, False, False, False, False]
    assert values(r"s LIKE 'a\%c'", rows=rows) == [False, False, True, False, False]
    assert values("s LIKE 'a/%c' ESCAPE '/'", rows=rows) == [False, False, True, False, False]
    assert values("s LIKE 'a%c'", rows=rows) == [True] * 5
    assert values("s LIKE 'a_c'", rows=rows) == [True, True, True, True, False]


def test_a_string_beside_a_number_is_cast_to_it() -> None:
    rows = pa.table({"s": [" 5 ", "7"]})
    assert values("s = 5", rows=rows) == [True, False]
    with pytest.raises(TableError):
        values("s = 5", rows=pa.table({"s": ["x"]}))


def test_nan_equals_itself_and_is_the_largest() -> None:
    rows = pa.table({"f": [float("nan"), 1.0, -0.0]})
    assert values("f = CAST('NaN' AS DOUBLE)", rows=rows) == [True, False, False]
    assert values("f > 1e300", rows=rows) == [True, False, False]
    assert values("f = 0D", rows=rows) == [False, False, True]


def test_times_move_by_the_calendar() -> None:
    rows = pa.table({"d": [date(2024, 1, 31)]})
    assert values("d + INTERVAL 1 MONTH", rows=rows) == [date(2024, 2, 29)]
    assert values("datediff(d + 5, d)", rows=rows) == [5]
    assert values("date_trunc('month', at)")[0] == datetime(2024, 2, 1, tzinfo=UTC)
    assert values("CAST(at AS STRING)")[0] == "2024-02-29 12:00:00"


@pytest.mark.parametrize("text", ["INTERVAL 5 MINUTES", "array(INTERVAL 1 DAY)", "coalesce(NULL, INTERVAL 1 MONTH)"])
def test_an_interval_literal_has_no_value_here(text: str) -> None:
    with pytest.raises(NotCompilable):
        values(text)


def test_the_time_is_one_for_all_rows_and_can_be_set() -> None:
    compiled = compile_expression(parse_expression("current_timestamp() > at"), SCHEMA)
    assert compiled.evaluate(ROWS, now=datetime(2024, 1, 1, tzinfo=UTC)).to_pylist() == [False] * 4
    assert compiled.evaluate(ROWS, now=datetime(2025, 1, 1, tzinfo=UTC)).to_pylist() == [True] * 4


def test_a_field_of_a_struct_is_read_without_regard_to_case() -> None:
    assert values("WHO.age + 1") == [4] * 4


def test_a_qualified_name_means_what_the_names_say() -> None:
    columns = {name.lower(): name for name in SCHEMA.names}
    names = {"users": columns, "u": columns}
    found = compile_expression(parse_expression("u.id + USERS.n"), SCHEMA, (), names).evaluate(ROWS)
    assert found.to_pylist() == [11, 2, None, None]
    joined = {"s": {"d": "n"}}
    assert compile_expression(parse_expression("s.d"), SCHEMA, (), joined).columns == ("n",)


def test_a_name_that_is_not_there_is_an_error_with_a_guess() -> None:
    with pytest.raises(BindError, match="no column 'nam'") as caught:
        values("nam = 'x'")
    assert caught.value.code == "MP202"
    assert caught.value.hint == "Did you mean 'name'?"


def test_parameters_stand_for_question_marks_in_order() -> None:
    assert values("id = ? OR name = ?", 2, "Ann") == [True, True, None, None]
    assert values("position(? IN name) = ?", "n", 2) == [True, False, None, False]
    assert values("price > ?", Decimal("2.2")) == [False, True, None, False]
    assert values("n = ?", None) == [None] * 4


def test_other_parameters_of_other_types_may_follow() -> None:
    compiled = compile_expression(parse_expression("n > ?"), SCHEMA, (1,))
    assert compiled.evaluate(ROWS, (5,)).to_pylist() == [True, False, None, False]
    assert compiled.evaluate(ROWS, (Decimal("4.5"),)).to_pylist() == [True, False, None, True]
    assert compiled.evaluate(ROWS, ("5",)).to_pylist() == [True, False, None, False]


def test_a_missing_parameter_is_an_error() -> None:
    with pytest.raises(TableError) as caught:
        values("id = ? AND n = ?", 1)
    assert caught.value.code == "MP411"


@pytest.mark.parametrize(
    "text",
    [
        "sin(id)",
        "atan(id)",
        "power(id, 2.5)",
        "tanh(id)",
        "date_format(at, 'DDD')",
        "name RLIKE '(?x)a'",
        "at - at",
        "CAST(at AS DOUBLE)",
        "true = 1",
        "SUM(id)",
        "id IN (SELECT 1)",
        "no_such_function(id)",
        "unix_timestamp('2024-01-01')",
    ],
)
def test_what_arrow_would_do_otherwise_is_refused(text: str) -> None:
    with pytest.raises(NotCompilable):
        values(text)


def test_a_value_that_only_spark_can_write_is_refused_when_it_is_met() -> None:
    far = pa.table({"d": pa.array([3_000_000], pa.int32()).cast(pa.date32())})
    compiled = compile_expression(parse_expression("CAST(d AS STRING)"), Schema.from_arrow(far.schema))
    with pytest.raises(NotCompilable, match="year"):
        compiled.evaluate(far)


def test_text_in_any_layout_is_text() -> None:
    texts = ["a", None, "b"]
    for column in (pa.array(texts, pa.large_string()), pa.array(texts).dictionary_encode()):
        assert values("s = 'a'", rows=pa.table({"s": column})) == [True, None, False]
