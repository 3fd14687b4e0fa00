"""UPSERT ... ON against a naive evaluator, and the shortcut by key against the long way."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from millpond.contracts.table import Table, TableSpec
from millpond.engine.upsert_on import apply_at_once, apply_rows, take_apart
from millpond.plan.expression_types import with_type
from millpond.plan.row_parts import matches_by_key
from millpond.schema import Column, Schema
from millpond.sql.parser import parse_expression
from millpond.tables.store import open_store

SCHEMA = Schema((Column("k", pa.int32(), nullable=False), Column("g", pa.string()), Column("n", pa.int32())), ("k",))
QUERY = exp.select("e.k", "e.g", "e.n").from_("e")
KEYS, GROUPS = st.integers(0, 7), st.sampled_from([None, "a", "b"])
ROWS = st.lists(st.tuples(KEYS, GROUPS, st.integers(0, 5)), max_size=8)
CONDITIONS = {
    "t.g = e.g": lambda t, e: t[1] is not None and t[1] == e[1],
    "e.g = t.g AND t.n = e.n": lambda t, e: t[1] is not None and t[1:] == e[1:],
    "t.k = e.k AND t.g = e.g": lambda t, e: t[1] is not None and t[:2] == e[:2],
    "t.n < e.n AND t.g = e.g": lambda t, e: t[1] is not None and t[1] == e[1] and t[2] < e[2],
    "t.k = e.k": lambda t, e: t[0] == e[0],
    "e.n > t.n OR e.g IS NULL": lambda t, e: e[2] > t[2] or e[1] is None,
}


AT_ONCE = {text: "<" not in text and ">" not in text for text in CONDITIONS}


def typed(text: str) -> tuple[exp.Select, exp.Expression]:
    """The query and a condition with the types of their columns, as the planner writes them."""
    query, condition = QUERY.copy(), parse_expression(text)
    for column in [*condition.find_all(exp.Column), *query.find_all(exp.Column)]:
        with_type(column, SCHEMA[column.name].type)
    return query, condition


def naive(rows: list[tuple[Any, ...]], events: list[tuple[Any, ...]], meets: Any) -> list[tuple[Any, ...]]:
    """One event at a time: change what it meets, but no key; else add a row unless its key is taken."""
    for event in events:
        if any(meets(row, event) for row in rows):
            rows = [(row[0], *event[1:]) if meets(row, event) else row for row in rows]
        elif all(row[0] != event[0] for row in rows):
            rows = [*rows, event]
    return sorted(rows, key=repr)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = open_store(Path(tmp_path_factory.mktemp("store")))
    yield store.create(TableSpec("t", SCHEMA))
    store.close()


def content(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)


def as_arrow(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], names=list(SCHEMA.names))


@pytest.mark.parametrize("text", CONDITIONS)
@given(start=ROWS, events=ROWS)
def test_events_apply_one_at_a_time(table: Table, text: str, start: list[Any], events: list[Any]) -> None:
    rows = list({row[0]: row for row in start}.values())
    table.replace(as_arrow(rows))
    query, condition = typed(text)
    matching = take_apart(query, condition, ("k", "g", "n"), table)
    assert bool(matching.by) is AT_ONCE[text]
    arrived = as_arrow(events)
    for place, name in enumerate(matching.extra):
        column = matching.query.expressions[len(SCHEMA) + place].unalias().name
        arrived = arrived.append_column(name, arrived[column])
    list(apply_rows(table, matching, arrived))
    assert content(table) == naive(rows, events, CONDITIONS[text])


@given(start=ROWS, events=ROWS)
def test_matching_by_key_is_an_upsert(table: Table, start: list[Any], events: list[Any]) -> None:
    rows = list({row[0]: row for row in start}.values())
    table.replace(as_arrow(rows))
    table.upsert(as_arrow(events))
    assert content(table) == naive(rows, events, CONDITIONS["t.k = e.k"])


@pytest.mark.parametrize(
    ("text", "by_key"),
    [("t.k = e.k", True), ("e.k = t.k", True), ("t.k = e.n", False), ("t.k = e.k AND t.n = e.n", False)],
)
def test_only_the_key_compared_with_what_is_written_into_it_is_a_match_by_key(text: str, by_key: bool) -> None:
    query, condition = typed(text)
    assert matches_by_key(query, condition, ("k", "g", "n"), "t", SCHEMA) is by_key


UNKEYED = Schema((Column("g", pa.string()), Column("n", pa.int32())))


@pytest.fixture(scope="module")
def unkeyed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = open_store(Path(tmp_path_factory.mktemp("store")))
    yield store.create(TableSpec("t", UNKEYED))
    store.close()


@given(start=ROWS, events=ROWS)
def test_without_a_key_all_rows_of_a_value_change(unkeyed: Table, start: list[Any], events: list[Any]) -> None:
    unkeyed.replace(as_arrow(start).select(["g", "n"]))
    assert apply_at_once(unkeyed, ("g",), as_arrow(events).select(["g", "n"]))
    expected = [row[1:] for row in start]
    for _, group, number in events:
        if group in {g for g, _ in expected} - {None}:
            expected = [(g, number if g == group else n) for g, n in expected]
        else:
            expected.append((group, number))
    assert content(unkeyed) == sorted(expected, key=repr)
