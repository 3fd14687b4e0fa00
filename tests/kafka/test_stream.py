"""Kafka topics as streams, read beside a producer that is not ours."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

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


def test_rubbish_is_a_dead_letter_and_aborted_transactions_are_not_read(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    orders = topic()
    producer = Producer({"bootstrap.servers": orders.brokers, "transactional.id": orders.name})
    producer.init_transactions(20)
    for number, end in ((1, producer.commit_transaction), (2, producer.abort_transaction)):
        producer.begin_transaction()
        orders.send_by(producer, {"id": number})
        producer.flush(20)
        end(20)
    orders.send(b"\xff\x00rubbish", {"id": 3}, None, {"id": "four"})
    # The last thing in the topic: nothing of it may be read, nor waited for.
    producer.begin_transaction()
    orders.send_by(producer, *({"id": number} for number in range(100, 200)))
    producer.flush(20)
    producer.abort_transaction(20)
    sql = f"""
        CREATE STREAM orders (id INT) FROM {orders.uri};
        CREATE TABLE seen (id INT); INSERT INTO seen SELECT id FROM orders;
    """
    assert [r["id"] for r in run(sql, "SELECT id FROM seen ORDER BY id")] == [1, 3]
    producer.begin_transaction()
    orders.send_by(producer, {"id": 5})
    producer.flush(20)
    letters = run(sql, "SELECT partition, raw, CAST(position AS INT) AS p FROM dead_letters ORDER BY p")
    assert [(r["partition"], bytes(r["raw"])) for r in letters] == [("0", b"\xff\x00rubbish"), ("0", b'{"id": "four"}')]
    # Two messages stand between them.
    assert letters[1]["p"] - letters[0]["p"] == 3
    producer.commit_transaction(20)
    assert [r["id"] for r in run(sql, "SELECT id FROM seen ORDER BY id")] == [1, 3, 5]


def test_partitions_added_later_are_read_and_latest_loses_nothing_between_runs(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    orders = topic()
    orders.send({"id": 1})
    sql = f"""
        CREATE STREAM orders (id INT) FROM {orders.uri} WITH ('auto.offset.reset' = 'latest');
        CREATE TABLE seen (id INT); INSERT INTO seen SELECT id FROM orders;
    """
    assert run(sql, "SELECT id FROM seen") == []
    orders.send({"id": 2})
    orders.grow(2)
    orders.send({"id": 3}, partition=1)
    assert [r["id"] for r in run(sql, "SELECT id FROM seen ORDER BY id")] == [2, 3]
