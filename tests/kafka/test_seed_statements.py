"""Statements as users have written them elsewhere, each after the stream that it takes for granted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.broker import Broker
from tests.kafka.topics import Topic

import millpond as mp
from millpond.app.planning import plan_text

STREAMS = """
SET kafka.brokers = '{brokers}';
CREATE STREAM kafka_users FROM kafka://users;
CREATE STREAM kafka_events FROM kafka://events;
CREATE STREAM kafka_stream FROM kafka://stream;
CREATE STREAM kafka_new_topic FROM kafka://new-topic;
"""
RUN = """
-- Wildcard field discovery (automatically discovers all fields)
CREATE TABLE user_profiles AS
SELECT * FROM kafka_users;

-- Read from latest offset (for real-time processing)
CREATE TABLE live_events AS
SELECT * FROM kafka_events
WITH ("auto.offset.reset" = "latest");

-- High-performance exponential backoff (default behavior - optimized)
CREATE TABLE orders AS
SELECT * FROM kafka_topic('orders')
WITH (
    "topic.wait.timeout" = "5m",
    -- Defaults to exponential strategy with 1.5x multiplier for optimal performance
    "auto.offset.reset" = "latest"
);

-- Kafka-based materialized table
CREATE TABLE user_analytics AS
SELECT user_id, COUNT(*) as order_count
FROM kafka://orders
GROUP BY user_id;
"""
PLANNED = (
    """CREATE TABLE historical_data AS
SELECT * FROM kafka_events
WITH ("auto.offset.reset" = "earliest");""",
    """CREATE TABLE mixed_case AS
SELECT * FROM kafka_stream
WITH ("auto.offset.reset" = "LATEST");""",
    """CREATE TABLE user_events AS
SELECT * FROM kafka_events
WITH (
    "auto.offset.reset" = "latest",
    "topic.wait.timeout" = "60s",
    "topic.retry.interval" = "5s"
);""",
    """CREATE TABLE financial_data AS
SELECT * FROM kafka_topic('financial-transactions')
WITH (
    "topic.wait.timeout" = "5m",
    "topic.retry.strategy" = "exponential",
    "topic.retry.interval" = "1s",
    "topic.retry.multiplier" = "1.5",    -- Lookup table optimization
    "topic.retry.max.delay" = "120s",    -- Production optimized
    "auto.offset.reset" = "latest"
);""",
    """CREATE TABLE high_throughput AS
SELECT * FROM kafka_topic('events')
WITH ("topic.wait.timeout" = "10m");""",
    """CREATE TABLE user_activity AS
SELECT
    user_id,
    COUNT(*) as event_count,
    MAX(timestamp) as last_activity
FROM kafka://user-events-topic
GROUP BY user_id;""",
    """CREATE TABLE user_positions AS
SELECT
    user_id,
    symbol,
    SUM(quantity) as position_size,
    SUM(quantity * price) as position_value
FROM kafka://trades-topic
GROUP BY user_id, symbol;""",
)
TOO_MANY = """CREATE TABLE auto_topic AS
SELECT * FROM kafka_new_topic
WITH (
    "topic.create.if.missing" = "true",
    "topic.partitions" = "3",
    "topic.replication" = "2"
);"""


@pytest.mark.parametrize("statement", [*PLANNED, TOO_MANY], ids=lambda text: text.split()[2])
def test_a_statement_is_understood_as_it_stands(statement: str) -> None:
    plan = plan_text(STREAMS.format(brokers="localhost:9092") + statement)
    assert plan.errors == ()
    assert len(plan.flows) == 1


@pytest.mark.spark
def test_statements_run_as_they_stand(broker: Broker, spark: Any, tmp_path: Path) -> None:
    users, events, orders = (Topic(broker.address, name) for name in ("users", "events", "orders"))
    for made in (users, events, orders):
        made.create()
    users.send(("1", {"name": "Ann", "age": 42}), ("1", {"name": "Bo", "age": 7}))
    events.send({"kind": "old"})
    orders.send({"user_id": "u1", "amount": 10.5})
    sql = STREAMS.format(brokers=broker.address) + RUN
    app = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    app.run_once()
    app.stop()
    events.send({"kind": "new"})
    orders.send({"user_id": "u1", "amount": 1.25})
    app = mp.App(sql=sql, state=tmp_path / "state", spark=spark)
    app.run_once()
    assert app.table("user_profiles").find().to_pylist() == [{"name": "Bo", "age": 7}]
    assert app.table("live_events").values("kind") == ["new"]
    assert [str(amount) for amount in app.table("orders").values("amount")] == ["1.3"]
    assert app.table("user_analytics").find().to_pylist() == [{"user_id": "u1", "order_count": 2}]
    app.stop()


@pytest.mark.spark
def test_more_replicas_than_brokers_are_a_configuration_error(
    broker: Broker, spark: Any, tmp_path: Path, topic: Callable[..., Any]
) -> None:
    app = mp.App(sql=STREAMS.format(brokers=broker.address) + TOO_MANY, state=tmp_path / "state", spark=spark)
    with pytest.raises(mp.MillpondError) as caught:
        app.run_once()
    assert caught.value.code == "MP508"
    assert "WITH ('topic.replication' = '1')" in caught.value.hint
    app.stop()
