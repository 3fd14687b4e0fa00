"""`GET /api/changes/<table>`: the changes of a table as events."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.serve.asking import Browser
from tests.serve.conftest import Start

from millpond.serve import server_sent_events
from millpond.tables import recent_changes


def operations(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["user_id"], row["_op"]) for row in rows]


def test_each_commit_is_an_event_with_its_rows_and_operations(start: Start) -> None:
    app, browser = start()
    with browser.events("/api/changes/users") as events:
        first = events.next()
        assert (first.kind, first.id) == ("start", str(app.table("users").version))
        app.execute("UPDATE users SET tier = 'NEW' WHERE user_id = 'u1'")
        with app.transaction() as tx:
            tx.execute("DELETE FROM users WHERE user_id = 'u2'")
            tx.execute("INSERT INTO users VALUES ('u9', 'Zoe\n\"<', NULL, 1.5)")
        change = events.next()
        assert (change.kind, operations(change.data["rows"])) == ("change", [("u1", "update")])
        assert change.data["rows"][0]["tier"] == "NEW"
        change = events.next()
        assert operations(change.data["rows"]) == [("u2", "delete"), ("u9", "insert")]
        assert change.data["rows"][1]["name"] == 'Zoe\n"<'
        assert change.id == str(app.table("users").version)


def test_a_client_resumes_after_the_last_event_that_it_saw(start: Start) -> None:
    app, browser = start()
    seen = str(app.table("users").version)
    for n in range(3):
        app.execute(f"INSERT INTO users VALUES ('n{n}', NULL, NULL, NULL)")
    for headers, path in (({"last_event_id": seen}, "/api/changes/users"), ({}, f"/api/changes/users?since={seen}")):
        with browser.events(path, **headers) as events:
            found = [events.next() for _ in range(3)]
        assert [operations(event.data["rows"]) for event in found] == [[(f"n{n}", "insert")] for n in range(3)]


def test_a_client_that_comes_too_late_reads_the_table_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_changes, "COMMITS_MAX", 2)
    app, browser = start()
    seen = app.table("users").version
    for n in range(5):
        app.execute(f"INSERT INTO users VALUES ('n{n}', NULL, NULL, NULL)")
    for version in (seen, seen + 1_000):
        with browser.events("/api/changes/users", last_event_id=str(version)) as events:
            reset = events.next()
            assert (reset.kind, reset.id) == ("reset", str(app.table("users").version))


def test_the_rows_of_now_come_first_when_asked_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_sent_events, "ROWS_PER_EVENT", 2)
    app, browser = start()
    with browser.events("/api/changes/users?snapshot=true") as events:
        parts = [events.next(), events.next()]
        assert [part.kind for part in parts] == ["snapshot", "snapshot"]
        assert [len(part.data["rows"]) for part in parts] == [2, 1]
        # Who is cut off between two parts gets all of them again.
        assert [(part.id is not None, part.data["complete"]) for part in parts] == [(False, False), (True, True)]
        app.execute("DELETE FROM users WHERE tier = 'GOLD'")
        assert sorted(operations(events.next().data["rows"])) == [("u1", "delete"), ("u3", "delete")]


def test_a_table_that_is_dropped_ends_its_events(start: Start) -> None:
    app, browser = start()
    app.execute("CREATE TABLE passing (a INT PRIMARY KEY)")
    with browser.events("/api/changes/passing") as events:
        assert events.next().kind == "start"
        app.execute("DROP TABLE passing")
        assert events.next().kind == "gone"
        with pytest.raises(EOFError):
            events.next()


def test_a_silent_table_shows_that_the_app_is_alive(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_sent_events, "ALIVE_S", 0.0)
    with browser.raw() as other:
        other.sendall(b"GET /api/changes/users HTTP/1.1\r\nhost: localhost\r\n\r\n")
        found = b""
        while b": alive" not in found:
            found += other.recv(65_536)


def test_events_end_when_the_app_stops(start: Start) -> None:
    app, browser = start()
    with browser.events("/api/changes/users") as events:
        assert events.next().kind == "start"
        app.stop()
        with pytest.raises(EOFError):
            events.next()


def test_what_is_no_table_or_version_is_rejected(browser: Browser) -> None:
    assert browser.get("/api/changes/usres").json["problems"][0]["hint"] == "Did you mean 'users'?"
    assert browser.get("/api/changes/users", last_event_id="x").status == 400


def test_two_hundred_clients_get_every_change(start: Start) -> None:
    app, browser = start()
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(browser.events("/api/changes/users")) for _ in range(200)]
        for events in streams:
            assert events.next().kind == "start"
        for n in range(3):
            app.execute(f"INSERT INTO users VALUES ('n{n}', NULL, NULL, NULL)")
        for events in streams:
            found: list[tuple[str, str]] = []
            while len(found) < 3:
                found += operations(events.next().data["rows"])
            assert found == [(f"n{n}", "insert") for n in range(3)]
