"""The HTTP source as a table and as a stream, against a server of its own; these apps start no JVM."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import brotli
import numpy as np
import pytest
from tests.sources.web_server import Asked, Says, WebServer, rows, served

import millpond as mp
from millpond.engine.feeds.feed_reader import FeedReader
from millpond.engine.stream_reader import StreamReader
from millpond.errors import MillpondError
from millpond.sources.http.feeder import HttpFeeder
from millpond.sources.http.seen import Occurrences
from millpond.testing.sources import SourceHarness, StreamContract, TableContract

Start = Callable[..., mp.App]
A, B, C = {"k": 1, "v": "a"}, {"k": 2, "v": "b"}, {"k": 3, "v": "c"}


@pytest.fixture
def server() -> Iterator[WebServer]:
    with served() as found:
        yield found


@pytest.fixture
def once(tmp_path: Path) -> Iterator[Callable[[str], mp.App]]:
    """Runs a file once, in the same state directory each time."""
    apps: list[mp.App] = []

    def run(sql: str) -> mp.App:
        if apps:
            apps[-1].stop()
        (tmp_path / "app.sql").write_text(sql)
        apps.append(mp.App(tmp_path / "app.sql", state=tmp_path / "state"))
        apps[-1].run_once()
        return apps[-1]

    yield run
    for app in apps:
        app.stop()


def table(server: WebServer, path: str = "/rows", **options: str) -> str:
    given = ", ".join(f"'{name.replace('__', '-').replace('_', '.')}' = '{value}'" for name, value in options.items())
    with_ = f" WITH ({given})" if given else ""
    return f"CREATE TABLE t PRIMARY KEY (k) AS SELECT k, v FROM '{server.origin}{path}'{with_};"


def stream(server: WebServer, **options: str) -> str:
    given = ", ".join(f"'{name.replace('_', '.')}' = '{value}'" for name, value in options.items())
    with_ = f" WITH ({given})" if given else ""
    return (
        f"CREATE STREAM s (k BIGINT, v STRING) FROM '{server.origin}/rows'{with_};"
        "CREATE TABLE t (k BIGINT, v STRING); INSERT INTO t SELECT k, v FROM s;"
    )


def content(app: mp.App) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in app.table("t").find().to_pylist())


def failure(run: Callable[[str], mp.App], sql: str) -> MillpondError:
    with pytest.raises(MillpondError) as caught:
        run(sql)
    return caught.value


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it holds; a slow machine may take long."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_answer_is_a_table_and_a_later_one_is_compared(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = rows(A, B)
    assert content(once(table(server))) == [(1, "a"), (2, "b")]
    server.answers["/rows"] = rows(A, {"k": 2, "v": "x"}, C)
    assert content(once(table(server))) == [(1, "a"), (2, "x"), (3, "c")]
    server.answers["/rows"] = rows(C)
    assert content(once(table(server))) == [(3, "c")]


def test_validators_are_sent_back_across_restarts_and_304_changes_nothing(server: WebServer, once: Start) -> None:
    def answer(asked: Asked) -> Says:
        same = asked.headers.get("if-none-match") == '"1"' and asked.headers.get("if-modified-since") == "yesterday"
        return Says(status=304) if same else rows(A, ETag='"1"', Last_Modified="yesterday")

    server.answers["/rows"] = answer
    version = once(table(server)).table("t").version
    app = once(table(server))
    assert content(app) == [(1, "a")]
    assert app.table("t").version == version
    assert server.asked[-1].headers["if-none-match"] == '"1"'


def test_the_list_of_rows_is_found_by_its_path(server: WebServer, once: Start) -> None:
    body = {"meta": {"data": [1, "]}"]}, "data": {"n": 2, "rates": [A, B]}, "after": {"x": "["}}
    server.answers["/rows"] = Says(json.dumps(body).encode())
    assert content(once(table(server, rows="data.rates"))) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"data": {"other": []}}, "does not exist"),
        ({"data": {"rates": {"k": 1}}}, "is not a list"),
        ({"data": {"rates": None}}, "is not a list"),
    ],
)
def test_rows_that_are_absent_are_an_error(server: WebServer, once: Start, body: Any, said: str) -> None:
    server.answers["/rows"] = Says(json.dumps(body).encode())
    error = failure(once, table(server, rows="data.rates"))
    assert error.code == "MP502"
    assert said in str(error)
    assert '{"data"' in str(error)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Encoding": "gzip"}, gzip.compress(json.dumps([A]).encode())),
        ({"Content-Encoding": "br"}, brotli.compress(json.dumps([A]).encode())),
        ({"Content-Type": "application/gzip"}, gzip.compress(json.dumps([A]).encode())),
        ({"Content-Type": "text/csv"}, b"v,k\r\na,1\r\n"),
        ({"Content-Type": "application/x-ndjson"}, b'{"k": 1, "v": "a"}\n'),
        ({"Content-Type": "application/json; charset=utf-16"}, json.dumps([A]).encode("utf-16")),
        ({"Content-Type": 'text/csv; header=present; CHARSET="UTF-16"'}, "k,v\n1,a\n".encode("utf-16")),
        ({}, b'\xef\xbb\xbf [{"v": "a", "k": 1}]'),
        ({}, b'{\n "k": 1,\n "v": "a"\n}'),
    ],
    ids=["gzip", "brotli", "gzip-file", "csv", "lines", "utf-16", "charset-in-capitals", "byte-order-mark", "object"],
)
def test_bodies_of_each_form(server: WebServer, once: Start, headers: dict[str, str], body: bytes) -> None:
    server.answers["/rows"] = Says(body, headers=headers)
    assert content(once(table(server))) == [(1, "a")]


@pytest.mark.parametrize(
    ("says", "code", "said"),
    [
        (Says(b"no such \x07thing", 400), "MP502", "no such thing"),
        (Says(b"who are you", 401), "MP507", "who are you"),
        (Says(b"gone", 404), "MP501", "gone"),
        (Says(b"broken", 500), "MP506", "broken"),
        (Says(b"<html>login</html>"), "MP502", "<html>login"),
        (Says(b'[{"k": 1, "v": "a"}, {"k": 2', length=None), "MP502", "not JSON"),
        (Says(b'[{"k": 1, "v": "a"}', length=100), "MP506", 'is cut off. It begins with: [{"k": 1, "v": "a"}'),
        (Says(b'[{"k": 1, "v": "a"}]', length=15), "MP502", "not JSON"),
        (Says(b""), "MP502", "is empty"),
        (Says(b"42"), "MP502", "neither a list nor an object"),
        (Says(gzip.compress(b"[]" * 999)[:-9], headers={"Content-Encoding": "gzip"}), "MP502", "cut off"),
        (Says(b"rubbish", headers={"Content-Encoding": "gzip"}), "MP502", "It begins with: rubbish"),
        (Says(b"x", headers={"Content-Encoding": "lzw"}), "MP502", "lzw"),
        (Says(b"\xff\xfe\xfd", headers={"Content-Type": "application/json; charset=utf-16"}), "MP502", "utf-16"),
        (Says(b"[]", headers={"Content-Type": "text/csv; charset=klingon"}), "MP502", "klingon"),
        (Says(b"<a>", headers={"Content-Type": "text/csv"}), "MP502", "is not csv"),
        (Says(b'{"k": 1}\n{"k"', headers={"Content-Type": "application/x-ndjson"}), "MP502", "cut off"),
        (Says(b"", 302, {"Location": "/rows"}), "MP502", "redirects more than"),
        (Says(b"", 302, {"Location": "http://169.254.169.254/latest"}), "MP502", "another host"),
        (Says(b"", 302, {"Location": "file:///etc/passwd"}), "MP502", "another host"),
        (Says(b"", 302, {"Location": "http://[::1/rows"}), "MP502", "is not an address"),
        (Says(b"", 302, {"Location": "http://127.0.0.1:99999/rows"}), "MP502", "another host"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_bad_answer_fails_with_its_beginning(
    server: WebServer, once: Start, says: Says, code: str, said: str
) -> None:
    server.answers["/rows"] = says
    error = failure(once, table(server))
    assert error.code == code
    assert said in str(error)
    assert "Traceback" not in str(error)


def test_a_bad_answer_leaves_the_table_as_it_was(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = rows(A, B)
    version = once(table(server)).table("t").version
    for says in (Says(b"[", length=None), Says(b"x", 500), Says(b"x", 404), Says(b'[{"k": 1', length=99)):
        server.answers["/rows"] = says
        failure(once, table(server))
    server.answers["/rows"] = rows(A, B)
    app = once(table(server))
    assert content(app) == [(1, "a"), (2, "b")]
    assert app.table("t").version == version


def test_a_server_that_is_not_there_is_waited_for(server: WebServer, once: Start) -> None:
    """The first answers are errors that may pass."""
    answers = iter([Says(b"starting", 503), Says(b"starting", 502)])
    server.answers["/rows"] = lambda asked: next(answers, rows(A))
    app = once(table(server, connect_wait_timeout="60s", retry_interval="10ms"))
    assert content(app) == [(1, "a")]


def test_nobody_at_the_address_is_an_error_with_a_reason(once: Start) -> None:
    error = failure(once, "CREATE TABLE t AS SELECT * FROM http://127.0.0.1:1/rows;")
    assert error.code == "MP506"
    assert "Connection refused" in str(error)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(server: WebServer, once: Start, status: int) -> None:
    answers = iter([Says(b"", status, {"Retry-After": "0"}), Says(b"", status, {"Retry-After": "1"})])
    server.answers["/rows"] = lambda asked: next(answers, rows(A))
    assert content(once(table(server))) == [(1, "a")]


def test_a_retry_after_that_is_no_number_is_ignored(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = Says(b"", 429, {"Retry-After": "\xb2"})
    assert failure(once, table(server)).code == "MP506"


def test_a_server_that_hangs_is_given_up(server: WebServer, once: Start) -> None:
    over = threading.Event()
    server.answers["/rows"] = Says(b"[]", before=lambda: over.wait(60))
    try:
        error = failure(once, table(server, http_timeout="50ms"))
    finally:
        over.set()
    assert error.code == "MP506"
    assert "did not respond within 0.05 s" in str(error)


def test_a_body_that_hangs_is_given_up(server: WebServer, once: Start) -> None:
    over = threading.Event()
    server.answers["/rows"] = Says(b'[{"k": 1', length=100, after=lambda: over.wait(60))
    try:
        assert failure(once, table(server, http_timeout="50ms")).code == "MP506"
    finally:
        over.set()


def test_a_body_above_the_limit_is_an_error_also_when_it_is_compressed(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = Says(gzip.compress(b" " * 5_000_000 + b"[]"), headers={"Content-Encoding": "gzip"})
    error = failure(once, table(server, max_bytes="1MB"))
    assert "larger than 1,000,000 bytes" in str(error)


def test_redirects_within_the_host_are_followed_with_headers(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = Says(b"", 301, {"Location": "/moved?x=1"})
    server.answers["/moved"] = rows(A)
    assert content(once(table(server, http_header_X__Key="abc"))) == [(1, "a")]
    assert server.paths()[-1] == "/moved?x=1"
    assert server.asked[-1].headers["x-key"] == "abc"


def test_a_redirect_elsewhere_must_be_allowed_and_gets_no_headers(server: WebServer, once: Start) -> None:
    with served() as other:
        other.answers["/rows"] = rows(A)
        server.answers["/rows"] = Says(b"", 307, {"Location": f"{other.origin}/rows"})
        error = failure(once, table(server, http_header_Authorization="Bearer abcdefghij"))
        assert "another host" in str(error)
        assert other.asked == []
        app = once(table(server, http_header_Authorization="Bearer abcdefghij", http_redirect_to=other.origin))
        assert content(app) == [(1, "a")]
        assert "authorization" not in other.asked[-1].headers


def test_secrets_are_not_shown_even_if_the_server_repeats_them(server: WebServer, once: Start) -> None:
    server.answers["*"] = lambda asked: Says(f"bad {asked.headers['authorization']} {asked.path}".encode(), 403)
    sql = table(server, "/rows?key=topsecret&x=1", http_header_Authorization="Bearer s3cr3t-t0k3n")
    error = failure(once, sql)
    assert server.paths()[-1] == "/rows?key=topsecret&x=1"
    assert server.asked[-1].headers["authorization"] == "Bearer s3cr3t-t0k3n"
    assert "s3cr3t-t0k3n" not in str(error)
    assert "topsecret" not in str(error)


def test_a_login_in_the_uri_is_sent_as_basic(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = rows(A)
    once(f"CREATE TABLE t AS SELECT * FROM '{server.origin.replace('//', '//ann:pw@')}/rows';")
    assert server.asked[-1].headers["authorization"] == "Basic YW5uOnB3"


@pytest.mark.parametrize("how", ["option", "environment"])
def test_requests_go_through_a_proxy(server: WebServer, once: Start, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A proxy is asked for the whole address, and the host of the URI need not be known here."""
    server.answers["http://api.example.invalid/rows"] = rows(A)
    login = server.origin.replace("//", "//ann:s3cr3t@")
    if how == "environment":
        monkeypatch.setenv("http_proxy", login)
    with_ = f" WITH ('http.proxy' = '{login}')" if how == "option" else ""
    app = once(f"CREATE TABLE t AS SELECT k, v FROM 'http://api.example.invalid/rows'{with_};")
    assert content(app) == [(1, "a")]
    assert server.asked[-1].headers["proxy-authorization"] == "Basic YW5uOnMzY3IzdA=="
    assert server.asked[-1].headers["host"] == "api.example.invalid"


