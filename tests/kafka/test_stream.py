"""Kafka topics as streams, read beside a producer that is not ours."""

import shutil
from collections.abc import Callable
from pathlib import Path
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


def test_several_topics_and_a_pattern_are_one_stream_with_keys_and_headers(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    first, second = topic(), topic()
    second.send(("k", {"id": 1}), headers=[("trace", b"old"), ("trace", b"new")])
    first.send({"id": 2})
    listed = f"'kafka://{first.brokers}/{second.name},{first.name}'"
    sql = f"""
        CREATE STREAM listed (id INT) FROM {listed};
        CREATE STREAM matching (id INT) FROM 'kafka://{first.brokers}/({first.name}|{second.name})';
        CREATE TABLE a (id INT, topic STRING, k STRING, trace STRING);
        INSERT INTO a SELECT id, _source, CAST(_key AS STRING), CAST(_headers['trace'] AS STRING) FROM listed;
        CREATE TABLE b (id INT); INSERT INTO b SELECT id FROM matching;
    """
    assert run(sql, "SELECT * FROM a") == [
        {"id": 1, "topic": second.name, "k": "k", "trace": "new"},
        {"id": 2, "topic": first.name, "k": None, "trace": None},
    ]
    assert sorted(r["id"] for r in run(sql, "SELECT id FROM b")) == [1, 2]


def test_bad_records_of_a_batch_that_passes_once_are_dead_letters(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    orders, count = topic(2), 41_000
    orders.send(*(b"x,y,z" if i in (7, count - 1) else b"%d,n" % i for i in range(count)))
    sql = f"""
        CREATE STREAM orders (id INT, name STRING) FROM {orders.uri} WITH ('format' = 'csv');
        CREATE TABLE seen (id INT); INSERT INTO seen SELECT id FROM orders;
    """
    asked = "SELECT COUNT(*) AS n, SUM(id) AS total, (SELECT COUNT(*) FROM dead_letters) AS bad FROM seen"
    total = sum(range(count)) - 7 - (count - 1)
    assert run(sql, asked) == [{"n": count - 2, "total": total, "bad": 2}]


def test_the_ledger_says_where_to_go_on_whatever_has_become_of_the_checkpoint(
    topic: Callable[..., Any], run: Callable[..., Any], tmp_path: Path
) -> None:
    orders = topic()
    sql = f"""
        CREATE STREAM orders (id INT) FROM {orders.uri} WITH ('max.rows.per.batch' = '2');
        CREATE TABLE seen (id INT); INSERT INTO seen SELECT id FROM orders;
    """
    orders.send(*({"id": number} for number in range(5)))
    run(sql)

    def rewrite(name: str, change: Callable[[str], str]) -> None:
        (file,) = (tmp_path / "state").glob(f"flows/*/checkpoint/{name}")
        file.write_text(change(file.read_text()))

    (checkpoint,) = (tmp_path / "state").glob("flows/*/checkpoint")
    assert ":5}" in (checkpoint / "offsets" / "2").read_text()
    damages: list[Callable[[], object]] = [
        lambda: rewrite("offsets/2", lambda text: text.replace(":5}", ":3}")),
        lambda: rewrite("offsets/2", lambda text: text[: len(text) // 2]),
        lambda: rewrite("metadata", lambda text: ""),
        lambda: shutil.rmtree(checkpoint),
    ]
    for number, damage in enumerate(damages, 5):
        damage()
        orders.send({"id": number})
        assert [r["id"] for r in run(sql, "SELECT id FROM seen")] == list(range(number + 1))
