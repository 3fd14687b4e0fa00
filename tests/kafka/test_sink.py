"""Kafka as a sink, read by a consumer that is not ours."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_ports

import millpond as mp

pytestmark = pytest.mark.spark
PATIENCE_S = 60.0


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
    assert set(marks) == {"millpond.app", "millpond.flow", "millpond.batch", "millpond.row"}
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


def test_a_broker_that_is_not_there_is_reported_as_the_sinks(
    topic: Callable[..., Any], spark: Any, tmp_path: Path
) -> None:
    orders, port = topic(), free_ports(1)[0]
    orders.send({"id": 1})
    uri = f"kafka://localhost:{port}/out"
    sql = f"CREATE STREAM orders (id INT) FROM {orders.uri}; INSERT INTO {uri} SELECT id FROM orders;"
    app = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    started = threading.Thread(target=app.start)
    started.start()
    deadline = time.monotonic() + PATIENCE_S
    while not (flows := app.progress().flows) or flows[0].state != "retrying":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert flows[0].error == f"MP602 {uri} cannot be written. No broker responds at localhost:{port}."
    assert app.progress().sources[0].health == "healthy"
    app.stop()
    started.join()


def test_many_rows_without_keys_are_spread_over_partitions_each_in_order_with_marks_of_their_own(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    out, count = topic(3), 120_000
    run(f"INSERT INTO {out.uri} SELECT seq FROM 'generate://?rows={count}';")
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    marks = set()
    for message in out.read():
        number = json.loads(message.value())["seq"]
        found[message.partition()].append(number)
        marks.add(dict(message.headers())["millpond.row"])
    assert all(numbers == sorted(numbers) and numbers for numbers in found.values())
    assert sorted(n for numbers in found.values() for n in numbers) == list(range(count))
    assert len(marks) == count