def test_a_proxy_that_is_away_is_reported_without_its_password(once: Start) -> None:
    proxy = "http://ann:s3cr3t@127.0.0.1:1"
    error = failure(
        once, f"CREATE TABLE t AS SELECT * FROM 'http://api.example.invalid/r' WITH ('http.proxy' = '{proxy}');"
    )
    assert error.code == "MP506"
    assert "s3cr3t" not in str(error)


@pytest.mark.parametrize("proxy", ["socks5://ann:s3cr3t@h:1", "http://:bad:port", "not a proxy"])
def test_a_proxy_that_is_not_an_address_is_an_error_of_configuration(once: Start, proxy: str) -> None:
    sql = f"CREATE TABLE t AS SELECT * FROM 'http://api.example.invalid/r' WITH ('http.proxy' = '{proxy}');"
    error = failure(once, sql)
    assert (error.code, "HTTP proxy" in str(error)) == ("MP508", True)
    assert "s3cr3t" not in str(error)


def paged(server: WebServer) -> None:
    def answer(asked: Asked) -> Says:
        page = int(asked.path.partition("page=")[2] or 1)
        found = {1: [A], 2: [B], 3: [C]}.get(page, [])
        following = f"/rows?page={page + 1}" if page < 3 else None
        body = {"rows": found, "next": following, "cursor": page + 1 if page < 3 else None}
        link = {"Link": f'</first>; rel="first", </rows?page={page + 1}>; rel="next"'} if page < 3 else {}
        return Says(json.dumps(body).encode(), headers={"ETag": f'"{page}"', **link})

    server.answers["/rows"] = answer


