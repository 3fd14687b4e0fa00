"""The HTTP API: what it answers, and whom it answers."""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import openapi_spec_validator
import pyarrow as pa
import pytest
from tests.serve.answering import AnsweringApp, serving
from tests.serve.asking import PATIENCE_S, Browser
from tests.serve.conftest import TABLES, Start

import millpond as mp
from millpond.app.queries import Cancellation
from millpond.contracts.source import Hook, Posted, Reply
from millpond.serve import connections, endpoints
from millpond.serve.addresses import FIRST_PORT, Address, listen, parse_address


def test_health_ready_and_stats_report_how_the_app_is(browser: Browser) -> None:
    assert browser.get("/health").json == {"status": "ok", "state": "running"}
    ready = browser.get("/ready")
    assert (ready.status, ready.json) == (200, {"ready": True, "state": "running", "waiting": []})
    stats = browser.get("/api/stats").json
    assert {t["name"]: t["rows"] for t in stats["tables"]} == {"dead_letters": 0, "users": 3}


def test_an_app_is_not_ready_before_it_is_started(tmp_path: Path) -> None:
    app = mp.App(sql=TABLES, state=tmp_path / "state", settings={"http": "127.0.0.1:0"})
    assert app.http_url is None
    app.tables()
    assert Browser(app.http_url or "").get("/ready").status == 503
    app.start()
    assert Browser(app.http_url or "").get("/ready").status == 200
    app.stop()
    assert app.http_url is None


def test_the_plan_is_what_explain_prints(browser: Browser) -> None:
    found = browser.get("/api/plan").json
    assert [t["name"] for t in found["tables"] if not t["hidden"]] == ["dead_letters", "users"]
    assert "users" in browser.get("/api/plan?format=text").text


def test_rows_are_json_lines_unless_asked_for_otherwise(browser: Browser) -> None:
    found = browser.query("SELECT user_id, paid FROM users ORDER BY user_id")
    assert found.headers["content-type"] == "application/x-ndjson"
    assert (found.headers["millpond-rows"], found.headers["millpond-truncated"]) == ("3", "false")
    assert found.text.splitlines() == [
        '{"user_id": "u1", "paid": "10.50"}',
        '{"user_id": "u2", "paid": "0.10"}',
        '{"user_id": "u3", "paid": null}',
    ]
    exact = browser.query("SELECT paid FROM users WHERE user_id = 'u1'", decimal="number")
    assert exact.text == '{"paid": 10.50}\n'


def test_rows_are_csv_arrow_or_one_object_by_the_accept_header(browser: Browser) -> None:
    body = {"sql": "SELECT user_id, paid FROM users ORDER BY user_id LIMIT 1"}
    assert browser.post("/api/query", body, accept="text/csv").text == "user_id,paid\nu1,10.50\n"
    arrow = browser.post("/api/query", body, accept="application/vnd.apache.arrow.stream")
    with pa.ipc.open_stream(io.BytesIO(arrow.body)) as stream:
        assert stream.read_all().to_pylist()[0]["user_id"] == "u1"
    assert browser.post("/api/query", body, accept="application/json").json == {
        "columns": [{"name": "user_id", "type": "STRING"}, {"name": "paid", "type": "DECIMAL(12,2)"}],
        "row_count": 1,
        "truncated": False,
        "rows": [["u1", "10.50"]],
    }


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/x-ndjson"),
        ("text/*", "text/csv"),
        ("text/html, */*;q=0.1", "application/x-ndjson"),
        ("application/json;q=0.5, TEXT/CSV;charset=utf-8", "text/csv"),
        ("text/csv;q=0, application/json;q=odd", "application/json"),
    ],
)
def test_the_preferred_format_of_the_accept_header_is_sent(browser: Browser, accept: str, kind: str) -> None:
    found = browser.post("/api/query", {"sql": "SELECT 1 AS n"}, accept=accept)
    assert found.headers["content-type"].partition(";")[0] == kind


