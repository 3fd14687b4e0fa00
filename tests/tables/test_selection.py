"""Conditions go through the key or an index where they can, and give the same rows as a scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from sqlglot import exp

from millpond.contracts.table import Table, TableSpec
from millpond.errors import MillpondError, TableError
from millpond.schema import Column, Schema
from millpond.tables.store import open_store

SCHEMA = Schema.of(
    [
        Column("k", pa.int32(), False),
        Column("tier", pa.string()),
        Column("n", pa.int64()),
        Column("d", pa.decimal128(10, 2)),
    ],
    ["k"],
)
ROWS = [{"k": k, "tier": ["A", "B", None][k % 3], "n": k * k, "d": k} for k in range(100)]


@pytest.fixture
def table() -> Table:
    made = open_store(None).create(TableSpec("t", SCHEMA, indexes=(("tier",), ("tier", "n"))))
    made.insert(ROWS)
    return made


@pytest.fixture
def plain() -> Table:
    """The same rows without key and index."""
    made = open_store(None).create(TableSpec("t", SCHEMA.with_key(())))
    made.insert(ROWS)
    return made


CONDITIONS: list[tuple[str, list[Any]]] = [
    ("k = 7", []),
    ("7 = k", []),
    ("k = 7.0", []),
    ("k = 7.5", []),
    ("k = ?", [7]),
    ("k = ?", [None]),
    ("k = 10000000000", []),
    ("k IN (1, 2, 2, NULL, 500)", []),
    ("k IN (?, ?) AND tier = ?", [3, 4, "A"]),
    ("tier = ? AND k = ? AND n > ?", ["B", 4, 10]),
    ("tier = 'A'", []),
    ("tier = 'A' AND n < 100", []),
    ("tier = 'B' AND n = 16", []),
    ("tier IN ('A', 'B') AND n IN (9, 16, 17)", []),
    ("tier = 'A' OR k = 4", []),
    ("NOT (k = 7)", []),
    ("k = 7 AND k = 8", []),
    ("(k = 7 AND n = 49)", []),
    ("d = 7", []),
    ("tier IS NULL AND n < 50", []),
    ("n = k * k AND k = 5", []),
]


@pytest.mark.parametrize(("condition", "parameters"), CONDITIONS)
def test_an_index_changes_nothing_but_the_way(
    table: Table, plain: Table, condition: str, parameters: list[Any]
) -> None:
    def found(rows: Any) -> list[int]:
        return sorted(rows.column("k").to_pylist())

    wanted = found(plain.find(condition, parameters))
    assert found(table.find(condition, parameters)) == wanted
    assert table.count(condition, parameters) == plain.count(condition, parameters) == len(wanted)
    assert table.delete(condition, parameters) == len(wanted)
    assert plain.delete(condition, parameters) == len(wanted)
    assert found(table.to_arrow()) == found(plain.to_arrow())


def test_use_of_an_index_is_counted(table: Table) -> None:
    table.find("tier = 'A'")
    table.find("k = 1")
    table.find("n = 4")
    stats = table.stats()
    assert (stats.index_uses, stats.lookups, stats.hits) == (1, 2, 2)


def test_what_arrow_cannot_do_goes_to_the_fallback() -> None:
    asked: list[tuple[str, int, Sequence[Any]]] = []

    def fallback(expression: exp.Expression, rows: pa.Table, parameters: Sequence[Any]) -> pa.Array:
        asked.append((expression.sql("spark"), rows.num_rows, parameters))
        return pa.array([n % 2 == 0 for n in rows.column("n").to_pylist()])

    table = open_store(None, fallback=fallback).create(TableSpec("t", SCHEMA))
    table.insert(ROWS)
    condition = "some_function_of_sparks(n, ?)"
    assert table.count(condition, [5]) == 50
    assert table.count(f"k IN (1, 2, 3) AND {condition}", [5]) == 1
    assert [(rows, list(given)) for _, rows, given in asked] == [(100, [5]), (3, [5])]


def test_without_a_fallback_it_is_a_coded_error(table: Table) -> None:
    with pytest.raises(TableError, match=r"MP409.*requires Spark"):
        table.find("some_function_of_sparks(n) = 1")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("COUNT(*)", 34),
        ("SUM(n) + 1", sum(k * k for k in range(0, 100, 3)) + 1),
        ("MAX(k) - MIN(k)", 99),
        ("COALESCE(SUM(CASE WHEN k > 1000 THEN n END), 0)", 0),
        ("COUNT(DISTINCT tier)", 1),
    ],
)
def test_a_scalar_is_an_expression_over_aggregates(table: Table, expression: str, value: Any) -> None:
    assert table.scalar(expression, "tier = ?", ["A"]) == value


def test_a_scalar_needs_an_aggregate(table: Table) -> None:
    with pytest.raises(MillpondError, match="MP220"):
        table.scalar("n + 1")


def test_a_condition_must_be_true_or_false(table: Table) -> None:
    with pytest.raises(MillpondError):
        table.find("n + 1")
    with pytest.raises(MillpondError, match="MP409"):
        table.find(cast(Any, 5))
