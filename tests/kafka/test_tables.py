"""Tables kept from Kafka by the keys of messages."""

from collections.abc import Callable
from typing import Any

import pytest

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


def test_key_none_keeps_every_record(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    users = topic()
    users.send(("a", {"n": 1}), ("a", {"n": 2}), ("a", None))
    sql = f"CREATE TABLE users AS SELECT * FROM {users.uri} WITH ('key' = 'none');"
    assert run(sql, "SELECT n FROM users ORDER BY n") == [{"n": 1}, {"n": 2}]