@pytest.mark.parametrize(
    "options",
    [
        {"http_page": "link"},
        {"http_page": "next", "http_page_next": "next"},
        {"http_page": "next", "http_page_next": "cursor", "http_page_parameter": "page"},
        {"http_page": "number"},
        {"http_page": "number", "http_page_parameter": "page"},
    ],
    ids=["link", "next", "cursor", "number", "named-number"],
)
def test_pages_are_read_to_the_last(server: WebServer, once: Start, options: dict[str, str]) -> None:
    paged(server)
    assert content(once(table(server, rows="rows", **options))) == [(1, "a"), (2, "b"), (3, "c")]


def test_pages_are_bounded_and_never_read_in_a_circle(server: WebServer, once: Start) -> None:
    paged(server)
    error = failure(once, table(server, rows="rows", http_page="link", http_page_max="2"))
    assert "more than 2 pages" in str(error)
    assert "empty" not in str(error)
    server.answers["/rows"] = rows(A, Link="</rows>; rel=next")
    assert "was read already" in str(failure(once, table(server, http_page="link")))


def test_pages_that_are_all_unchanged_are_not_loaded_again(server: WebServer, once: Start) -> None:
    paged(server)
    first = server.answers["/rows"]
    once(table(server, rows="rows", http_page="link"))

    def same(asked: Asked) -> Says:
        assert callable(first)
        says = first(asked)
        return Says(status=304) if asked.headers.get("if-none-match") == says.headers["ETag"] else says

    server.answers["/rows"] = same
    server.asked.clear()
    app = once(table(server, rows="rows", http_page="link"))
    assert content(app) == [(1, "a"), (2, "b"), (3, "c")]
    assert server.paths() == ["/rows", "/rows?page=2", "/rows?page=3"]


