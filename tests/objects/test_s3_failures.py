"""What goes wrong between an app and a bucket, on a real server and with a relay before it: denied access, a wrong
region or clock, objects that change while they are read, cut bodies, wrong lengths, refusals, and silence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.objects.conftest import Bucket
from tests.objects.servers import ACCESS, INSTALL, REGION, SECRET, Moto, Passing, Relay, Versity

import millpond as mp
from millpond.errors import MillpondError

Once = Callable[[str], mp.App]
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


@pytest.fixture
def strict(server: Versity | Moto) -> Versity:
    """A server that verifies who asks."""
    if not isinstance(server, Versity):
        pytest.skip(f"{INSTALL}, and moto verifies no requests")
    return server


@pytest.fixture
def passed(bucket: Bucket, relay: Relay) -> Bucket:
    """A bucket that the app reaches through the relay, and the test directly."""
    bucket.endpoint = relay.endpoint
    return bucket


def table(bucket: Bucket, path: str = "in/*.csv", **options: str) -> str:
    return f"CREATE TABLE t AS SELECT k, v FROM 's3://{bucket.name}/{path}' {bucket.options(**options)};"


def stream(bucket: Bucket) -> str:
    return (
        f"CREATE STREAM s (k BIGINT, v STRING) FROM 's3://{bucket.name}/in/*.csv' {bucket.options()};"
        "CREATE TABLE t (k BIGINT, v STRING); INSERT INTO t SELECT k, v FROM s;"
    )


def content(app: mp.App) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["v"]) for row in app.table("t").find().to_pylist())


def failure(once: Once, sql: str) -> MillpondError:
    with pytest.raises(MillpondError) as caught:
        once(sql)
    return caught.value


def reads(passing: Passing, name: str) -> bool:
    """Whether a request reads this object."""
    return passing.method == "GET" and passing.path.partition("?")[0].endswith(name)


def test_wrong_keys_and_denied_access_are_reported_without_the_secret(
    strict: Versity, bucket: Bucket, once: Once
) -> None:
    bucket.put("in/a.csv", b"k,v\n1,a\n")
    strict.add_user("stranger", "stranger-secret")
    for access, secret in ((ACCESS, "wrong-secret"), ("nobody", "nobody-secret"), ("stranger", "stranger-secret")):
        sql = table(bucket).replace(f"'{ACCESS}'", f"'{access}'").replace(f"'{SECRET}'", f"'{secret}'")
        error = failure(once, sql)
        assert error.code == "MP507", str(error)
        assert secret not in str(error)
        assert "s3.access.key" in error.hint
    assert content(once(table(bucket))) == [(1, "a")]


def test_a_wrong_region_is_reported(strict: Versity, bucket: Bucket, once: Once) -> None:
    bucket.put("in/a.csv", b"k,v\n1,a\n")
    error = failure(once, table(bucket).replace(REGION, "eu-west-1"))
    assert error.code == "MP508", str(error)
    assert "s3.region" in error.hint


def test_a_clock_that_is_wrong_is_reported(strict: Versity, passed: Bucket, relay: Relay, once: Once) -> None:
    """A request that was signed long ago."""
    passed.put("in/a.csv", b"k,v\n1,a\n")

    def age(request: Passing) -> Passing:
        headers = {n: "20200101T000000Z" if n.lower() == "x-amz-date" else v for n, v in request.headers.items()}
        today = {n: v for n, v in headers.items() if n.lower() == "authorization"}
        for name, value in today.items():
            scope = value.partition("Credential=")[2].split("/")[1]
            headers[name] = value.replace(f"/{scope}/", "/20200101/")
        return replace(request, headers=headers)

    relay.forth = age
    error = failure(once, table(passed))
    assert (error.code, "clock" in error.hint) == ("MP508", True), str(error)


def test_an_object_that_is_deleted_or_replaced_after_the_listing_is_passed_over(
    passed: Bucket, relay: Relay, once: Once
) -> None:
    for name in ("a", "b", "c"):
        passed.put(f"in/{name}.csv", b"k,v\n1,%s\n" % name.encode())
    changed = threading.Event()

    def change(request: Passing) -> Passing:
        if request.method == "GET" and ".csv" in request.path and not changed.is_set():
            changed.set()
            passed.delete("in/a.csv")
            passed.put("in/b.csv", b"k,v\n2,new\n")
        return request

    relay.forth = change
    assert content(once(stream(passed))) == [(1, "c")]
    assert content(once(stream(passed))) == [(1, "c"), (2, "new")]


def test_an_object_that_is_replaced_while_it_is_read_is_read_as_a_whole(
    passed: Bucket, relay: Relay, once: Once
) -> None:
    """The connection breaks in the middle of the body; the rest would be that of another object."""
    old = b"k,v\n" + b"".join(b"%d,old\n" % n for n in range(20_000))
    passed.put("in/a.csv", old)
    passed.put("in/b.csv", b"k,v\n1,b\n")
    replaced = threading.Event()

    def break_off(answer: Passing) -> Passing:
        if not reads(answer, "a.csv") or replaced.is_set():
            return answer
        replaced.set()
        passed.put("in/a.csv", old.replace(b"old", b"new"))
        return replace(answer, cut=len(answer.body) // 2)

    relay.back = break_off
    assert content(once(stream(passed))) == [(1, "b")]
    found = content(once(stream(passed)))
    assert len(found) == 20_001
    assert {v for _, v in found} == {"b", "new"}


def test_half_a_body_is_read_again(passed: Bucket, relay: Relay, once: Once) -> None:
    passed.put("in/a.csv", b"k,v\n" + b"".join(b"%d,x\n" % n for n in range(20_000)))
    cuts = iter(range(2))
    relay.back = lambda answer: (
        replace(answer, cut=1000) if reads(answer, "a.csv") and next(cuts, None) is not None else answer
    )
    assert len(content(once(table(passed)))) == 20_000


@pytest.mark.parametrize("more", [-7, 7], ids=["shorter", "longer"])
def test_a_body_of_another_length_than_listed_is_an_error(passed: Bucket, relay: Relay, once: Once, more: int) -> None:
    passed.put("in/a.csv", b"k,v\n1,a\n2,b\n3,c\n")

    def change(answer: Passing) -> Passing:
        body = answer.body[:more] if more < 0 else answer.body + b"4,dddd\n"
        return replace(answer, body=body) if reads(answer, "a.csv") and answer.status == 200 else answer

    relay.back = change
    error = failure(once, table(passed))
    assert error.code == "MP506", str(error)
    relay.back = lambda answer: answer
    assert content(once(table(passed))) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (400, b"<Error><Code>InvalidRequest</Code><Message>Not so.</Message></Error>", "MP502", "InvalidRequest"),
        (403, b"", "MP507", "403"),
        (405, b"", "MP502", "405"),
        (429, b"", "MP506", "429"),
        (500, b"<Error><Code>InternalError</Code></Error>", "MP506", "InternalError"),
        (503, SLOW_DOWN, "MP506", "SlowDown"),
    ],
)
def test_each_status_has_its_code(
    passed: Bucket, relay: Relay, once: Once, status: int, body: bytes, code: str, said: str
) -> None:
    passed.put("in/a.csv", b"k,v\n1,a\n")
    relay.forth = lambda request: replace(request, headers={}, body=body, status=status)
    error = failure(once, table(passed))
    assert (error.code, said in str(error)) == (code, True), str(error)
    assert "Traceback" not in str(error)


def test_a_redirect_loop_ends(passed: Bucket, relay: Relay, once: Once) -> None:
    passed.put("in/a.csv", b"k,v\n1,a\n")
    relay.forth = lambda request: replace(
        request, headers={"Location": f"{relay.endpoint}{request.path}"}, body=b"", status=307
    )
    error = failure(once, table(passed))
    assert error.code == "MP508", str(error)
    assert len(relay.passed) < 100


def test_a_server_that_hangs_is_given_up(passed: Bucket, relay: Relay, once: Once) -> None:
    over = threading.Event()

    def hang(request: Passing) -> Passing:
        over.wait(60)
        return replace(request, headers={}, body=b"", status=503)

    relay.forth = hang
    try:
        error = failure(once, table(passed, s3_timeout="100ms"))
    finally:
        over.set()
    assert error.code == "MP506", str(error)


def test_delayed_answers_are_waited_for(passed: Bucket, relay: Relay, once: Once) -> None:
    passed.put("in/a.csv", b"k,v\n1,a\n")
    pause = threading.Event()

    def delay(answer: Passing) -> Passing:
        pause.wait(0.2)
        return answer

    relay.back = delay
    assert content(once(table(passed))) == [(1, "a")]


def test_an_object_in_another_encoding_is_rejected_or_read_as_declared(bucket: Bucket, once: Once) -> None:
    bucket.put("in/a.csv", "k,v\n1,naïve\n".encode("latin-1"))
    rejected = once(stream(bucket))
    assert content(rejected) == []
    assert [row["code"] for row in rejected.query("SELECT code FROM dead_letters").rows()] == ["MP504"]
    declared = stream(bucket).replace("WITH (", "WITH ('encoding' = 'latin-1', ").replace(" t ", " u ")
    app = once(declared)
    assert app.query("SELECT k, v FROM u").rows() == [{"k": 1, "v": "naïve"}]
