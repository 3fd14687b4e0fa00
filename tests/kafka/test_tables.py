"""Tables kept from Kafka by the keys of messages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import StateError

pytestmark = pytest.mark.spark


def test_the_last_message_of_a_key_stays_and_a_null_value_deletes(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    users = topic()
    users.send(("a", {"n": 1}), ("b", {"n": 2}), ("a", {"n": 3}), {"n": 4}, {"n": 5})
    sql = f"CREATE TABLE users AS SELECT * FROM {users.uri};"
    ask = "SELECT * FROM users ORDER BY n"
    assert run(sql, ask) == [{"n": 2}, {"n": 3}, {"n": 4}, {"n": 5}]
    users.send(("b", None), ("c", {"n": 6}), ("c", None), ("nobody", None), ("d", None), ("d", {"n": 7}))
    assert run(sql, ask) == [{"n": 3}, {"n": 4}, {"n": 5}, {"n": 7}]


def test_a_primary_key_is_what_the_message_key_holds(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    users = topic()
    users.send(("1", {"id": 1, "tier": "A"}), ("2", {"tier": "B"}), ("3", {"id": 3, "tier": "X"}))
    sql = f"""
        CREATE STREAM users (id INT, tier STRING) FROM {users.uri};
        CREATE TABLE kept PRIMARY KEY (id) AS SELECT id, lower(tier) AS tier FROM users WHERE tier <> 'X';
        CREATE TABLE every (id INT, tier STRING);
        INSERT INTO every SELECT * FROM users;
    """
    ask = "SELECT id, tier FROM kept ORDER BY id"
    assert run(sql, ask) == [{"id": 1, "tier": "a"}, {"id": 2, "tier": "b"}]
    users.send(("1", None), ("2", {"id": 2, "tier": "X"}), ("3", {"id": 3, "tier": "C"}), ("rubbish", None))
    assert run(sql, ask) == [{"id": 3, "tier": "c"}]
    (counts,) = run(sql, "SELECT (SELECT COUNT(*) FROM every) AS n, (SELECT MAX(reason) FROM dead_letters) AS why")
    assert counts == {"n": 5, "why": "column 'id': the message key 'rubbish' is not INT"}


def test_key_none_keeps_every_record_and_a_key_that_values_lack_is_added(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    users = topic()
    users.send(("a", {"n": 1}), ("a", {"n": 2}), ("a", None), (b"\xffb", {"n": 3}), ("c", {"n": 4}))
    sql = f"""
        CREATE TABLE users AS SELECT CAST(_key AS STRING) AS text, n FROM {users.uri} WITH ('key' = 'none');
        CREATE TABLE held PRIMARY KEY (id) AS SELECT * FROM {users.uri};
    """
    ask = "SELECT 'users' AS t, text, n FROM users UNION ALL SELECT 'held', id, n FROM held ORDER BY t, n"
    assert [tuple(row.values()) for row in run(sql, ask)] == [
        ("held", "c", 4),
        ("users", "a", 1),
        ("users", "a", 2),
        ("users", "\ufffdb", 3),
        ("users", "c", 4),
    ]


def test_what_a_derived_stream_or_a_join_makes_of_a_message_goes_with_it(
    topic: Callable[..., Any], spark: Any, tmp_path: Path
) -> None:
    users, tiers, black = topic(), topic(), topic()
    users.send(("1", {"id": 1, "tier": "a", "n": 5}), ("2", {"id": 2, "tier": "b", "n": 6}))
    users.send(("3", {"id": 3, "tier": "a", "n": 7}), ("4", {"id": 4, "tier": "a", "n": 1}))
    tiers.send(("a", {"title": "Ace"}), ("b", {"title": "Base"}), ("gone", {"title": "x"}), ("gone", None))
    black.send({"id": 3})
    sql = f"""
        CREATE STREAM users (id INT, tier STRING, n INT) FROM {users.uri};
        CREATE STREAM big AS SELECT id, tier, n FROM users WHERE n > 4;
        CREATE TABLE kept AS SELECT * FROM big;
        CREATE TABLE titles PRIMARY KEY (id) AS
          SELECT b.id, t.title FROM big b JOIN {tiers.uri} WITH ('key' = 'tier') t ON t.tier = b.tier
          WHERE b.id NOT IN (SELECT x.id FROM {black.uri} x);
        CREATE TABLE all_tiers AS SELECT k.id, t.title FROM kept k JOIN {tiers.uri} WITH ('key' = 'tier') t
          ON t.tier = k.tier;
    """
    app = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    app.run_once()
    kept = app.table("kept")
    assert kept.find("n > 5").to_pylist() == [{"id": 2, "tier": "b", "n": 6}, {"id": 3, "tier": "a", "n": 7}]
    assert kept.schema.names == ("id", "tier", "n")
    assert sorted(app.tables()) == ["all_tiers", "dead_letters", "kept", "titles"]
    ask = "SELECT id, title FROM titles ORDER BY id"
    assert app.query(ask).rows() == [{"id": 1, "title": "Ace"}, {"id": 2, "title": "Base"}]
    assert len(app.table("all_tiers")) == 3
    app.stop()
    users.send(("1", None), ("2", {"id": 2, "tier": "b", "n": 0}), ("3", None), ("3", {"id": 3, "tier": "b", "n": 8}))
    users.send(("5", {"id": 5, "tier": "nobody", "n": 9}))
    app = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    app.run_once()
    assert sorted(app.table("kept").values("id")) == [3, 5]
    assert app.query(ask).rows() == []
    assert app.query("SELECT * FROM all_tiers").rows() == [{"id": 3, "title": "Base"}]
    app.stop()


def test_a_key_of_several_columns_is_an_object(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    stock = topic()
    stock.send(('{"shop": "a", "sku": 1}', {"shop": "a", "sku": 1, "n": 5}), ("b|2", {"shop": "b", "sku": 2, "n": 6}))
    stock.send(('{"shop": "a", "sku": 1}', None), ("b|2", None))
    sql = f"""
        CREATE STREAM stock (shop STRING, sku INT, n INT) FROM {stock.uri};
        CREATE TABLE kept PRIMARY KEY (shop, sku) AS SELECT * FROM stock;
    """
    assert run(sql, "SELECT * FROM kept") == [{"shop": "b", "sku": 2, "n": 6}]
    reason = "column 'shop': the message key 'b|2' is not an object with a STRING of that name"
    assert run(sql, "SELECT reason FROM dead_letters") == [{"reason": reason}]


def test_an_edit_that_loses_what_a_topic_may_no_longer_have_is_refused(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    orders, users = topic(), topic()
    orders.send({"id": 1, "user_id": "u1"})
    users.send(("u1", {"name": "Ann"}), ("u2", {"name": "Bo"}))

    def app(name: str, key: str) -> str:
        return f"""
            CREATE STREAM orders (id INT, user_id STRING) FROM {orders.uri};
            CREATE TABLE names AS SELECT {name} AS name FROM {users.uri};
            CREATE TABLE seen (id INT, name STRING);
            INSERT INTO seen SELECT o.id, u.name FROM orders o
              JOIN {users.uri} WITH ('key' = '{key}') u ON u.{key} = o.user_id;
        """

    run(app("name", "user_id"))
    with pytest.raises(StateError) as caught:
        run(app("upper(name)", "uid"))
    assert [(p.code, p.message) for p in caught.value.problems] == [
        ("MP806", "The definition of the table 'names' has changed; its rows would be lost (2)."),
        (
            "MP806",
            "A statement was changed or removed; the rows of a source that it reads as a table, and that the source may"
            " no longer have, would be lost (2).",
        ),
    ]
