"""Objects that a queue announces: read without a listing, and their messages deleted when they are durable."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.objects.conftest import KEYS, Bucket
from tests.objects.servers import ACCESS, REGION, SECRET, Moto

import millpond as mp
from millpond.contracts.source import SourceSpec
from millpond.errors import MillpondError, SourceError
from millpond.objects import bucket as store
from millpond.objects.queue import Announced, announced
from millpond.options import Given, complete, read_options
from millpond.sources.files.objects import ObjectWhere
from millpond.sources.s3 import PLUGIN
from millpond.uris import parse_uri


class AnnouncingQueue:
    """The queue of a bucket; what it has not delivered is visible again at once."""

    def __init__(self, bucket: Bucket) -> None:
        self.name = f"{bucket.name}-queue"
        self._client: Any = boto3.client("sqs", endpoint_url=bucket.endpoint, **KEYS)
        self.url = self._client.create_queue(QueueName=self.name)["QueueUrl"]
        wanted = ["QueueArn"]
        arn = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=wanted)["Attributes"]["QueueArn"]
        events = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
        bucket.client.put_bucket_notification_configuration(
            Bucket=bucket.name, NotificationConfiguration={"QueueConfigurations": [events]}
        )

    def send(self, body: str) -> None:
        self._client.send_message(QueueUrl=self.url, MessageBody=body)

    def count(self) -> int:
        """Messages that were not deleted."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@pytest.fixture
def bucket(queue_server: Moto) -> Bucket:
    return Bucket(queue_server.endpoint)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], mp.App]]:
    apps: list[mp.App] = []

    def start(sql: str) -> mp.App:
        apps.append(mp.App(sql=sql, state=tmp_path / "state"))
        apps[-1].start()
        return apps[-1]

    yield start
    for app in apps:
        app.stop()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def sql(bucket: Bucket, queue: str, make: str) -> str:
    options = bucket.options(watch_interval="20ms", s3_notifications=queue, **({"watch": "true"} if make else {}))
    source = f"'s3://{bucket.name}/in/*.jsonl' {options}"
    if make:
        return f"CREATE TABLE t AS SELECT k FROM {source};"
    return f"CREATE STREAM s (k BIGINT) FROM {source}; CREATE TABLE t (k BIGINT); INSERT INTO t SELECT k FROM s;"


def numbers(app: mp.App) -> list[int]:
    return sorted(row["k"] for row in app.table("t").find().to_pylist())


@pytest.mark.parametrize("make", ["", "table"], ids=["stream", "table"])
def test_what_a_queue_announces_is_read_and_its_messages_are_deleted(bucket: Bucket, started: Any, make: str) -> None:
    bucket.put("in/a.jsonl", b'{"k": 1}\n')
    queue = AnnouncingQueue(bucket)
    app = started(sql(bucket, f"sqs://{queue.name}", make))
    eventually(lambda: numbers(app) == [1])
    queue.send("rubbish")
    queue.send(json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent"}))
    bucket.put("in/b c+d.jsonl", b'{"k": 2}\n')
    bucket.put("elsewhere/x.jsonl", b'{"k": 9}\n')
    eventually(lambda: numbers(app) == [1, 2])
    eventually(lambda: queue.count() == 0)
    bucket.put("in/e.jsonl", b'{"k": 3}\n')
    eventually(lambda: numbers(app) == [1, 2, 3])


def test_what_was_never_announced_is_found_by_the_listing_beside_the_queue(bucket: Bucket, started: Any) -> None:
    bucket.put("in/a.jsonl", b'{"k": 1}\n')
    queue = AnnouncingQueue(bucket)
    silent = {"Bucket": bucket.name, "NotificationConfiguration": {}}
    bucket.client.put_bucket_notification_configuration(**silent)
    text = sql(bucket, queue.url, "").replace("'watch.interval'", "'s3.list.interval' = '100ms', 'watch.interval'")
    app = started(text)
    bucket.put("in/b.jsonl", b'{"k": 2}\n')
    eventually(lambda: numbers(app) == [1, 2])


def values(bucket: Bucket, queue: AnnouncingQueue) -> SourceSpec:
    options = {"s3.endpoint": bucket.endpoint, "s3.region": REGION, "s3.access.key": ACCESS, "s3.secret.key": SECRET}
    given = [Given(name, value) for name, value in {**options, "s3.notifications": queue.url}.items()]
    found = complete(read_options(given, PLUGIN.options, "test"), PLUGIN.options, {})
    return SourceSpec("s", parse_uri(f"s3://{bucket.name}/in/*.jsonl"), found, None, Path())


def test_messages_are_kept_until_their_objects_were_looked_at(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server cannot be reached for one of three objects, then again."""
    queue, now = AnnouncingQueue(bucket), [0.0]
    where = ObjectWhere(values(bucket, queue), clock=lambda: now[0])
    where.use(tmp_path)

    def look() -> list[str]:
        now[0] += 1
        try:
            return [where.shown(seen.path).rpartition("/")[2] for seen in where.look()]
        finally:
            where.confirm()

    assert look() == []
    for name in "abc":
        bucket.put(f"in/{name}.jsonl", b"{}")
    head = store.Bucket.head

    def unless_b(opened: store.Bucket, key: str) -> store.Listed | None:
        if key == "in/b.jsonl":
            raise SourceError("MP506", "The server is away.")
        return head(opened, key)

    monkeypatch.setattr(store.Bucket, "head", unless_b)
    for _ in range(2):
        with pytest.raises(SourceError, match="away"):
            look()
        assert queue.count() == 2
    monkeypatch.setattr(store.Bucket, "head", head)
    assert look() == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert queue.count() == 0


def test_a_queue_that_fails_after_some_messages_loses_none_of_them(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, now = AnnouncingQueue(bucket), [0.0]
    where = ObjectWhere(values(bucket, queue), clock=lambda: now[0])
    where.use(tmp_path)
    assert where.look() == []
    bucket.put("in/a.jsonl", b"{}")
    assert where._queue is not None
    client = where._queue._client
    answers = iter([client.receive_message, lambda **_: 1 / 0])
    monkeypatch.setattr(client, "receive_message", lambda **given: next(answers)(**given))
    for found in (0, 1):
        now[0] += 1
        with nullcontext() if found else pytest.raises(ZeroDivisionError):
            assert len(where.look()) == found
        where.confirm()
        assert queue.count() == 1 - found


def test_a_queue_that_does_not_exist_is_an_error(bucket: Bucket, started: Any, tmp_path: Path) -> None:
    bucket.put("in/a.jsonl", b'{"k": 1}\n')
    app = started(sql(bucket, "sqs://no-such-queue", ""))
    eventually(lambda: app.query("SHOW FLOWS").rows()[0]["state"] == "failed")
    assert "no-such-queue" in app.query("SHOW FLOWS").rows()[0]["error"]
    with pytest.raises(MillpondError, match="must be a queue"):
        mp.App(sql=sql(bucket, "kafka://x", ""), state=tmp_path / "other").run_once()


def test_events_are_read_in_each_form() -> None:
    record = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {"key": "a%2Fb+c%C3%A9"}}}
    direct = json.dumps({"Records": [record, {**record, "eventName": "ObjectRemoved:Delete"}]})
    expected = tuple(Announced("b", "a/b cé", removed) for removed in (False, True))
    assert announced(direct) == expected
    assert announced(json.dumps({"Type": "Notification", "Message": direct})) == expected
    for body in ("", "7", "[]", "{}", '{"Records": [{}]}', '{"Records": 7}', '{"Event": "s3:TestEvent"}'):
        assert announced(body) == ()