@pytest.mark.parametrize("accept", ["application/xml", "text/csv;q=0", "csv"])
def test_a_format_that_does_not_exist_is_406_with_those_that_do(browser: Browser, accept: str) -> None:
    found = browser.post("/api/query", {"sql": "SELECT 1 AS n"}, accept=accept)
    assert found.status == 406
    assert "text/csv" in found.json["problems"][0]["hint"]
    assert browser.post("/api/query", {"sql": "SELECT 1 AS n", "format": "csv"}, accept=accept).text == "n\n1\n"


def test_values_are_given_as_parameters(browser: Browser) -> None:
    hostile = "x' OR '1' = '1"
    text = "SELECT user_id FROM users WHERE name = ? OR tier = ?"
    assert browser.query(text, parameters=["Bo", hostile]).text == '{"user_id": "u2"}\n'
    assert browser.query(text, parameters=["Bo"]).code == "MP411"


def test_more_rows_than_the_limit_are_reported(start: Start) -> None:
    _, browser = start(http_rows_max="2")
    for limit, rows, truncated in ((1, "1", "true"), (2, "2", "true"), (9, "2", "true"), (None, "2", "true")):
        found = browser.query("SELECT * FROM users", limit=limit)
        assert (found.headers["millpond-rows"], found.headers["millpond-truncated"]) == (rows, truncated)
    whole = browser.query("SELECT * FROM users WHERE tier = 'GOLD'", limit=2)
    assert whole.headers["millpond-truncated"] == "false"


def test_show_describe_and_explain_are_queries(browser: Browser) -> None:
    assert '"name": "users"' in browser.query("SHOW TABLES").text
    assert '"column": "paid"' in browser.query("DESCRIBE users").text
    assert "users" in browser.query("EXPLAIN SELECT * FROM users").text


def test_a_mistake_is_answered_with_code_place_and_hint(browser: Browser) -> None:
    found = browser.query("SELECT *\nFROM usres")
    assert found.status == 400
    (problem,) = found.json["problems"]
    assert (problem["code"], problem["line"], problem["column"], problem["length"]) == ("MP201", 2, 6, 5)
    assert "Did you mean 'users'?" in problem["hint"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "The body of the request is not JSON in UTF-8."),
        (b"\xff", "The body of the request is not JSON in UTF-8."),
        (b"[" * 100_000, "The body of the request is not JSON in UTF-8."),
        (b"[]", "The body of the request must be a JSON object."),
        (b"", "The field 'sql' is missing."),
        (b'{"sql": 1}', "The field 'sql' must be string."),
        (b'{"sql": "SELECT 1", "sqll": 1}', "There is no field 'sqll'."),
        (b'{"sql": "SELECT 1", "limit": true}', "The field 'limit' must be integer."),
        (b'{"sql": "SELECT 1", "limit": -1}', "The field 'limit' must not be negative."),
        (b'{"sql": "SELECT 1", "format": "xml"}', "The field 'format' must be jsonl | json | csv | arrow."),
    ],
)
def test_a_wrong_body_is_rejected(browser: Browser, body: bytes, message: str) -> None:
    found = browser.post("/api/query", body)
    assert (found.status, found.code, found.message) == (400, "MP715", message)


def test_a_wrong_timeout_is_a_duration_error(browser: Browser) -> None:
    assert browser.query("SELECT 1", timeout="soon").code == "MP106"


def test_what_is_not_there_is_404_and_a_wrong_method_405(browser: Browser) -> None:
    assert [browser.get(path).status for path in ("/nope", "/api/nope", "/api/changes/nope")] == [404, 404, 404]
    assert browser.get("/api/query").status == 405
    assert browser.post("/api/apply", {}).status == 404


def test_parameters_of_the_openapi_document_are_where_clients_send_them(browser: Browser) -> None:
    paths = browser.get("/api").json["paths"]
    for path, methods in paths.items():
        for operation in methods.values():
            declared = {p["name"]: (p["in"], p["required"]) for p in operation.get("parameters", ())}
            in_path = {name for name, place in declared.items() if place == ("path", True)}
            assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}, path
    assert "type" not in paths["/health"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api/plan?format=xml", "The parameter 'format' must be json | text."),
        ("/api/stats?table=users", "There is no parameter 'table'."),
        ("/api/changes/users?snapshot=maybe", "The parameter 'snapshot' must be true | false | 1 | 0."),
        ("/api/changes/users?sinse=1", "There is no parameter 'sinse'."),
    ],
)
def test_a_wrong_parameter_is_rejected(browser: Browser, path: str, message: str) -> None:
    found = browser.get(path)
    assert (found.status, found.json["problems"][0]["message"]) == (400, message)


