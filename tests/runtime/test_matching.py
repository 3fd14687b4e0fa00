"""UPSERT ... ON against a naive evaluator, and the shortcut by key against the long way."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from millpond.contracts.table import Table, TableSpec
from millpond.plan.typed import with_type
from millpond.plan.upserts import matches_by_key
from millpond.runtime.matching import apply_rows, take_apart
from millpond.schema import Column, Schema
from millpond.sql.parser import parse_expression
from millpond.tables.store import open_store

SCHEMA = Schema((Column("k", pa.int32(), nullable=False), Column("g", pa.string()), Column("n", pa.int32())), ("k",))
QUERY = exp.select("e.k", "e.g", "e.n").from_("e")
KEYS, GROUPS = st.integers(0, 3), st.sampled_from([None, "a", "b"])
ROWS = st.lists(st.tuples(KEYS, GROUPS, st.integers(0, 5)), max_size=8)
CONDITIONS = {
    "t.g = e.g": lambda t, e: t[1] is not None and t[1] == e[1],
    "t.n < e.n AND t.g = e.g": lambda t, e: t[1] is not None and t[1] == e[1] and t[2] < e[2],
    "t.k = e.k": lambda t, e: t[0] == e[0],
    "e.n > t.n OR e.g IS NULL": lambda t, e: e[2] > t[2] or e[1] is None,
}


def naive(rows: list[tuple[Any, ...]], events: list[tuple[Any, ...]], meets: Any) -> list[tuple[Any, ...]]:
    """One event at a time: change what it meets, but no key; else add a row unless its key is taken."""
    for event in events:
        if any(meets(row, event) for row in rows):
            rows = [(row[0], *event[1:]) if meets(row, event) else row for row in rows]
        elif all(row[0] != event[0] for row in rows):
            rows = [*rows, event]
    return sorted(rows)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = open_store(Path(tmp_path_factory.mktemp("store")))
    yield store.create(TableSpec("t", SCHEMA))
    store.close()


def content(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def as_arrow(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], names=list(SCHEMA.names))


@pytest.mark.parametrize("text", CONDITIONS)
@given(start=ROWS, events=ROWS)
def test_events_apply_one_at_a_time(table: Table, text: str, start: list[Any], events: list[Any]) -> None:
    rows = list({row[0]: row for row in start}.values())
    table.replace(as_arrow(rows))
    matching = take_apart(QUERY, parse_expression(text), "t")
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
    condition = parse_expression(text)
    query = QUERY.copy()
    for column in [*condition.find_all(exp.Column), *query.find_all(exp.Column)]:
        with_type(column, pa.int32())
    assert matches_by_key(query, condition, ("k", "g", "n"), "t", SCHEMA) is by_key
