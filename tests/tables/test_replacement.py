"""A table made equal to rows in parts has just these rows, and changes only where it must."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.contracts.table import TableSpec
from millpond.schema import Column, Schema
from millpond.tables.store import open_store

COLUMNS = [Column("k", pa.int64()), Column("v", pa.string())]
ROW = st.tuples(st.integers(0, 6), st.sampled_from(["a", "b", None]))
ROWS = st.lists(ROW, max_size=12)


def arrow(rows: list[tuple[Any, ...]]) -> pa.Table:
    values = [list(column) for column in zip(*rows, strict=True)] if rows else [[], []]
    return pa.table({"k": pa.array(values[0], pa.int64()), "v": pa.array(values[1], pa.string())})


def content(table: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.find().to_pylist()), key=repr)


@settings(max_examples=200)
@given(ROWS, st.lists(ROWS, max_size=4))
def test_rows_without_a_key_are_a_multiset(before: list[Any], parts: list[list[Any]]) -> None:
    store = open_store(None)
    table = store.create(TableSpec("t", Schema.of(COLUMNS)))
    table.insert(arrow(before))
    with store.begin() as tx:
        tx.table("t").replace_in_parts([arrow(part) for part in parts])
        change = tx.changes("t")
        tx.commit()
    wanted = [row for part in parts for row in part]
    assert content(table) == sorted(wanted, key=repr)
    left = list(before)
    for row in wanted:
        if row in left:
            left.remove(row)
    assert change.removed.num_rows == len(left)
    store.close()


@settings(max_examples=200)
@given(ROWS, st.lists(ROWS, max_size=4), st.booleans())
def test_rows_with_a_key_are_known_by_it(before: list[Any], parts: list[list[Any]], whole: bool) -> None:
    store = open_store(None)
    table = store.create(TableSpec("t", Schema.of(COLUMNS, ["k"])))
    old, new = dict(before), [list(dict(part).items()) for part in parts]
    table.upsert(arrow(list(old.items())))
    with store.begin() as tx:
        tx.table("t").replace_in_parts([arrow(part) for part in new], whole=whole)
        change = tx.changes("t")
        tx.commit()
    wanted = ({} if whole else dict(old)) | {k: v for part in new for k, v in part}
    assert content(table) == sorted(wanted.items(), key=repr)
    ever = [(k, v) for part in new for k, v in part]
    stays = {k for k, v in old.items() if all(e[1] == v for e in ever if e[0] == k)}
    untouched = {k for k in stays if k in wanted}
    assert not untouched & set(change.removed["k"].to_pylist())
    store.close()


def test_a_part_with_the_same_key_twice_is_refused_and_nothing_is_changed() -> None:
    store = open_store(None)
    table = store.create(TableSpec("t", Schema.of(COLUMNS, ["k"])))
    table.insert(arrow([(1, "a")]))
    with pytest.raises(Exception, match="MP402"):
        table.replace_in_parts([arrow([(2, "x")]), arrow([(3, "x"), (3, "y")])])
    assert content(table) == [(1, "a")]
    store.close()
