"""The webhook source: what is answered 200 is durable and taken once; anything else is not taken at all."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.serve.asking import Browser

import millpond as mp
from millpond.contracts.source import Posted, SourceSpec
from millpond.errors import MillpondError
from millpond.options import Given, complete, read_options
from millpond.sources.webhook import inbox as inbox_module
from millpond.sources.webhook.feeder import WebhookFeeder
from millpond.sources.webhook.inbox import Inbox, Spot
from millpond.sources.webhook.requests import Refused, authorize, records_of
from millpond.sources.webhook.source import PLUGIN
from millpond.uris import parse_uri

Start = Callable[..., tuple[mp.App, Browser]]
# A hostile client sends half of these requests.
REQUESTS, CLIENTS = (10_000 if os.environ.get("MILLPOND_SOAK") else 600), 6
SQL = """
CREATE STREAM clicks (n BIGINT, who STRING) FROM webhook://clicks{};
CREATE TABLE t (n BIGINT, who STRING);
INSERT INTO t SELECT n, who FROM clicks;
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an app; again in the same state directory, the one before is stopped."""
    apps: list[mp.App] = []

    def begin(sql: str = SQL.format("")) -> tuple[mp.App, Browser]:
        if apps:
            apps[-1].stop()
        apps.append(mp.App(sql=sql, state=tmp_path / "state", settings={"http": "127.0.0.1:0"}))
        apps[-1].start()
        return apps[-1], Browser(apps[-1].http_url or "")

    yield begin
    for app in apps:
        app.stop()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def numbers(app: mp.App) -> list[int]:
    return sorted(row["n"] for row in app.table("t").find().to_pylist())


def test_an_object_a_list_and_lines_are_taken(start: Start) -> None:
    app, browser = start()
    assert browser.post("/hooks/clicks", b'{"n": 1, "who": "a"}').json == {"message": "1 record accepted."}
    assert browser.post("/hooks/clicks", b'[{"n": 2}, {"n": 3,\r\n "who": null}]').status == 200
    assert browser.post("/hooks/clicks", b'{"n": 4}\r\n\n{"n": 5}\n').status == 200
    assert browser.post("/hooks/clicks", b"[]").json == {"message": "0 records accepted."}
    body = gzip.compress(b'{"n": 6}')
    assert browser.post("/hooks/clicks", body, content_encoding="gzip").status == 200
    eventually(lambda: numbers(app) == [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"rubbish", "record 1, line 1, column 1: it is not a JSON object"),
        (b"7", "record 1, line 1, column 1"),
        (b'[{"n": 1}, 7]', "element 2, line 1, column 12: it is not a JSON object"),
        (b'{"n": 1}\n{"n": ', "record 2, line 2, column 7"),
        (b'{"n": 1}\n\n[1]', "record 2, line 3, column 1"),
        (b'{"n": 1} {"n": 2}', "a line end is missing"),
        (b'[{"n": 1}', "behind element 1, line 1, column 10"),
        (b'[{"n": 1}] x', "behind the list, line 1, column 12: there is more text"),
        (b'{"n": NaN}', "NaN is not JSON"),
        (b'{"n": "\xff"}', "is not UTF-8: byte 8"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"n": 1,}', "line 1, column 9"),
    ],
)
def test_rubbish_is_refused_with_its_reason_and_place(body: bytes, said: str) -> None:
    with pytest.raises(Refused) as caught:
        records_of(body)
    assert caught.value.reply.status == 400
    assert said in caught.value.reply.message


def test_nothing_of_a_refused_request_is_taken(start: Start) -> None:
    app, browser = start()
    assert browser.post("/hooks/clicks", b'[{"n": 1}, {"n": 2}, rubbish]').status == 400
    assert browser.post("/hooks/clicks", b'{"n": 3}', content_encoding="gzip").status == 400
    assert browser.post("/hooks/clicks", b'{"n": 3}', content_encoding="lzw").status == 415
    assert browser.post("/hooks/clicks", b'{"n": 4}').status == 200
    eventually(lambda: numbers(app) == [4])
    assert browser.post("/hooks/other", b'{"n": 4}').status == 404


def test_a_token_is_asked_for(start: Start) -> None:
    app, browser = start(SQL.format(" WITH ('token' = 'sesame')"))
    for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic sesame"}):
        refused = browser.post("/hooks/clicks", b'{"n": 1}', **headers)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert browser.post("/hooks/clicks", b'{"n": 2}', authorization="Bearer sesame").status == 200
    eventually(lambda: numbers(app) == [2])


def values(**given: Any) -> dict[str, Any]:
    return {"token": None, "signature.secret": "key", "signature.tolerance": 300_000_000, **given}


def test_signatures_of_github_and_of_stripe_are_verified() -> None:
    body = b'{"n": 1}'
    digest = hmac.new(b"key", body, hashlib.sha256).digest()
    stripe = hmac.new(b"key", b"1000." + body, hashlib.sha256).hexdigest()
    good = (
        f"sha256={digest.hex()}",
        digest.hex().upper(),
        base64.b64encode(digest).decode(),
        f"t=1000,v1=0,v1={stripe}",
    )
    bad = ("", "sha256=", "sha256=00", f"t=1001,v1={stripe}", f"t=1000,v0={stripe}", "t=1000", "v1=x", "\u00ff")
    given = values(**{"signature.header": "X-Hub-Signature-256"})
    for text in good:
        authorize(given, Posted({"x-hub-signature-256": text}, body), lambda: 1299.0)
    for text in bad:
        with pytest.raises(Refused, match="signature"):
            authorize(given, Posted({"x-hub-signature-256": text}, body), lambda: 1299.0)
    with pytest.raises(Refused, match="too old"):
        authorize(given, Posted({"x-hub-signature-256": good[3]}, body), lambda: 1301.0)
    with pytest.raises(Refused, match="signature"):
        authorize(given, Posted({"x-hub-signature-256": good[0]}, body + b" "), lambda: 1299.0)


def test_a_body_above_the_limit_is_answered_413(start: Start) -> None:
    app, browser = start(SQL.format(" WITH ('max.bytes' = '1KB')"))
    assert browser.post("/hooks/clicks", b'{"who": "' + b"x" * 1000 + b'"}').status == 413
    zipped = gzip.compress(b'{"who": "' + b"x" * 1000 + b'"}')
    assert browser.post("/hooks/clicks", zipped, content_encoding="gzip").status == 413
    assert browser.post("/hooks/clicks", b'{"n": 1}').status == 200
    eventually(lambda: numbers(app) == [1])


def test_a_repeated_id_is_answered_and_not_taken_again_also_after_a_restart(start: Start) -> None:
    app, browser = start()
    assert browser.post("/hooks/clicks", b'{"n": 1}', idempotency_key="a").status == 200
    assert browser.post("/hooks/clicks", b'{"n": 2}', idempotency_key="b").status == 200
    again = browser.post("/hooks/clicks", b'{"n": 1}', idempotency_key="a")
    assert (again.status, again.json["message"]) == (200, "A request with this id was accepted before.")
    eventually(lambda: numbers(app) == [1, 2])
    app, browser = start()
    assert browser.post("/hooks/clicks", b'{"n": 1}', idempotency_key="a").status == 200
    assert browser.post("/hooks/clicks", b'{"n": 3}', idempotency_key="c").status == 200
    # An empty header identifies nothing.
    assert browser.post("/hooks/clicks", b'{"n": 4}', idempotency_key="").status == 200
    assert browser.post("/hooks/clicks", b'{"n": 5}', idempotency_key="").status == 200
    eventually(lambda: numbers(app) == [1, 2, 3, 4, 5])


def test_when_too_many_rows_wait_503_is_answered_until_they_are_read(start: Start) -> None:
    """The flow has failed, so that nothing is read."""
    sql = SQL.format(" WITH ('max.rows.waiting' = '5')").replace("SELECT n", "SELECT CAST(1 / n AS BIGINT)")
    app, browser = start(sql)
    assert browser.post("/hooks/clicks", b'{"n": 0}').status == 200
    eventually(lambda: app.query("SHOW FLOWS").rows()[0]["state"] == "failed")
    answers = [browser.post("/hooks/clicks", b'[{"n": 1}, {"n": 1}]') for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 503, 503]
    assert answers[-1].headers["retry-after"] == "1"
    # After a restart the rows that wait are counted too.
    app, browser = start(sql.replace("1 / n", "n"))
    eventually(lambda: numbers(app) == [0, 1, 1, 1, 1])
    assert browser.post("/hooks/clicks", b'{"n": 2}').status == 200


def test_a_run_once_takes_everything_that_waits(start: Start, tmp_path: Path) -> None:
    """The flow has failed, so that each request waits in the inbox."""
    sql = SQL.format(" WITH ('max.rows.per.batch' = '1')")
    app, browser = start(sql.replace("SELECT n", "SELECT CAST(1 / n AS BIGINT)"))
    assert browser.post("/hooks/clicks", b'{"n": 0}').status == 200
    eventually(lambda: app.query("SHOW FLOWS").rows()[0]["state"] == "failed")
    for n in range(1, 6):
        assert browser.post("/hooks/clicks", b'{"n": %d}' % n).status == 200
    app.stop()
    app = mp.App(sql=sql, state=tmp_path / "state")
    app.run_once()
    assert numbers(app) == [0, 1, 2, 3, 4, 5]
    app.stop()


def test_two_streams_of_one_hook_have_each_record(start: Start) -> None:
    app, browser = start(
        SQL.format("")
        + "CREATE TABLE u (k STRING); CREATE STREAM other (who STRING) FROM webhook://clicks; "
        + "INSERT INTO u SELECT who FROM other;"
    )
    assert browser.post("/hooks/clicks", b'{"n": 1, "who": "x"}', idempotency_key="a").status == 200
    assert browser.post("/hooks/clicks", b'{"n": 1, "who": "x"}', idempotency_key="a").status == 200
    eventually(lambda: numbers(app) == [1] and len(app.table("u")) == 1)


def test_columns_are_discovered_from_the_first_records(start: Start) -> None:
    app, browser = start(
        "CREATE STREAM s FROM webhook://s; CREATE TABLE t AS SELECT n, COUNT(*) AS c FROM s GROUP BY n;"
    )
    assert browser.post("/hooks/s", b'[{"n": 1}, {"n": 1}, {"n": 2}]').status == 200
    eventually(lambda: "t" in app)
    eventually(lambda: app.query("SELECT n, c FROM t ORDER BY n").rows() == [{"n": 1, "c": 2}, {"n": 2, "c": 1}])


HEAD = b"POST /hooks/clicks HTTP/1.1\r\nHost: 127.0.0.1\r\n"
GOOD = b'{"n": -1}'
BOMB = gzip.compress(b" " * 12_000_000)
# Requests of a hostile client, who then sends no more.
RUBBISH = (
    HEAD + b"Content-Length: 8\r\n\r\n" + GOOD[:-1],
    HEAD + b"Content-Length: 99\r\n\r\n" + GOOD,
    HEAD + b"Content-Length: 999999999999\r\n\r\n" + GOOD,
    HEAD + b"Content-Length: -5\r\n\r\n" + GOOD,
    HEAD + b"Content-Length: 3\r\nContent-Length: 9\r\n\r\n" + GOOD,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + GOOD,
    HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB,
    HEAD + b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n",
    b"DELETE /hooks/clicks HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /hooks/../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n" + GOOD,
    b"POST /hooks/clicks HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 9\r\n\r\n" + GOOD,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    HEAD + b"Content-Length: 29006\r\n\r\n" + b'{"n": ' + b"[" * 29_000,
)


def test_a_hostile_client_among_others_changes_nothing(start: Start) -> None:
    """Half of the requests are rubbish. What is answered 200 is taken, in the order of its connection, and no more."""
    app, browser = start(
        "CREATE STREAM clicks (n BIGINT, who STRING) FROM webhook://clicks;"
        "CREATE TABLE t (n BIGINT, who STRING, at BIGINT); INSERT INTO t SELECT n, who, _offset FROM clicks;"
    )
    each = REQUESTS // 2 // CLIENTS
    answers: list[int] = []

    def send(client: int) -> None:
        connection = http.client.HTTPConnection(browser.host, browser.port, timeout=60)
        for count in range(each):
            connection.request("POST", "/hooks/clicks", b'{"n": %d, "who": "%d"}' % (count, client))
            answer = connection.getresponse()
            answer.read()
            answers.append(answer.status)
        connection.close()

    def disturb(client: int) -> None:
        for count in range(each):
            with socket.create_connection((browser.host, browser.port), timeout=60) as connection, suppress(OSError):
                connection.sendall(RUBBISH[(client + count) % len(RUBBISH)])
                connection.shutdown(socket.SHUT_WR)
                first = connection.recv(16)
                assert b" 200" not in first
                assert b" 500" not in first

    with ThreadPoolExecutor(2 * CLIENTS) as pool:
        found = [pool.submit(work, number) for number in range(CLIENTS) for work in (send, disturb)]
        for one in found:
            one.result(300)
    assert set(answers) == {200}
    eventually(lambda: len(app.table("t")) == CLIENTS * each)
    rows = sorted(app.table("t").find().to_pylist(), key=lambda row: row["at"])
    for number in range(CLIENTS):
        assert [row["n"] for row in rows if row["who"] == str(number)] == list(range(each))
    assert browser.get("/health").status == 200


PROGRAM = """
import sys, threading
import millpond as mp
app = mp.App(sql=sys.argv[1], state=sys.argv[2], settings={"http": "127.0.0.1:0"})
app.start()
print(app.http_url, flush=True)
threading.Event().wait()
"""


@pytest.mark.process
def test_a_kill_between_answer_and_batch_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    state, sent = tmp_path / "state", 0
    answered: list[int] = []
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, SQL.format(""), str(state)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            browser = Browser(process.stdout.readline().strip())
            for _ in range(20):
                sent += 1
                body = json.dumps({"n": sent}).encode()
                assert browser.post("/hooks/clicks", body, idempotency_key=str(sent)).status == 200
                answered.append(sent)
        finally:
            process.kill()
            process.wait()
    app = mp.App(sql=SQL.format(""), state=state)
    app.run_once()
    assert numbers(app) == answered
    app.stop()


def test_rows_on_their_way_into_a_batch_are_counted_once(tmp_path: Path) -> None:
    uri = parse_uri("webhook://clicks")
    values = complete(read_options([Given("max.rows.waiting", "5")], PLUGIN.options, "test"), PLUGIN.options, {})
    feeder = WebhookFeeder(SourceSpec("s", uri, values, None, tmp_path))
    feeder.folder = tmp_path
    feeder.begin([], lambda parts: None)
    assert feeder.put(lines(1, 2, 3), None).result(60)
    (part,) = feeder.poll(None)
    # They are in the batch, and the inbox has not heard of it yet.
    feeder.waiting = lambda: 3
    feeder.require_room(2)
    assert feeder.put(lines(4, 5), None).result(60)
    feeder.kept(part.position)
    with pytest.raises(Refused, match=r"5 rows"):
        feeder.require_room(1)


# The inbox


def lines(*found: int) -> list[bytes]:
    return [b"%d\n" % number for number in found]


def stored(box: Inbox, spot: Spot) -> list[bytes]:
    return [line for group in box.groups(spot) for line in group.lines]


def test_what_was_stored_is_read_again_from_any_place(tmp_path: Path) -> None:
    box = Inbox(tmp_path, Spot())
    assert box.put(lines(1, 2), None).result(60)
    (first,) = box.groups(Spot())
    assert box.put(lines(3), "a").result(60)
    again = Inbox(tmp_path, first.behind)
    assert stored(again, Spot()) == lines(1, 2, 3)
    assert stored(again, first.behind) == lines(3)
    assert again.rows == 1
    assert again.put(lines(3), "a").result(60) is False


def test_a_group_that_was_cut_short_is_removed_and_other_damage_is_reported(tmp_path: Path) -> None:
    box = Inbox(tmp_path, Spot())
    box.put(lines(1), None).result(60)
    box.put(lines(2), None).result(60)
    (file,) = tmp_path.glob("*.log")
    whole = file.read_bytes()
    for size in range(len(whole) - 1, len(whole) // 2, -7):
        file.write_bytes(whole[:size])
        assert stored(Inbox(tmp_path, Spot()), Spot()) == lines(1)
    file.write_bytes(whole[:10] + b"X" + whole[11:])
    with pytest.raises(MillpondError, match="damaged"):
        Inbox(tmp_path, Spot())


def test_files_that_were_read_are_removed_and_their_ids_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "SEGMENT_BYTES", 100)
    now = [1000.0]
    box = Inbox(tmp_path, Spot(), lambda: now[0])
    for number in range(6):
        box.put(lines(number), f"id {number}").result(60)
    *_, last = box.groups(Spot())
    assert len(list(tmp_path.glob("*.log"))) > 1
    box.forget(last.behind)
    assert len(list(tmp_path.glob("*.log"))) == 1
    again = Inbox(tmp_path, last.behind, lambda: now[0])
    assert stored(again, last.behind) == []
    assert again.put(lines(9), "id 0").result(60) is False
    now[0] += 86_400
    assert again.put(lines(9), "id 0").result(60) is True
    assert stored(again, last.behind) == lines(9)


def test_a_log_whose_read_files_are_gone_goes_on_in_a_new_one(tmp_path: Path) -> None:
    read = Spot(3, 500)
    box = Inbox(tmp_path, read)
    box.put(lines(1), None).result(60)
    assert stored(box, read) == lines(1)
    assert stored(Inbox(tmp_path, read), read) == lines(1)


def test_a_full_disk_fails_the_request_and_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Inbox(tmp_path, Spot())
    box.put(lines(1), None).result(60)

    def full(*_: Any, **__: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(inbox_module, "append_all", full)
        with pytest.raises(MillpondError, match="full"):
            box.put(lines(2), "a").result(60)
    assert box.rows == 1
    assert box.put(lines(2), "a").result(60) is True
    assert stored(box, Spot()) == lines(1, 2)
