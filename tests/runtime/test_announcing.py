"""What happened to each row of a change, against a naive comparison of before and after."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.contracts.table import TableSpec
from millpond.runtime.announcing import with_operations
from millpond.schema import Column, Schema
from millpond.tables.store import open_store

COLUMNS = (Column("k", pa.int32()), Column("v", pa.list_(pa.int32())))
ROWS = st.dictionaries(st.integers(0, 4), st.lists(st.integers(0, 1), max_size=1), max_size=5)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    opened = open_store(Path(tmp_path_factory.mktemp("store")))
    opened.create(TableSpec("keyed", Schema(COLUMNS, ("k",))))
    opened.create(TableSpec("loose", Schema(COLUMNS)))
    yield opened
    opened.close()


def told(store: Any, name: str, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Counter[Any]:
    """What a transaction that empties a table and fills it anew tells of it."""
    store.table(name).delete()
    store.table(name).insert(before)
    with store.begin() as tx:
        table = tx.table(name)
        table.delete()
        table.insert(after)
        rows = with_operations(tx.changes(name), table.schema).to_pylist()
        tx.rollback()
    return Counter((row["k"], str(row["v"]), row["_op"]) for row in rows)


def as_rows(content: dict[int, Any]) -> list[dict[str, Any]]:
    return [{"k": k, "v": v} for k, v in content.items()]


@given(before=ROWS, after=ROWS)
def test_rows_with_a_key_are_inserted_updated_or_deleted(store: Any, before: Any, after: Any) -> None:
    expected = {(k, str(v), "delete") for k, v in before.items() if k not in after}
    expected |= {(k, str(v), "insert") for k, v in after.items() if k not in before}
    expected |= {(k, str(v), "update") for k, v in after.items() if k in before and before[k] != v}
    assert told(store, "keyed", as_rows(before), as_rows(after)) == Counter(expected)


@given(before=st.lists(st.integers(0, 2)), after=st.lists(st.integers(0, 2)))
def test_rows_without_a_key_come_and_go_by_their_number(store: Any, before: list[int], after: list[int]) -> None:
    found = told(store, "loose", [{"k": k, "v": []} for k in before], [{"k": k, "v": []} for k in after])
    old, new = Counter(before), Counter(after)
    expected = Counter({(k, "[]", "delete"): n for k, n in (old - new).items()})
    expected.update({(k, "[]", "insert"): n for k, n in (new - old).items()})
    assert found == expected
