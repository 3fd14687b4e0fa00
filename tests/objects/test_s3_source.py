"""S3 as a source, against a server of its own: what files can do, objects can do; these apps start no JVM."""

from __future__ import annotations

import gzip
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.objects.conftest import Bucket
from tests.objects.servers import ACCESS, SECRET, Moto, Versity

import millpond as mp
from millpond.errors import MillpondError
from millpond.sources.files.objects import folder_of, pattern_of

Once = Callable[[str], mp.App]
# Objects of a large folder: a listing has 1,000 in one answer.
MANY = 100_000 if os.environ.get("MILLPOND_SOAK") else 2_500


def table(bucket: Bucket, path: str, **options: str) -> str:
    return f"CREATE TABLE t AS SELECT k, v FROM 's3://{bucket.name}/{path}' {bucket.options(**options)};"


def stream(bucket: Bucket, path: str, **options: str) -> str:
    return (
        f"CREATE STREAM s (k BIGINT, v STRING) FROM 's3://{bucket.name}/{path}' {bucket.options(**options)};"
        "CREATE TABLE t (k BIGINT, v STRING, source STRING); INSERT INTO t SELECT k, v, _source FROM s;"
    )


def content(app: mp.App) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["v"]) for row in app.table("t").find().to_pylist())


def line(k: int, v: str) -> bytes:
    return b'{"k": %d, "v": "%s"}\n' % (k, v.encode())


def parquet(k: int, v: str) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"k": [k], "v": [v]}), out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.jsonl", line(1, "a")),
        ("a.jsonl.gz", gzip.compress(line(1, "a"))),
        ("a.json", b'[{"k": 1, "v": "a"}]'),
        ("a.csv", b"v,k\na,1"),
        ("a.csv.gz", gzip.compress(b"v,k\na,1\n")),
        ("a.parquet", parquet(1, "a")),
    ],
    ids=["jsonl", "jsonl.gz", "json", "csv", "csv.gz", "parquet"],
)
@pytest.mark.parametrize("make", [table, stream], ids=["table", "stream"])
def test_objects_of_each_format(bucket: Bucket, once: Once, name: str, body: bytes, make: Any) -> None:
    bucket.put(f"in/{name}", body)
    bucket.put("in/_SUCCESS", b"")
    assert content(once(make(bucket, "in"))) == [(1, "a")]


def test_patterns_folders_and_single_objects(bucket: Bucket, once: Once) -> None:
    for number, key in enumerate(("logs/a.jsonl", "logs/b.jsonl", "logs/deep/c.jsonl", "logs2/d.jsonl", "logs/e.csv")):
        bucket.put(key, line(number, key) if key.endswith("l") else b"k,v\n9,e\n")

    def keys(path: str) -> list[int]:
        sql = table(bucket, path).replace("TABLE t", "OR REPLACE TABLE t")
        return [k for k, _ in content(once(sql))]

    assert keys("logs/*.jsonl") == [0, 1]
    assert keys("logs/**/*.jsonl") == [0, 1, 2]
    assert keys("*/[a-c].jsonl") == [0, 1]
    assert keys("logs/a.jsonl") == [0]
    assert keys("logs2") == [3]


@pytest.mark.parametrize(
    ("pattern", "key", "fits"),
    [
        ("a/*.csv", "a/b.csv", True),
        ("a/*.csv", "a/b/c.csv", False),
        ("a/**/c.csv", "a/c.csv", True),
        ("a/**/c.csv", "a/b/b/c.csv", True),
        ("a/**", "a/b/c", True),
        ("a/?.csv", "a/bb.csv", False),
        ("a/[!x].csv", "a/b.csv", True),
        ("a/[!x].csv", "a/x.csv", False),
        ("a+(b)/*", "a+(b)/c", True),
        ("a/[", "a/[", True),
    ],
)
def test_a_pattern_matches_as_for_files(pattern: str, key: str, fits: bool) -> None:
    assert pattern_of(pattern)(key) is fits
    assert key.startswith(folder_of(pattern))


def test_a_stream_reads_each_object_once_over_restarts(bucket: Bucket, once: Once) -> None:
    bucket.put("in/a.jsonl", line(1, "a"))
    app = once(stream(bucket, "in/*.jsonl"))
    assert content(app) == [(1, "a")]
    assert app.table("t").find().to_pylist()[0]["source"] == f"s3://{bucket.name}/in/a.jsonl"
    bucket.put("in/b.jsonl", line(2, "b"))
    assert content(once(stream(bucket, "in/*.jsonl"))) == [(1, "a"), (2, "b")]
    # What is added to an object is read; one that is rewritten is read again.
    bucket.put("in/a.jsonl", line(1, "a") + line(3, "c"))
    assert content(once(stream(bucket, "in/*.jsonl"))) == [(1, "a"), (2, "b"), (3, "c")]
    bucket.put("in/b.jsonl", line(4, "d"))
    assert content(once(stream(bucket, "in/*.jsonl"))) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert content(once(stream(bucket, "in/*.jsonl"))) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_a_table_is_compared_at_each_start(bucket: Bucket, once: Once) -> None:
    bucket.put("in/a.csv", b"k,v\n1,a\n")
    bucket.put("in/b.csv", b"k,v\n2,b\n")
    assert content(once(table(bucket, "in"))) == [(1, "a"), (2, "b")]
    bucket.delete("in/a.csv")
    bucket.put("in/b.csv", b"k,v\n2,x\n")
    assert content(once(table(bucket, "in"))) == [(2, "x")]


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


