"""SQLite tables: what the file shows, what is pushed down, and files that do not belong."""

from __future__ import annotations

import shutil
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.errors import MillpondError
from millpond.schema import Column, Schema
from millpond.sql.parser import parse_expression
from millpond.tables.pushdown import pushed
from millpond.tables.sqlite.versions import from_sqlite, to_sqlite
from millpond.tables.store import TableStore, open_store

SCHEMA = Schema.of(
    [
        Column("k", pa.int64(), False),
        Column("name", pa.string()),
        Column("age", pa.int32()),
        Column("price", pa.decimal128(12, 2)),
        Column("ratio", pa.float64()),
    ],
    ["k"],
)
ROWS: list[dict[str, Any]] = [
    {"k": 1, "name": "Ann", "age": 41, "price": Decimal("9.00"), "ratio": float("nan")},
    {"k": 2, "name": "ann", "age": 7, "price": Decimal("10.00"), "ratio": -0.0},
    {"k": 3, "name": None, "age": None, "price": None, "ratio": None},
    {"k": 4, "name": "1", "age": -5, "price": Decimal("-0.10"), "ratio": 0.5},
]
CONDITIONS = (
    "age > 5",
    "NOT age > 5",
    "7 < age",
    "age BETWEEN -5 AND 7",
    "age NOT BETWEEN -5 AND 7",
    "name = 'Ann'",
    "name LIKE 'A%'",
    "name IN ('Ann', 'ann')",
    "age IN (7, NULL)",
    "age NOT IN (7, NULL)",
    "name IS NULL OR age / 2 = 3.5",
    "price > 9.5",
    "price = 9",
    "ratio = 0.0",
    "ratio > 1",
    "name > 'Z' AND age < 100",
    "age = 41.0",
    "k <> 2 AND (name < 'a' OR price IS NULL)",
)


def spec(folder: Path, name: str = "t", schema: Schema = SCHEMA) -> TableSpec:
    return TableSpec(name, schema, "sqlite", {"path": str(folder / "rows.db")})


def store_in(folder: Path) -> TableStore:
    return open_store(folder / "state")


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_gives_the_rows_that_memory_gives(tmp_path: Path, condition: str) -> None:
    store = store_in(tmp_path)
    ours, plain = store.create(spec(tmp_path)), store.create(TableSpec("plain", SCHEMA))
    ours.insert(ROWS)
    plain.insert(ROWS)
    assert ours.values("k", condition) == plain.values("k", condition)
    store.close()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("age > 5 AND name LIKE 'A%'", '("age" > ?)'),
        ("name IN ('a', 'b')", '(("name" = ?) OR ("name" = ?))'),
        ("age > 5 OR price > 1", None),
        ("price > 1", None),
        ("name = 1", None),
        ("age > 5.0", None),
        ("ratio > 1", None),
    ],
)
def test_only_what_sqlite_decides_alike_is_pushed_down(condition: str, expected: str | None) -> None:
    part = pushed(parse_expression(condition), SCHEMA, ())
    assert (None if part is None else part.sql) == expected


def test_parameters_are_pushed_down_in_their_order() -> None:
    part = pushed(parse_expression("price > ? AND age > ? AND name = ?"), SCHEMA, (Decimal(1), 5, "x"))
    assert part is not None
    assert part.values == (5, "x")


def test_doubles_that_sqlite_lacks_come_back() -> None:
    column = pa.array([float("nan"), -0.0, 0.0, None])
    assert str(from_sqlite(to_sqlite(column), pa.float64()).to_pylist()) == "[nan, -0.0, 0.0, None]"