def test_each_record_that_was_not_in_the_last_answer_is_an_event(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = rows(A, B)
    assert content(once(stream(server))) == [(1, "a"), (2, "b")]
    # Written in another way, and one that is new.
    server.answers["/rows"] = Says(b'[ {"v":"b","k":2}, {"v":"a","k":1}, {"v":"c","k":3} ]')
    assert content(once(stream(server))) == [(1, "a"), (2, "b"), (3, "c")]
    server.answers["/rows"] = rows(C)
    assert len(content(once(stream(server)))) == 3
    server.answers["/rows"] = rows(C, A, {"k": 3, "v": "other"})
    assert content(once(stream(server))) == [(1, "a"), (1, "a"), (2, "b"), (3, "c"), (3, "other")]


def test_occurrences_are_numbered_over_all_parts() -> None:
    occurrences, before = Occurrences(), Counter[int]()
    random = Random(1)
    for size in (5, 0, 1, 1, 1, 40, 2, 3, 100):
        found = [random.randrange(9) for _ in range(size)]
        expected = []
        for one in found:
            before[one] += 1
            expected.append(before[one])
        assert occurrences.numbers(np.array(found, np.uint64)) == expected


def test_by_key_a_record_is_new_if_its_key_was_not_there(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = rows(A, B)
    once(stream(server, key="K"))
    server.answers["/rows"] = rows({"k": 1, "v": "changed"}, C, {"k": 3, "v": "twice"})
    assert content(once(stream(server, key="K"))) == [(1, "a"), (2, "b"), (3, "c"), (3, "twice")]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_records_without_a_key_are_compared_as_a_whole(server: WebServer, once: Start, form: str) -> None:
    def answer(*found: dict[str, Any]) -> Says:
        lines = ["k,v", *(f"{row['k'] or ''},{row['v']}" for row in found)]
        return rows(*found) if form == "json" else Says("\n".join(lines).encode(), headers={"Content-Type": "text/csv"})

    no_key, other = {"k": None, "v": "x"}, {"k": None, "v": "y"}
    server.answers["/rows"] = answer(A, no_key)
    once(stream(server, key="k"))
    server.answers["/rows"] = answer(no_key, {**A, "v": "z"}, other, other)
    found = [row["v"] for row in once(stream(server, key="k")).table("t").find().to_pylist()]
    assert found == ["a", "x", "y", "y"]


def test_a_key_must_be_a_column(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = rows(A)
    sql = stream(server, key="nope")
    for text in (sql, sql.replace("(k BIGINT, v STRING) FROM", "FROM", 1)):
        assert "There is no column 'nope', which 'key' names." in str(failure(once, text))


def test_equal_records_of_one_answer_are_events_of_their_own(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = rows(A, A)
    once(stream(server))
    server.answers["/rows"] = rows(A, A, A)
    assert content(once(stream(server))) == [(1, "a")] * 3


def test_a_stream_of_csv_is_compared_by_the_names_of_its_header(server: WebServer, once: Start) -> None:
    server.answers["/rows"] = Says(b"k,v\n1,a\n2,b\n", headers={"Content-Type": "text/csv"})
    once(stream(server, key="k"))
    server.answers["/rows"] = Says(b"v,k\nz,1\nc,3\n", headers={"Content-Type": "text/csv"})
    assert content(once(stream(server, key="k"))) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], mp.App]]:
    """Starts an app that runs until the end of the test."""
    apps: list[mp.App] = []

    def start(sql: str) -> mp.App:
        apps.append(mp.App(sql=sql, state=tmp_path / "state"))
        apps[-1].start()
        apps[-1].wait_ready("60s")
        return apps[-1]

    yield start
    for app in apps:
        app.stop()


def test_a_running_table_follows_the_server_and_survives_its_absence(server: WebServer, started: Start) -> None:
    server.answers["/rows"] = rows(A)
    app = started(table(server, poll_interval="10ms", retry_interval="10ms"))
    server.answers["/rows"] = rows(A, B)
    eventually(lambda: content(app) == [(1, "a"), (2, "b")])
    server.answers["/rows"] = Says(b"down", 500)
    eventually(lambda: app.table("t").state == "stale")
    assert content(app) == [(1, "a"), (2, "b")]
    server.answers["/rows"] = rows(C)
    eventually(lambda: content(app) == [(3, "c")] and app.table("t").state == "ready")


def test_a_running_stream_follows_the_server_and_survives_its_absence(server: WebServer, started: Start) -> None:
    server.answers["/rows"] = rows(A)
    app = started(stream(server, poll_interval="10ms", retry_interval="10ms"))
    server.answers["/rows"] = Says(b"down", 502)
    eventually(lambda: app.query("SHOW SOURCES").rows()[0]["health"] == "disconnected")
    server.answers["/rows"] = rows(A, B)
    eventually(lambda: content(app) == [(1, "a"), (2, "b")])
    eventually(lambda: app.query("SHOW SOURCES").rows()[0]["health"] == "healthy")


def test_a_server_that_hangs_keeps_no_other_stream_waiting(server: WebServer, started: Start) -> None:
    over = threading.Event()
    server.answers["/rows"] = rows(A)
    app = started(
        stream(server, poll_interval="10ms")
        + "CREATE TABLE m (n BIGINT); CREATE STREAM x (n BIGINT) FROM memory://x; INSERT INTO m SELECT n FROM x;"
    )
    asked = len(server.asked)
    server.answers["/rows"] = Says(b"[]", before=lambda: over.wait(60))
    try:
        eventually(lambda: len(server.asked) > asked)
        app.feed("memory://x").send([{"n": 1}])
        eventually(lambda: len(app.table("m")) == 1)
        assert not over.is_set()
    finally:
        over.set()


class HttpHarness(SourceHarness):
    """A server whose answer grows."""

    columns = {"n": "BIGINT", "text": "STRING"}
    options = {"max.rows.per.batch": "10"}

    def set_up(self) -> None:
        self.context = served()
        self.server = self.context.__enter__()
        self.uri = f"{self.server.origin}/rows"
        self.rows: list[Any] = []
        self.put(0)

    @pytest.fixture(autouse=True)
    def _closed(self) -> Iterator[None]:
        yield
        self.context.__exit__(None, None, None)

    def put(self, count: int) -> None:
        first = len(self.rows)
        self.rows += [{"n": n, "text": f"x{n}"} for n in range(first, first + count)]
        self.server.answers["/rows"] = rows(*self.rows)


@pytest.mark.spark
class TestHttp(HttpHarness, StreamContract, TableContract):
    def open(self) -> StreamReader:
        reader = super().open()
        assert isinstance(reader, FeedReader)
        assert isinstance(reader.feeder, HttpFeeder)
        # What is put in after it was opened is to be seen too.
        reader.feeder._first = None
        return reader

    def test_a_batch_that_comes_again_has_the_same_records(self) -> None:
        """Several batches of one answer, of which the first is asked for again."""
        self.put(25)
        lost = self.start(self.open(), fail=True)
        self.put(5)
        again = self.start(self.open())
        assert again.batches[0].equals(lost.batches[0])
        assert again.numbers(self.number) == list(range(30))

    def test_a_bad_record_stands_aside(self) -> None:
        self.put(2)
        self.server.answers["/rows"] = Says(b'[{"n": 0, "text": "x"}, 7, {"n": "seven"}]')
        found = self.start(self.open())
        assert found.numbers(self.number) == [0]
        assert [bad["_mp_raw"] for bad in found.bad()] == [b"7", b'{"n": "seven"}']

    def test_an_answer_of_which_only_a_part_was_kept_goes_on_behind_it(self) -> None:
        self.rows = [{"n": n // 2, "text": "twice"} for n in range(8)]
        self.put(0)
        spec = self.spec()
        feeder = HttpFeeder(spec)
        feeder.begin([], lambda parts: None)
        (first, _, *_) = list(feeder.poll(None))
        assert first.cut is not None
        before, _ = first.cut(3)
        again = HttpFeeder(spec)
        again.begin([before.position], lambda parts: None)
        rest = [n for part in again.poll(None) for n in part.rows.num_rows * [part.rows.num_rows]]
        assert len(rest) == 5


def test_a_list_of_many_rows_is_read_in_parts(server: WebServer, tmp_path: Path) -> None:
    """2 MB of rows behind a path: nothing holds them as Python objects."""
    many = b",".join(b'{"k": %d, "v": "]}\\"%d"}' % (n, n) for n in range(60_000))
    server.answers["/rows"] = Says(b'{"data": {"rows": [' + many + b'], "n": 1}, "next": null}')
    app = mp.App(sql=table(server, rows="data.rows"), state=tmp_path / "state")
    app.run_once()
    assert len(app.table("t")) == 60_000
    app.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    given = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")]
    subprocess.run(["openssl", "req", *kind, *given, *files], check=True, capture_output=True, timeout=60)
    return folder / "ca.pem", folder / "key.pem"


def test_certificates_are_verified_by_an_authority_of_ones_own(once: Start, certificate: tuple[Path, Path]) -> None:
    with served(certificate) as server:
        server.answers["/rows"] = rows(A)
        error = failure(once, table(server))
        assert error.code == "MP508"
        assert "certificate" in str(error).lower()
        assert server.asked == []
        assert content(once(table(server, http_ca=str(certificate[0])))) == [(1, "a")]


def test_a_file_of_certificates_must_exist(once: Start, server: WebServer) -> None:
    assert "There is no file" in str(failure(once, table(server, http_ca="none.pem")))
