"""What happened to each row of a change, against a naive comparison of before and after."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millpond as mp
from millpond.contracts.table import TableSpec
from millpond.engine.table_changes import with_operations
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


def changes(store: Any, name: str, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Counter[Any]:
    """What a transaction that empties a table and fills it anew emits."""
    store.table(name).delete("true")
    store.table(name).insert(before)
    with store.begin() as tx:
        table = tx.table(name)
        table.delete("true")
        table.insert(after)
        rows = with_operations(tx.changes(name), table.schema).to_pylist()
        tx.rollback()
    return Counter((row["k"], str(row["v"]), row["_op"]) for row in rows)


def as_rows(content: dict[int, Any]) -> list[dict[str, Any]]:
    return [{"k": k, "v": v} for k, v in content.items()]


@settings(deadline=None)
@given(before=ROWS, after=ROWS)
def test_rows_with_a_key_are_inserted_updated_or_deleted(store: Any, before: Any, after: Any) -> None:
    expected = {(k, str(v), "delete") for k, v in before.items() if k not in after}
    expected |= {(k, str(v), "insert") for k, v in after.items() if k not in before}
    expected |= {(k, str(v), "update") for k, v in after.items() if k in before and before[k] != v}
    assert changes(store, "keyed", as_rows(before), as_rows(after)) == Counter(expected)


@settings(deadline=None)
@given(before=st.lists(st.integers(0, 2)), after=st.lists(st.integers(0, 2)))
def test_rows_without_a_key_come_and_go_by_their_number(store: Any, before: list[int], after: list[int]) -> None:
    found = changes(store, "loose", [{"k": k, "v": []} for k in before], [{"k": k, "v": []} for k in after])
    old, new = Counter(before), Counter(after)
    expected = Counter({(k, "[]", "delete"): n for k, n in (old - new).items()})
    expected.update({(k, "[]", "insert"): n for k, n in (new - old).items()})
    assert found == expected


APP = """
CREATE TABLE users (user_id INT PRIMARY KEY, tier STRING);
CREATE TABLE by_tier AS SELECT tier, COUNT(*) AS n FROM users GROUP BY tier;
INSERT INTO 'file:changes' SELECT * FROM CHANGES(users);
INSERT INTO 'file:tiers' SELECT tier, n, _op FROM CHANGES(by_tier);
"""


def lines(folder: Path) -> Counter[Any]:
    found = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return Counter(tuple(row.values()) for row in found)


@pytest.mark.spark
def test_what_users_change_from_python_is_emitted_too(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "app.sql").write_text(APP)
    with mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark) as app:
        users = app.table("users")
        users.upsert([{"user_id": 1, "tier": "GOLD"}, {"user_id": 2, "tier": "BASIC"}])
        app.execute("UPDATE users SET tier = 'GOLD' WHERE user_id = 2")
        with app.transaction() as tx:
            tx.table("users").delete(keys=[1])
        with pytest.raises(mp.MillpondError):
            users.insert([{"user_id": 2, "tier": "SILVER"}])
        threads = [threading.Thread(target=users.upsert, args=([{"user_id": n, "tier": "X"}],)) for n in (7, 8, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    many = [(n, "X", "insert") for n in (7, 8, 9)]
    changes = [(1, "GOLD", "insert"), (2, "BASIC", "insert"), (2, "GOLD", "update"), (1, "GOLD", "delete"), *many]
    assert lines(tmp_path / "changes") == Counter(changes)
    tiers = lines(tmp_path / "tiers")
    assert tiers["BASIC", 1, "insert"] == tiers["BASIC", 1, "delete"] == tiers["GOLD", 2, "update"] == 1
    assert tiers["X", 3, "update"] == 1
