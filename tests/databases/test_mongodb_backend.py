"""Tables whose rows are in MongoDB, by FerretDB: the contract of tables, what others see, and what a crash leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from tests.databases.servers import Database, until

import millpond as mp
from millpond.contracts.table import TableSpec
from millpond.errors import SourceError
from millpond.sql.parser import parse_expression
from millpond.tables.mongodb import MongoPart, filter_of
from millpond.tables.pushdown import pushed_part
from millpond.tables.store import open_store
from millpond.testing.documents import read_sections
from millpond.testing.remote_tables import RemoteTableContract
from millpond.testing.table_harness import ANN, BO
from millpond.testing.table_harness import USERS as HARNESS_USERS

App = Callable[..., mp.App]


class TestMongodb(RemoteTableContract):
    """MongoDB tables beside a state directory."""

    backend = "mongodb"
    # FerretDB replaces some hundred documents a second.
    many = 20

    @pytest.fixture(autouse=True)
    def _server(self, mongodb: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("millpond.tables.mongodb.BEAT_S", 0.05)
        self.database, self.options = mongodb, {"url": mongodb.uri}

    def outside(self, table: str) -> int:
        return int(self.database.connect()[table].count_documents({}))


CARTS = (
    "CREATE TABLE carts (cart_id STRING PRIMARY KEY, total DECIMAL(12,2), n BIGINT, seen TIMESTAMP, "
    "items ARRAY<STRUCT<sku: STRING, price: DECIMAL(12,2)>>, tags MAP<STRING, BIGINT>, INDEX (n))"
)
STREAM = "CREATE STREAM s (cart_id STRING, n BIGINT) FROM 'file:in.jsonl';"


def on(database: Database, **more: str) -> str:
    options = {"backend": "mongodb", "url": database.uri, **more}
    return "WITH (" + ", ".join(f"'{name}' = '{value}'" for name, value in options.items()) + ")"


def write(folder: Path, *rows: dict[str, object]) -> None:
    with (folder / "in.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def test_rows_are_documents_that_others_read(mongodb: Database, run: App, tmp_path: Path) -> None:
    write(tmp_path, {"cart_id": "a", "n": 1}, {"cart_id": "b"}, {"cart_id": "a", "n": 5})
    app = run(
        f"{CARTS} {on(mongodb)};",
        STREAM,
        "INSERT INTO carts (cart_id, n) SELECT cart_id, n FROM s;",
        "CREATE TABLE sums AS SELECT cart_id, SUM(n) AS n FROM s GROUP BY cart_id",
        f"  {on(mongodb, collection='all_sums')};",
        f"CREATE TABLE pairs (a STRING, b INT, PRIMARY KEY (a, b)) {on(mongodb)};",
        "INSERT INTO pairs VALUES ('x:y', 1), ('x%', 2);",
        "INSERT INTO carts VALUES ('c', 12.50, 5, TIMESTAMP '2026-11-18T10:00:00.000001Z', "
        "array(named_struct('sku', 'p1', 'price', CAST(12.50 AS DECIMAL(12,2)))), map('x.y', 1L));",
        once=True,
    )
    client = mongodb.connect()
    assert client["carts"].find_one({"cart_id": "c"}) == {
        "_id": "c",
        "cart_id": "c",
        "total": "12.50",
        "n": 5,
        "seen": "2026-11-18T10:00:00.000001Z",
        "items": [{"sku": "p1", "price": "12.50"}],
        "tags": [{"key": "x.y", "value": 1}],
    }
    assert client["carts"].find_one({"_id": "b"})["n"] is None
    assert client["all_sums"].find_one({"cart_id": "a"})["n"] == 6
    assert sorted(row["_id"] for row in client["pairs"].find()) == ["x%25:2", "x%3Ay:1"]
    assert app.table("pairs").get(("x:y", 1)) == {"a": "x:y", "b": 1}
    held = app.table("carts").get("c")
    assert held is not None
    assert (held["total"], held["items"], held["tags"]) == (
        Decimal("12.50"),
        [{"sku": "p1", "price": Decimal("12.50")}],
        {"x.y": 1},
    )
    assert app.query("SELECT cart_id FROM carts WHERE n IS NULL").rows() == [{"cart_id": "b"}]
    assert {"n": 1} in [dict(index["key"]) for index in client["carts"].list_indexes()]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("age > 5 AND name LIKE 'A%'", {"$and": [{"age": {"$gt": 5}}]}),
        ("age IN (1, 2)", {"$and": [{"$or": [{"age": {"$eq": 1}}, {"age": {"$eq": 2}}]}]}),
        ("name IS NULL", {"$and": [{"name": None}]}),
        ("age BETWEEN 1 AND 2", {"$and": [{"$and": [{"age": {"$gte": 1}}, {"age": {"$lte": 2}}]}]}),
        ("age BETWEEN SYMMETRIC 2 AND 1", None),
        ("tier <> 'GOLD' OR 3 >= age", {"$and": [{"$or": [{"tier": {"$ne": "GOLD"}}, {"age": {"$lte": 3}}]}]}),
        ("balance > 1", None),
        ("upper(name) = 'ANN'", None),
    ],
)
def test_conditions_on_whole_numbers_and_texts_are_filters(condition: str, expected: object) -> None:
    part = pushed_part(parse_expression(condition), HARNESS_USERS, [])
    assert (None if part is None else filter_of(part)) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'backend' = 'mongodb'", "MP305(.|\n)*no 'url'"),
        ("'backend' = 'mongodb', 'url' = 'http://h/d'", "MP302(.|\n)*for http, not for mongodb"),
        ("'backend' = 'mongodb', 'url' = 'mongodb://h'", "MP302(.|\n)*names a database"),
    ],
)
def test_wrong_options_are_errors_of_check(tmp_path: Path, options: str, expected: str) -> None:
    (tmp_path / "app.sql").write_text(f"CREATE TABLE t (id INT PRIMARY KEY, name STRING) WITH ({options});")
    with pytest.raises(mp.MillpondError, match=expected):
        mp.App(tmp_path / "app.sql", state=tmp_path / "state")


def test_a_column_that_a_document_cannot_have_is_an_error_of_check(tmp_path: Path) -> None:
    options = "'backend' = 'mongodb', 'url' = 'mongodb://h/d'"
    (tmp_path / "app.sql").write_text(f"CREATE TABLE t (id INT PRIMARY KEY, `a.b` STRING) WITH ({options});")
    with pytest.raises(mp.MillpondError, match=r"MP302(.|\n)*'a.b'"):
        mp.App(tmp_path / "app.sql", state=tmp_path / "state")


def test_documents_of_others_are_not_taken_over(mongodb: Database, run: App) -> None:
    mongodb.connect()["carts"].insert_one({"x": 1})
    with pytest.raises(mp.MillpondError, match=r"MP409(.|\n)*not written by Millpond"):
        run(f"{CARTS} {on(mongodb)};", once=True)


def test_a_writer_that_is_silent_is_replaced(
    mongodb: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TableSpec("users", HARNESS_USERS, "mongodb", {"url": mongodb.uri})
    silent = open_store(tmp_path / "silent")
    left = silent.create(spec)
    left.insert([ANN])
    monkeypatch.setattr("millpond.tables.mongodb.LEASE_S", 0.2)
    second = open_store(tmp_path / "second")
    second.create(spec).update("user_id = 'u1'", {"age": 1})
    with pytest.raises(mp.MillpondError, match=r"MP801(.|\n)*taken over"):
        left.update("user_id = 'u1'", {"age": 2})
    assert second.table("users").values("age") == [1]
    second.close()
    silent.close()


def test_the_counter_of_the_writer_leaves_the_mark_alone(
    mongodb: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.tables.mongodb.BEAT_S", 0.001)
    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", HARNESS_USERS, "mongodb", {"url": mongodb.uri}))
    users.insert([ANN])
    for age in range(50):
        users.update("user_id = 'u1'", {"age": age})
    marks = mongodb.connect()["millpond_commits"]
    assert [row["version"] for row in marks.find({"_id": "collection users"})] == [51]
    store.close()
    assert [row["_id"] for row in marks.find()] == ["collection users"]


def test_a_connection_lost_between_rows_and_mark_changes_once(
    mongodb: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = MongoPart.commit

    def lose(part: MongoPart) -> None:
        monkeypatch.setattr(MongoPart, "commit", commit)
        table, _, documents = part._changes[0]
        table.rows_in(table.database).insert_many(documents)
        raise SourceError("MP506", "lost")

    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", HARNESS_USERS, "mongodb", {"url": mongodb.uri}))
    monkeypatch.setattr(MongoPart, "commit", lose)
    users.insert([ANN])
    store.checkpoint()
    assert mongodb.connect()["users"].count_documents({}) == 1
    assert users.get("u1") == ANN
    users.update("user_id = 'u1'", {"age": 2})
    assert mongodb.connect()["users"].find_one({"_id": "u1"})["age"] == 2
    store.close()


def test_a_copy_has_a_collection_of_its_own(mongodb: Database, tmp_path: Path) -> None:
    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", HARNESS_USERS, "mongodb", {"url": mongodb.uri, "collection": "people"}))
    users.insert([ANN])
    users.copy("kept").delete(keys=["u1"])
    counts = [mongodb.connect()[name].count_documents({}) for name in ("people", "kept")]
    store.close()
    assert counts == [1, 0]


def test_several_writers_share_a_collection(mongodb: Database, tmp_path: Path) -> None:
    options = {"url": mongodb.uri, "shared": True}
    spec = TableSpec("users", HARNESS_USERS, "mongodb", options)
    rows = mongodb.connect()["users"]
    rows.insert_one({"_id": "u3", "user_id": "u3", "tier": "NEW"})
    stores = [open_store(tmp_path / name) for name in ("first", "second")]
    first, second = (store.create(spec) for store in stores)
    first.insert([ANN])
    second.upsert([BO])
    first.update("user_id = 'u2'", {"age": 50})
    assert (len(first), second.get("u2")) == (3, {**BO, "age": 50})
    rows.update_one({"_id": "u1"}, {"$set": {"tier": "NEW"}})
    assert sorted(second.values("user_id", "tier = 'NEW'")) == ["u1", "u3"]
    for store in stores:
        store.close()
    again = open_store(tmp_path / "first")
    again.create(spec).delete(keys=["u2"])
    again.drop("users")
    again.create(spec)
    again.close()
    # Others may need them: the documents stay.
    assert sorted(row["_id"] for row in rows.find()) == ["u1", "u3"]


def test_views_follow_what_others_write_to_a_collection(mongodb: Database, run: App) -> None:
    with_ = f"WITH ('backend' = 'mongodb', 'url' = '{mongodb.uri}', 'shared' = 'true', 'poll.interval' = '100ms')"
    app = run(
        f"CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING, n BIGINT) {with_};",
        "CREATE TABLE by_tier AS SELECT tier, SUM(n) AS n FROM users GROUP BY tier;",
    )
    app.table("users").upsert([{"user_id": "a", "tier": "GOLD", "n": 1}])
    assert app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 1}
    mongodb.connect()["users"].insert_one({"_id": "b", "user_id": "b", "tier": "GOLD", "n": 10})
    until(lambda: app.table("by_tier").get("GOLD") == {"tier": "GOLD", "n": 11})


PAGE = Path(__file__).parents[2] / "docs" / "backends.md"


def test_the_example_of_the_page_runs(mongodb: Database, run: App, tmp_path: Path) -> None:
    blocks = [block for section in read_sections(PAGE) for block in section.blocks]
    app_text = next(block.body for block in blocks if block.title == "mongodb.sql")
    (tmp_path / "orders.jsonl").write_text('{"cart_id": "c1", "sku": "p1", "price": "2.50"}\n')
    run(app_text.replace("mongodb://localhost/shop", mongodb.uri), once=True)
    expected = {"_id": "c1", "cart_id": "c1", "total": "2.50", "last": {"sku": "p1", "price": "2.50"}}
    assert mongodb.connect()["carts"].find_one({}) == expected
