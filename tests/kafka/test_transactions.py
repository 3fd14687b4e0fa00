"""Exactly once into Kafka: readers of committed messages see each row once, wherever the process ends."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.broker import LOGIN_MODULE, PASSWORD, USER, Broker
from tests.kafka.topics import Topic, until
from tests.ports import free_ports

import millpond as mp
from millpond.app.planning import plan_text
from millpond.errors import MillpondError, SinkError
from millpond.kafka.address import Address
from millpond.kafka.librdkafka import c_properties, untranslated
from millpond.plan.explain import explain_text
from millpond.plan.model import Plan
from millpond.testing.sinks import SinkContract

ONCE = "WITH ('delivery' = 'exactly-once')"
KILLED = 137
# Every point that a batch of a flow passes; the number is that of the batch in its process.
POINTS = (
    "flow.worked:2",
    "flow.committed:2",
    "sink.ready:2",
    "sink.sent:1",
    "sink.sent:2",
    "sink.applied:2",
    "flow.published:2",
)
ROWS, BATCH_ROWS = 2000, 100


class TestTransactionalSink(SinkContract):
    """A topic of one partition, read as far as it is committed."""

    options = {"delivery": "exactly-once"}

    @pytest.fixture(autouse=True)
    def _prepared(self, tmp_path: Path, spark: Any, topic: Callable[..., Topic]) -> None:
        self.folder, self.spark, self.topic = tmp_path, spark, topic()
        self.uri = self.topic.uri

    def numbers(self) -> list[int]:
        return [value["n"] for value in self.topic.values(committed=True)]


@pytest.mark.process
def test_processes_that_end_at_every_step_write_every_row_once(topic: Callable[..., Any], tmp_path: Path) -> None:
    out = topic(2)
    (tmp_path / "events.jsonl").write_text("".join(f'{{"id": {i}}}\n' for i in range(ROWS)))
    (tmp_path / "app.sql").write_text(f"""
        CREATE STREAM events (id INT) FROM 'file://./events.jsonl' WITH ('max.rows.per.batch' = '{BATCH_ROWS}');
        CREATE TABLE seen (id INT);
        INSERT INTO seen SELECT id FROM events;
        INSERT INTO {out.uri} WITH ('delivery' = 'exactly-once', 'key' = 'id') SELECT id, id * 2 AS twice FROM events;
    """)
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--once", "--state", "state", "--no-http"]

    def run(fault: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "MILLPOND_FAULT": fault}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    # Each process continues what the one before it has left.
    for point in POINTS:
        ended = run(point)
        assert ended.returncode == KILLED, (point, ended.stderr)
        ids = [int(message.key()) for message in out.read(committed=True)]
        assert len(ids) == len(set(ids)), point
    ended = run("")
    assert ended.returncode == 0, ended.stderr
    found = out.read(committed=True)
    assert sorted(int(message.key()) for message in found) == list(range(ROWS))
    assert all(message.headers() is None for message in found), "no marks are needed"


@pytest.mark.spark
def test_rows_that_spark_computes_changes_and_one_shot_statements_are_written_once(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    orders, out, changes, once = topic(), topic(), topic(), topic()
    orders.send({"id": 1, "note": "a"}, {"id": 2, "note": "b"}, {"id": 3, "note": "b"})
    sql = f"""
        CREATE STREAM orders (id INT, note STRING) FROM {orders.uri};
        CREATE TABLE counts AS SELECT note, COUNT(*) AS n FROM orders GROUP BY note;
        INSERT INTO {out.uri} WITH ('delivery' = 'exactly-once', 'key' = 'id', 'headers' = 'note')
          SELECT id, note, soundex(note) AS sound FROM orders;
        INSERT INTO {changes.uri} {ONCE} SELECT note, n FROM CHANGES(counts);
        INSERT INTO {once.uri} {ONCE} SELECT 7 AS n;
    """
    run(sql)
    run(sql)
    assert [(m.key(), m.headers()) for m in out.read(committed=True)] == [
        (b"1", [("note", b"a")]),
        (b"2", [("note", b"b")]),
        (b"3", [("note", b"b")]),
    ]
    assert sorted(v["n"] for v in changes.values(committed=True)) == [1, 2]
    assert once.values(committed=True) == [{"n": 7}]


@pytest.mark.spark
def test_outputs_wait_for_a_broker_that_is_away(
    topic: Callable[..., Any], broker: Broker, spark: Any, tmp_path: Path
) -> None:
    out = topic()
    feed = tmp_path / "in"
    feed.mkdir()
    sql = f"""
        CREATE STREAM events (id INT) FROM 'file://{feed}/*.jsonl';
        INSERT INTO {out.uri} {ONCE} SELECT id FROM events;
    """
    (feed / "1.jsonl").write_text('{"id": 1}\n')
    with mp.App(sql=sql, state=tmp_path / "state", spark=spark) as app:
        until(lambda: out.values(committed=True), "the first message")
        broker.stop()
        try:
            (feed / "2.jsonl").write_text('{"id": 2}\n')
            until(lambda: app.progress().flows[0].state == "retrying", "a flow that tries again")
            assert app.progress().flows[0].error.startswith("MP602")
        finally:
            broker.start()
        until(lambda: len(out.values(committed=True)) > 1, "the message that waited")
    assert [value["id"] for value in out.values(committed=True)] == [1, 2]


@pytest.mark.spark
def test_an_output_of_unknown_fate_is_reported_and_not_sent_twice(
    topic: Callable[..., Any], run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millpond.sinks import kafka_transactions

    out = topic()
    (tmp_path / "events.jsonl").write_text('{"id": 1}\n')
    sql = f"INSERT INTO {out.uri} {ONCE} SELECT id FROM 'file://{tmp_path}/events.jsonl';"

    def end(point: str) -> None:
        if point == "sink.applied":
            raise RuntimeError("the process ends here")

    with monkeypatch.context() as ending:
        ending.setattr(kafka_transactions, "reach", end)
        with pytest.raises(MillpondError) as ended:
            run(sql)
    assert "the process ends here" in str(ended.value)
    (folder,) = (tmp_path / "state" / "sinks").iterdir()
    # Kafka completes a transaction after the producer was answered.
    until(lambda: any(group.endswith(folder.name) for group in out.groups()), "the group of the sink")
    (group,) = (group for group in out.groups() if group.endswith(folder.name))
    assert group.startswith("millpond-")
    out.forget_group(group)
    with pytest.raises(SinkError, match="It is not known whether the output") as failed:
        run(sql)
    assert "Then start again" in failed.value.hint
    next(tmp_path.glob("state/sinks/*/*.ready")).unlink()
    run(sql)
    assert out.values(committed=True) == [{"id": 1}]


def test_explain_and_check_report_what_holds(tmp_path: Path) -> None:
    def plan(options: str) -> Plan:
        return plan_text(f"INSERT INTO 'kafka://h:9092/out' WITH ({options}) SELECT 1 AS a;", base=tmp_path)

    def problems(options: str) -> list[str]:
        return [problem.message for problem in plan(options).errors]

    once = "'delivery' = 'exactly-once'"
    assert "kafka, exactly once" in explain_text(plan(once))
    assert "kafka, at least once" in explain_text(plan("'linger' = '0s'"))
    assert problems(once) == []
    assert problems(f"{once}, 'acks' = '1'") == ["With 'delivery' = 'exactly-once', 'acks' must be 'all'."]
    assert "has no equivalent" in problems(f"{once}, 'kafka.partitioner.class' = 'x.Y'")[0]
    assert "write 'delivery'" in problems("'kafka.transactional.id' = 'x'")[0]
    assert problems("'transaction.prefix' = 'x'") != []


def test_options_of_the_client_in_java_are_translated() -> None:
    login = f'{LOGIN_MODULE} required username="{USER}" password="a\\"b";'
    values = {
        "kafka.sasl.jaas.config": login,
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.max.request.size": "1000",
        "kafka.ssl.truststore.location": "ca.pem",
        "kafka.ssl.truststore.type": "PEM",
    }
    assert untranslated(values) is None
    found = c_properties(Address("h:1", ("t",)), values)
    assert (found["sasl.username"], found["sasl.password"]) == (USER, 'a"b')
    assert (found["message.max.bytes"], found["ssl.ca.location"]) == ("1000", "ca.pem")
    assert untranslated({"kafka.ssl.truststore.location": "ca.jks"}) == "kafka.ssl.truststore.location"
    assert untranslated({"kafka.sasl.jaas.config": "x.OAuthBearerLoginModule required;"}) == "kafka.sasl.jaas.config"


@pytest.mark.spark
def test_a_login_is_used_and_a_wrong_one_reported(
    topic: Callable[..., Any], broker: Broker, run: Callable[..., Any]
) -> None:
    out = topic()
    uri = f"kafka://{broker.login_address}/{out.name}"

    def sql(password: str) -> str:
        login = f'{LOGIN_MODULE} required username="{USER}" password="{password}";'
        secured = "'kafka.security.protocol' = 'SASL_PLAINTEXT', 'kafka.sasl.mechanism' = 'PLAIN'"
        given = f"'delivery' = 'exactly-once', {secured}, 'kafka.sasl.jaas.config' = '{login}'"
        return f"INSERT INTO '{uri}' WITH ({given}) SELECT '{password}' AS a;"

    with pytest.raises(MillpondError) as failed:
        run(sql("wrong"))
    assert "rejected the login" in str(failed.value)
    run(sql(PASSWORD))
    # The first statement was committed, and its message has waited.
    assert out.values(committed=True) == [{"a": "wrong"}, {"a": PASSWORD}]


@pytest.mark.spark
def test_a_missing_topic_and_a_broker_that_is_not_there_are_reported(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    missing, port = topic(create=False), free_ports(1)[0]
    with pytest.raises(SinkError, match="There is no topic") as failed:
        run(f"INSERT INTO {missing.uri} {ONCE} SELECT 1 AS a;")
    assert failed.value.code == "MP601"
    created = "WITH ('delivery' = 'exactly-once', 'topic.create.if.missing' = 'true')"
    run(f"INSERT INTO {missing.uri} {created} SELECT 1 AS a;")
    assert missing.values(committed=True) == [{"a": 1}]
    with pytest.raises(SinkError, match="No broker responds") as failed:
        run(f"INSERT INTO 'kafka://localhost:{port}/out' {ONCE} SELECT 1 AS a;")
    assert failed.value.code == "MP602"
