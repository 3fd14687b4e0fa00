"""Keys found in conditions."""

from decimal import Decimal

import pyarrow as pa
import pytest

from millpond.expressions.key_conditions import KEYS_MAX, Lookup, key_lookup
from millpond.schema import Column
from millpond.sql.parser import parse_expression

ID = Column("id", pa.int32())
BIG = Column("big", pa.int64())
USER = Column("user_id", pa.string())
PRICE = Column("price", pa.decimal128(10, 2))


def found(text: str, *key: Column, parameters: tuple[object, ...] = ()) -> Lookup:
    lookup = key_lookup(parse_expression(text), key, parameters)
    assert lookup is not None
    return lookup


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("id = 1", [(1,)]),
        ("1 = ID", [(1,)]),
        ("(id = (1))", [(1,)]),
        ("id IN (1, 2, 2)", [(1,), (2,)]),
        ("id IN (1, NULL)", [(1,)]),
        ("id = NULL", []),
        ("id = 1.0", [(1,)]),
        ("id = '7'", [(7,)]),
        ("id = -1", [(-1,)]),
        ("id = CAST(3 AS BIGINT)", [(3,)]),
    ],
)
def test_equality_and_in_name_their_keys(text: str, keys: list[tuple[object, ...]]) -> None:
    assert found(text, ID) == Lookup(keys, None, ())


@pytest.mark.parametrize("text", ["id = 1.5", "id = 3000000000", "id IN (1.5, 2.25)"])
def test_a_value_that_no_key_can_equal_finds_nothing(text: str) -> None:
    assert found(text, ID).keys == []


@pytest.mark.parametrize(
    "text", ["id = 1 OR id = 2", "id > 1", "id = n", "id + 1 = 2", "n = 1", "NOT id = 1", "id NOT IN (1)", "id = 'x'"]
)
def test_anything_else_reads_all_rows(text: str) -> None:
    assert key_lookup(parse_expression(text), [ID]) is None


def test_a_key_that_is_cast_for_the_comparison_cannot_be_looked_up() -> None:
    assert key_lookup(parse_expression("user_id = 5"), [USER]) is None
    assert key_lookup(parse_expression("big = 1e0"), [BIG]) is None
    assert key_lookup(parse_expression("big IN (9007199254740993, 1.5D)"), [BIG]) is None


def test_a_decimal_key_is_found_by_value_not_by_spelling() -> None:
    assert found("price = 1.5", PRICE).keys == [(Decimal("1.50"),)]
    assert found("price = 1.505", PRICE).keys == []
    assert found("price = 2", PRICE).keys == [(Decimal("2.00"),)]


def test_the_rest_of_an_and_is_kept_with_its_parameters() -> None:
    lookup = found("n > ? AND id = ? AND name = ?", ID, parameters=(1, 2, "x"))
    assert lookup.keys == [(2,)]
    assert lookup.remainder is not None
    assert lookup.remainder.sql() == "n > ? AND name = ?"
    assert lookup.parameters == (1, "x")


def test_a_second_condition_on_the_key_stays_in_the_rest() -> None:
    lookup = found("id = 1 AND id = 2", ID)
    assert lookup.keys == [(1,)]
    assert lookup.remainder is not None
    assert lookup.remainder.sql() == "id = 2"


def test_a_composite_key_needs_all_its_columns() -> None:
    lookup = found("user_id IN ('a', 'b') AND id = 1", ID, USER)
    assert lookup.keys == [(1, "a"), (1, "b")]
    assert key_lookup(parse_expression("id = 1"), [ID, USER]) is None


def test_too_many_combinations_are_read_instead() -> None:
    many = ", ".join(str(n) for n in range(KEYS_MAX // 2))
    assert key_lookup(parse_expression(f"id IN ({many}) AND big IN (1, 2, 3)"), [ID, BIG]) is None


def test_a_qualified_key_needs_a_known_qualifier() -> None:
    names = {"t": {"id": "id"}}
    assert key_lookup(parse_expression("t.id = 1"), [ID], (), names) == Lookup([(1,)], None, ())
    assert key_lookup(parse_expression("x.id = 1"), [ID], (), names) is None
