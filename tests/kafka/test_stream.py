"""Kafka topics as streams, read beside a producer that is not ours."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_messages_arrive_once_and_in_order(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    orders = topic()
    orders.send({"id": 1, "price": "10.50"}, {"id": 2, "price": 7})
    sql = f"""
        CREATE STREAM orders (id INT, price DECIMAL(10,2)) FROM {orders.uri};
        CREATE TABLE seen (id INT, price DECIMAL(10,2), place BIGINT);
        INSERT INTO seen SELECT id, price, _offset FROM orders;
    """
    run(sql)
    orders.send({"id": 3, "price": 1.25})
    found = run(sql, ask="SELECT * FROM seen")
    assert [(r["id"], str(r["price"]), r["place"]) for r in found] == [(1, "10.50", 0), (2, "7.00", 1), (3, "1.25", 2)]