def test_other_programs_see_the_rows_that_are_there(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    table = store.create(spec(tmp_path))
    table.insert(ROWS)
    table.delete("k > 2")
    table.update("k = 1", {"age": 42})
    store.close()
    with sqlite3.connect(tmp_path / "rows.db") as other:
        assert set(other.execute("SELECT k, name, age, price FROM t")) == {
            (1, "Ann", 42, "9.00"),
            (2, "ann", 7, "10.00"),
        }


def test_a_file_older_than_the_log_is_refused(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.create(spec(tmp_path)).insert(ROWS[:1])
    store.close()
    shutil.copy(tmp_path / "rows.db", tmp_path / "old.db")
    store = store_in(tmp_path)
    for row in ROWS[1:]:
        store.table("t").insert([row])
    store.close()
    shutil.copy(tmp_path / "old.db", tmp_path / "rows.db")
    store = store_in(tmp_path)
    assert len(store.table("t")) == len(ROWS)
    store.checkpoint()
    store.table("t").delete(keys=[1])
    store.table("t").delete(keys=[2])
    store.close()
    shutil.copy(tmp_path / "old.db", tmp_path / "rows.db")
    with pytest.raises(MillpondError, match="MP804"):
        store_in(tmp_path)


def test_a_dropped_table_comes_back_empty(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.create(spec(tmp_path)).insert(ROWS)
    store.drop("t")
    store.create(spec(tmp_path, schema=Schema.of([Column("n", pa.int64())]))).insert([{"n": 1}])
    store.close()
    store = store_in(tmp_path)
    assert store.table("t").values("n") == [1]
    store.close()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "rows.db") as other:
        other.execute("CREATE TABLE t (x)")
    store = store_in(tmp_path)
    with pytest.raises(MillpondError, match="MP409"):
        store.create(spec(tmp_path))
    assert store.names() == ()
    store.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.db").write_bytes(b"not a database, and long enough not to be taken for one" * 100)
    store = store_in(tmp_path)
    with pytest.raises(MillpondError, match=r"MP804.*rows\.db"):
        store.create(spec(tmp_path))
    store.close()


def test_a_log_that_refuses_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_in(tmp_path)
    table = store.create(spec(tmp_path))
    table.insert(ROWS[:2])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fdatasync", full)
        with pytest.raises(MillpondError, match="MP805"):
            table.insert(ROWS[2:])
    assert len(table) == 2
    table.insert(ROWS[2:])
    store.close()
    store = store_in(tmp_path)
    assert len(store.table("t")) == 4
    store.close()


def test_a_name_that_sqlite_keeps_for_itself_is_reported(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tables")
    values = {"path": str(tmp_path / "t.db")}
    store.create(TableSpec("sqlite", SCHEMA, "sqlite", values)).insert([{"k": 1}])
    with pytest.raises(MillpondError, match=r"MP409.*sqlite_rows"):
        store.create(TableSpec("sqlite_rows", SCHEMA, "sqlite", values))
    assert store.names() == ("sqlite",)
    store.close()


def test_a_table_without_a_path_is_in_a_file_of_its_folder_that_moves_with_it(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    for name in ("t", "u"):
        store.create(TableSpec(name, SCHEMA, backend="sqlite"))
        store.table(name).insert(ROWS[:2])
    store.close()
    moved = (tmp_path / "store").rename(tmp_path / "moved")
    assert (moved / "tables.sqlite").stat().st_mode & 0o777 == 0o600
    again = open_store(moved)
    again.table("t").insert(ROWS[2:])
    assert (len(again.table("t")), len(again.table("u"))) == (4, 2)
    again.close()
    assert not (tmp_path / "store").exists()


def test_bulk_changes_and_lookups_take_few_statements(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    table = store.create(TableSpec("u", SCHEMA, "sqlite", {"path": str(tmp_path / "u.db")}))
    rows = [{"k": k, "name": f"n{k % 7}", "age": k, "price": Decimal(k), "ratio": k / 3} for k in range(2_000)]
    table.insert(rows)
    table.create_index("name")
    database: Any = table.rows._database  # type: ignore[attr-defined]
    seen: list[str] = []
    for connection in (database._writer, database._reader()):
        connection.set_trace_callback(seen.append)
    table.upsert([{**row, "name": "new"} for row in rows[::-1]])
    assert table.lookup(list(range(3_000))).num_rows == 2_000
    assert table.lookup(["new"], by="name").num_rows == 2_000
    assert table.delete(keys=list(range(1_000))) == 1_000
    assert table.to_arrow().column("k").to_pylist() == list(range(1_999, 999, -1))
    assert len(seen) < 60
    store.close()
