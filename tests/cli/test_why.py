"""`millpond why`: one event through one statement, over the tables of a stopped app."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import millpond as mp
from millpond.cli.main import main

APP = """
CREATE STREAM trades (id INT, user_id STRING, quantity INT, ts TIMESTAMP) FROM 'file://./trades.jsonl';
CREATE STREAM big AS SELECT * FROM trades WHERE quantity > 2;
CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING) WITH ('history' = '1h');
INSERT INTO users VALUES ('u1', 'GOLD'), ('u2', 'BASIC');
CREATE TABLE limits (tier STRING PRIMARY KEY, most INT);
INSERT INTO limits VALUES ('GOLD', 100), ('BASIC', 10);
INSERT INTO 'file://./out' SELECT t.id, u.tier, (SELECT COUNT(*) FROM users x WHERE x.tier = u.tier) AS peers
  FROM big t JOIN users u ON u.user_id = t.user_id LEFT JOIN limits l ON l.tier = u.tier AND l.most > t.quantity
  WHERE t.quantity < 50 AND EXISTS (SELECT 1 FROM limits m WHERE m.most > t.quantity);
CREATE TABLE totals AS SELECT u.tier, SUM(t.quantity) AS total
  FROM trades t LEFT JOIN users FOR SYSTEM_TIME AS OF t.ts AS u ON u.user_id = t.user_id GROUP BY u.tier;
SELECT id, 10 / quantity AS share, LAG(id) OVER (ORDER BY ts) AS before FROM trades;
SELECT id, 10 / quantity AS share FROM trades WHERE quantity <> 1 WITH ('on.error' = 'dead-letter');
SELECT t.id, u.tier, _versions FROM trades t JOIN users u ON u.user_id = t.user_id;
"""


@pytest.fixture
def _ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trades.jsonl").write_text('{"id": 1, "user_id": "u1", "quantity": 5, "ts": "2026-01-01T00:00:00Z"}\n')
    Path("app.sql").write_text(APP)
    assert main(["run", "app.sql", "--once", "--state", "state"]) == 0
    capsys.readouterr()


def why(capsys: pytest.CaptureFixture[str], statement: int, event: object, *more: str) -> list[str]:
    text = event if isinstance(event, str) else json.dumps(event)
    main(["why", "app.sql", "--state", "state", "--statement", str(statement), "--event", text, *more])
    printed = capsys.readouterr()
    return [line.strip() for line in (printed.out + printed.err).splitlines()]


@pytest.mark.usefixtures("_ended")
def test_each_part_shows_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert why(capsys, 7, {"id": 7, "user_id": "u1", "quantity": 20}) == [
        "statement 7 (line 8), driven by trades",
        "where trades.quantity > 2: true",
        "result: 1 row",
        '{"id": 7, "user_id": "u1", "quantity": 20, "ts": null}',
        "join users u ON u.user_id = t.user_id: 1 row",
        '{"user_id": "u1", "tier": "GOLD"}',
        "join limits l ON l.tier = u.tier AND l.most > t.quantity: 1 row",
        '{"tier": "GOLD", "most": 100}',
        "where t.quantity < 50: true",
        "where EXISTS(SELECT 1 AS `1` FROM limits AS m WHERE m.most > t.quantity): true",
        "subquery (SELECT COUNT(*) AS `COUNT(1)` FROM users AS x WHERE x.tier = u.tier): 1",
        "result: 1 row",
        '{"id": 7, "tier": "GOLD", "peers": 1}',
    ]


@pytest.mark.usefixtures("_ended")
def test_a_missing_row_shows_the_values_that_were_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = why(capsys, 7, {"id": 7, "user_id": "u9", "quantity": 200})
    assert """join users u ON u.user_id = t.user_id: no row for {"t.user_id": "u9"}; 'on.missing' is skip""" in found
    assert "where t.quantity < 50: false" in found
    assert "where EXISTS(SELECT 1 AS `1` FROM limits AS m WHERE m.most > t.quantity): false" in found
    assert found[-1] == "result: no row"


@pytest.mark.usefixtures("_ended")
def test_aggregates_and_window_functions_show_the_rows_they_get(capsys: pytest.CaptureFixture[str]) -> None:
    event = {"id": 7, "user_id": "u1", "quantity": 2, "ts": "2020-01-01T00:00:00Z"}
    past = why(capsys, 8, event)
    assert any(line.startswith("join users as of a time u ON") and "no row" in line for line in past)
    assert past[-1] == "group aggregates: the rows above are added to their groups"
    assert why(capsys, 9, event)[-1] == "over window functions: not evaluated: they depend on the events before"


@pytest.mark.usefixtures("_ended")
def test_the_versions_that_the_event_sees_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert why(capsys, 11, {"id": 7, "user_id": "u2"})[-1] == '{"id": 7, "tier": "BASIC", "_versions": {"users": 1}}'


@pytest.mark.usefixtures("_ended")
def test_nothing_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    for number in (7, 8, 9):
        why(capsys, number, {"id": 7, "user_id": "u1", "quantity": 20, "ts": "2026-01-01T00:00:00Z"})
    app = mp.App("app.sql", state="state")
    try:
        assert app.query("SELECT SUM(total) AS total FROM totals").rows() == [{"total": 5}]
    finally:
        app.stop()


@pytest.mark.usefixtures("_ended")
def test_what_cannot_be_traced_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert why(capsys, 1, {}) == [
        "MP310  Statement 1 is not driven by a stream.",
        "hint: The statements that a stream drives: 7 (line 8), 8 (line 11), 9 (line 13), 10 (line 14), 11 (line 15).",
    ]
    assert why(capsys, 7, "nonsense")[0] == "MP504  The event is not a valid record: not a JSON object: nonsense"
    assert why(capsys, 7, {"id": "x"})[0] == "MP504  The event is not a valid record: column 'id': 'x' is not an INT"
