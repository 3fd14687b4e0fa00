"""Kafka as a sink, read by a consumer that is not ours."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_rows_become_messages_with_key_headers_and_exact_decimals(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    orders, out = topic(), topic()
    orders.send({"id": 1, "price": "12345678901234567890.10"}, {"id": 2, "price": None})
    run(f"""
        CREATE STREAM orders (id INT, price DECIMAL(30,2)) FROM {orders.uri};
        INSERT INTO {out.uri} WITH ('key' = 'id') SELECT id, price FROM orders;
    """)
    first, second = out.read()
    assert first.value() == b'{"id":1,"price":12345678901234567890.10}'
    assert second.value() == b'{"id":2,"price":null}'
    assert (first.key(), second.key()) == (b"1", b"2")
    marks = dict(first.headers())
    assert set(marks) == {"millpond.flow", "millpond.batch", "millpond.row"}
    assert marks["millpond.row"] != dict(second.headers())["millpond.row"]


def test_a_declared_stream_can_be_written_to(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    orders, out = topic(), topic()
    orders.send({"id": 1}, {"id": 2})
    run(f"""
        CREATE STREAM orders (id INT) FROM {orders.uri};
        CREATE STREAM copies (id INT) FROM {out.uri};
        INSERT INTO copies SELECT id * 10 AS id FROM orders;
    """)
    assert out.values() == [{"id": 10}, {"id": 20}]