def test_a_wrong_method_is_reported_with_the_right_one(browser: Browser) -> None:
    found = browser.get("/api/query")
    assert (found.status, found.headers["allow"]) == (405, "POST")
    assert found.json["problems"][0]["message"] == "GET is not allowed here."


def test_a_wrong_number_of_parameters_is_an_error_of_the_request(browser: Browser) -> None:
    found = browser.query("SELECT * FROM users WHERE user_id = ?")
    assert (found.status, found.json["problems"][0]["code"]) == (400, "MP411")


def test_the_openapi_document_is_valid_and_lists_every_path(browser: Browser) -> None:
    found = browser.get("/api").json
    openapi_spec_validator.validate(found)
    assert {"/health", "/api/query", "/api/changes/{table}", "/hooks/{name}"} <= found["paths"].keys()
    assert "/api/apply" not in found["paths"]
    fields = found["paths"]["/api/query"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert fields["required"] == ["sql"]


# Reading only


@pytest.mark.parametrize("sql", ["DELETE FROM users", "CREATE TABLE t (a INT)", "BEGIN; DELETE FROM users; COMMIT"])
def test_over_http_nothing_is_changed_unless_allowed(start: Start, sql: str) -> None:
    app, browser = start()
    found = browser.query(sql)
    assert (found.status, found.message) == (403, "Over HTTP this app is read-only.")
    assert browser.post("/api/dead-letters/replay").status == 403
    assert browser.post("/api/restart", {"flow": "x"}).status == 403
    assert len(app.table("users")) == 3


def test_with_http_write_tables_are_changed(start: Start) -> None:
    app, browser = start(http_write="true")
    assert browser.query("UPDATE users SET tier = 'NONE' WHERE tier = 'GOLD'").json == {"changed": 2}
    assert app.table("users").count("tier = 'NONE'") == 2
    assert browser.query("INSERT INTO users VALUES ('u1', 'x', 'y', 1)").status == 409
    assert browser.post("/api/dead-letters/replay", {"where": "code = 'MP504'"}).json == {
        "sent": 0,
        "refused": 0,
        "left": 0,
    }


@pytest.mark.parametrize(
    "sql",
    [
        "EXPLAIN SELECT * FROM file:///etc/passwd",
        "SELECT * FROM users u JOIN 'file:///etc/passwd' p ON p.x = u.user_id",
        "SELECT * FROM users WHERE EXISTS (SELECT 1 FROM 'file:///etc/passwd')",
        "INSERT INTO users SELECT * FROM 'file:///etc/passwd'",
        "INSERT INTO 'file:///tmp/out' SELECT * FROM users",
        "CREATE TABLE t (a INT) WITH ('backend' = 'sqlite', 'path' = '/tmp/x.sqlite')",
        "SELECT '${HOME}'",
        "SELECT '${HOME:-x}'",
        "SELECT '${NOTHING:-${HOME}}'",
    ],
)
def test_a_text_from_the_network_reaches_neither_files_nor_the_environment(start: Start, sql: str) -> None:
    _, browser = start(http_write="true")
    found = browser.query(sql)
    assert found.code == "MP715"
    assert "root" not in found.text
    assert os.environ["HOME"] not in found.text


# Who may ask


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "", "[::2]", "10.0.0.1"]
)
def test_a_name_that_is_not_this_machines_is_rejected(browser: Browser, host: str) -> None:
    for path in ("/", "/health", "/api/stats"):
        assert browser.get(path, host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9999", "127.0.0.1", "[::1]:8080"])
def test_a_name_of_this_machine_is_answered(browser: Browser, host: str) -> None:
    assert browser.get("/health", host=host).status == 200


def test_further_names_are_given_by_a_setting(start: Start) -> None:
    _, browser = start(http_hosts="app.example, other.example")
    assert browser.get("/health", host="Other.Example:80").status == 200
    assert browser.get("/health", host="evil.example").status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"])
def test_requests_that_another_site_makes_a_browser_send_are_rejected(browser: Browser, origin: str) -> None:
    found = browser.post("/api/query", {"sql": "SELECT 1"}, origin=origin)
    assert (found.status, found.message) == (403, "Requests of other sites are rejected.")
    own = f"http://{browser.host}:{browser.port}"
    assert browser.post("/api/query", {"sql": "SELECT user_id FROM users"}, origin=own).status == 200


def test_with_a_token_everything_but_probes_needs_it(start: Start) -> None:
    _, browser = start(http_token="s3cret-tokän")
    for path in ("/api/stats", "/api/plan", "/api/changes/users", "/api", "/nope"):
        found = browser.get(path)
        assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")
        assert "s3cret" not in found.text
    assert [browser.get(path).status for path in ("/health", "/ready")] == [200, 200]
    for wrong in ("Bearer x", "Bearer", "Basic s3cret", "s3cret", "Bearer s3cret-toka"):
        assert browser.get("/api/stats", authorization=wrong).status == 401
    right = "Bearer s3cret-tokän".encode().decode("latin-1")
    assert browser.get("/api/stats", authorization=right).status == 200


def test_to_listen_elsewhere_than_here_needs_a_token(tmp_path: Path) -> None:
    app = mp.App(sql=TABLES, state=tmp_path / "state", settings={"http": "0.0.0.0:0"})
    with pytest.raises(mp.MillpondError, match=r"MP307.*requires a token"):
        app.start()
    assert not (tmp_path / "state" / "socket").exists()
    app = mp.App(sql=TABLES, state=tmp_path / "state", settings={"http": "0.0.0.0:0", "http.token": "t"})
    app.start()
    port = int((app.http_url or "").rstrip("/").rpartition(":")[2])
    found = Browser(f"http://127.0.0.1:{port}/").get("/api/stats", authorization="Bearer t", host="10.1.2.3")
    assert found.status == 200
    app.stop()


@pytest.mark.parametrize("text", ["8080", "localhost", "localhost:", "localhost:x", "localhost:99999", "::1:8080", ""])
def test_what_is_no_address_is_a_wrong_setting(text: str) -> None:
    with pytest.raises(mp.MillpondError, match="MP307"):
        parse_address(text, "http")


def test_addresses_are_read() -> None:
    assert parse_address("[::1]:80", "http") == Address("::1", 80)
    assert parse_address(":8080", "http") == Address("127.0.0.1", 8080)
    assert [Address(h, 1).is_local for h in ("localhost", "127.9.9.9", "::1", "0.0.0.0", "example.org")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_an_address_in_use_is_an_error_and_the_next_free_one_is_taken_by_default(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(mp.MillpondError, match="MP716"):
            mp.App(sql=TABLES, state=tmp_path / "a", settings={"http": address}).start()
    first = mp.App(sql=TABLES, state=tmp_path / "b", http="auto")
    second = mp.App(sql=TABLES, state=tmp_path / "c", http="auto")
    first.start()
    second.start()
    ports = [Browser(app.http_url or "").port for app in (first, second)]
    assert FIRST_PORT <= ports[0] < ports[1]
    first.stop()
    with socket.create_server(("127.0.0.1", ports[0])):
        pass
    second.stop()


# Limits


def test_a_body_that_is_too_large_is_rejected(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    assert browser.post("/api/query", b"x" * (endpoints.BODY_BYTES_MAX + 1)).status == 413
    # One whose size is not said at its beginning.
    with browser.raw() as other:
        other.sendall(b"POST /api/query HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        try:
            for _ in range(endpoints.BODY_BYTES_MAX // 65_536 + 2):
                other.sendall(chunk)
            assert b" 413 " in other.recv(65_536)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert browser.get("/health").status == 200


def test_a_body_that_does_not_come_is_not_waited_for(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BODY_S", 0.05)
    with browser.raw() as other:
        other.sendall(b"POST /api/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{")
        assert other.recv(65_536).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_does_not_read_its_answer_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WRITE_S", 0.05)
    rows = pa.table({"text": ["x" * 1_000] * 50_000})
    with serving(AnsweringApp(lambda sql: rows), None, "127.0.0.1:0") as server:
        browser = Browser(server.url or "")
        with browser.raw() as other:
            body = b'{"sql": "SELECT text FROM t", "limit": 1000000}'
            head = f"POST /api/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            other.sendall(head.encode() + body)
            assert browser.query("SELECT 1", limit=1).status == 200
            assert server._loop is not None
            (http,) = server._loop._servers
            wait_until(lambda: not http.server_state.connections)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_query_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    cancelled = threading.Event()
    with serving(Waiting(cancelled), None, "127.0.0.1:0") as server:
        found = Browser(server.url or "").query("SELECT 1", timeout="50ms")
        assert (found.status, found.code, found.message) == (504, "MP714", "The query took longer than 0.05 s.")
        assert cancelled.wait(PATIENCE_S)


def test_a_query_whose_client_goes_is_cancelled() -> None:
    cancelled = threading.Event()
    waiting = Waiting(cancelled)
    with serving(waiting, None, "127.0.0.1:0") as server:
        with Browser(server.url or "").raw() as other:
            body = b'{"sql": "SELECT 1"}'
            head = f"POST /api/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            other.sendall(head.encode() + body)
            assert waiting.begun.wait(PATIENCE_S)
        assert cancelled.wait(PATIENCE_S)


def test_a_query_under_way_is_cancelled_when_the_app_stops() -> None:
    cancelled = threading.Event()
    waiting = Waiting(cancelled)
    with serving(waiting, None, "127.0.0.1:0") as server:
        thread = threading.Thread(target=lambda: Browser(server.url or "").query("SELECT 1"))
        thread.start()
        assert waiting.begun.wait(PATIENCE_S)
    assert cancelled.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


class Waiting(AnsweringApp):
    """Its answer comes when it is cancelled."""

    def __init__(self, cancelled: threading.Event) -> None:
        super().__init__()
        self.begun = threading.Event()
        self._cancelled = cancelled

    def answer(self, *given: Any, cancellation: Cancellation | None = None, **named: Any) -> pa.Table:
        assert cancellation is not None
        self.begun.set()
        stopped = threading.Event()
        with cancellation.stopping(stopped.set):
            assert stopped.wait(PATIENCE_S)
        self._cancelled.set()
        cancellation.require()


def test_every_answer_forbids_others_to_use_it(browser: Browser) -> None:
    for path in ("/health", "/api/stats", "/nope"):
        headers = browser.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_small_answers_are_sent_at_once() -> None:
    """Where a listener does not name its protocol, each answer waits until its first packet was acknowledged."""
    with closing(listen(Address("127.0.0.1", 0), "http")) as listener:
        assert listener.proto == socket.IPPROTO_TCP


# Hooks


def test_records_are_posted_to_the_source_that_takes_them() -> None:
    taken: list[tuple[list[str], Posted]] = []

    def take(readers: Any, posted: Posted) -> Future[Reply]:
        taken.append((readers, posted))
        reply: Future[Reply] = Future()
        reply.set_result(Reply(202, "two records", {"x-count": "2"}))
        return reply

    class Hooked(AnsweringApp):
        def hook(self, name: str) -> Any:
            return (Hook("clicks", 10, take), ["reader"]) if name == "clicks" else None

    with serving(Hooked(settings={"http.token": "t"}), None, "127.0.0.1:0") as server:
        browser = Browser(server.url or "")
        found = browser.post("/hooks/clicks", b"[1, 2]", idempotency_key="a")
        assert (found.status, found.json, found.headers["x-count"]) == (202, {"message": "two records"}, "2")
        assert browser.post("/hooks/clicks", b"x" * 11).status == 413
        assert browser.post("/hooks/none", b"1").status == 404
    ((readers, posted),) = taken
    assert (readers, posted.body, posted.headers["idempotency-key"]) == (["reader"], b"[1, 2]", "a")