@pytest.mark.parametrize("make", [table, stream], ids=["table", "stream"])
def test_a_running_app_follows_the_bucket(bucket: Bucket, started: Once, make: Any) -> None:
    bucket.put("in/a.jsonl", line(1, "a"))
    options = {"watch_interval": "20ms"} | ({"watch": "true"} if make is table else {})
    app = started(make(bucket, "in/*.jsonl", **options))
    eventually(lambda: content(app) == [(1, "a")])
    bucket.put("in/b.jsonl", line(2, "b"))
    eventually(lambda: content(app) == [(1, "a"), (2, "b")])


def test_a_folder_of_many_objects_is_listed_to_its_end(server: Versity | Moto, bucket: Bucket, once: Once) -> None:
    server.fill(bucket.name, "in", (line(number, "x") for number in range(MANY)))
    last = f"{MANY - 1:,}".replace(",", "")
    app = once(stream(bucket, f"in/*{last[-3:]}.jsonl"))
    wanted = [number for number in range(MANY) if str(number).endswith(last[-3:])]
    assert [k for k, _ in content(app)] == wanted
    # An object that comes later is found among all of them.
    bucket.put(f"in/x{last}.jsonl", line(-1, "late"))
    assert [k for k, _ in content(once(stream(bucket, f"in/*{last[-3:]}.jsonl")))] == [-1, *wanted]


def failure(once: Once, sql: str) -> MillpondError:
    with pytest.raises(MillpondError) as caught:
        once(sql)
    return caught.value


def test_what_is_not_there_or_cannot_be_reached_is_reported(bucket: Bucket, once: Once) -> None:
    error = failure(once, table(bucket, "none/*.csv"))
    assert (error.code, "s3://" in str(error)) == ("MP501", True)
    other = table(bucket, "x.csv").replace(bucket.name, "no-such-bucket")
    assert failure(once, other).code == "MP501"
    away = table(bucket, "x.csv").replace(bucket.endpoint, "http://127.0.0.1:1")
    assert failure(once, away).code == "MP506"


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("<Code>RequestTimeTooSkewed</Code><Message>Too far.</Message>", "MP508", "clock"),
        ("<Code>AuthorizationHeaderMalformed</Code><Message>wrong region</Message>", "MP508", "region"),
        ("<Code>PermanentRedirect</Code>", "MP508", "region"),
        ("<Code>SignatureDoesNotMatch</Code>", "MP507", "s3.access.key"),
        ("Client error with status 403 Forbidden: AccessDenied", "MP507", "permit"),
        ("Error performing GET http://h/b: connection refused", "MP506", "s3.endpoint"),
        ('Encountered object with invalid path: Error parsing Path "a//b"', "MP502", "rename the object"),
    ],
)
def test_each_refusal_has_its_code_and_hint(bucket: Bucket, text: str, code: str, hint: str) -> None:
    from millpond.errors import SourceError
    from millpond.objects.bucket import Bucket as Opened
    from millpond.uris import parse_uri

    values: dict[str, Any] = {
        "s3.endpoint": bucket.endpoint,
        "s3.region": "r",
        "s3.session.token": None,
        "s3.timeout": 10**6,
    }
    values |= {"s3.access.key": "a", "s3.secret.key": "b"}
    opened = Opened(parse_uri("s3://b/k"), values, lambda *found: SourceError(*found[:2], hint=found[2]))
    error = opened._meaning(text, "s3://b/k", ValueError(text))
    assert (error.code, hint in error.hint) == (code, True)
    assert "<Code>" not in str(error)


def test_a_bad_object_among_others_is_a_warning(bucket: Bucket, once: Once) -> None:
    bucket.put("in/a.jsonl.gz", b"not gzip")
    bucket.put("in/b.jsonl.gz", gzip.compress(line(1, "b")))
    app = once(stream(bucket, "in"))
    assert content(app) == [(1, "b")]


def test_wrong_options_are_errors_of_check(bucket: Bucket, once: Once) -> None:
    without = table(bucket, "a.csv").replace("'s3.secret.key' = 'test-secret'", "'watch' = 'true'")
    assert "given together" in str(failure(once, without))
    assert "requires a bucket" in str(failure(once, "CREATE TABLE t AS SELECT * FROM 's3:///a.csv';"))
    assert "must be an address" in str(failure(once, table(bucket, "a.csv").replace("http://", "")))


def test_credentials_region_and_endpoint_may_be_those_of_the_environment(
    bucket: Bucket, once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("in/a.csv", b"k,v\n1,a\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    app = once(
        f"CREATE TABLE t AS SELECT k, v FROM s3://{bucket.name}/in/*.csv;"
        f"INSERT INTO 's3://{bucket.name}/out' SELECT seq FROM 'generate://?rows=3&seed=1';"
    )
    assert content(app) == [(1, "a")]
    assert [key for key in bucket.all_keys() if key.startswith("out/")]
