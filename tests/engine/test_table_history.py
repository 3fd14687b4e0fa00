"""The history of a table: random changes, cut into batches in several ways, against a naive model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.seeds import FRESH

import millpond as mp
from millpond.errors import MillpondError

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 60
Row = dict[str, Any]
STREAM = "CREATE STREAM s (op STRING, k STRING, v INT, ts TIMESTAMP) FROM memory://s;"
EVENTS = "CREATE STREAM e (id INT, k STRING, ts TIMESTAMP) FROM memory://e;"
TABLE = "CREATE TABLE p (k STRING PRIMARY KEY, v INT, ts TIMESTAMP) WITH ('history' = '{period}'{time});"
INSERT = "INSERT INTO p SELECT k, v, ts FROM s WHERE op = 'put';"
DELETE = "DELETE FROM p USING s WHERE p.k = s.k AND s.op = 'del';"
JOIN = """
    CREATE TABLE out AS SELECT e.id, p.v FROM e LEFT JOIN p FOR SYSTEM_TIME AS OF e.ts AS p ON p.k = e.k;
"""


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def changes(draw: random.Random, *, deletes: bool) -> list[Row]:
    """Rows of a few keys, of which some are earlier than one before, and some have the same time."""
    found, seconds = [], 0
    for number in range(ROWS):
        seconds += draw.choice((0, 1, 5, 30))
        back = draw.randint(1, 60) if draw.random() < 0.2 else 0
        op = "del" if deletes and draw.random() < 0.2 else "put"
        found.append({"op": op, "k": draw.choice("abc"), "v": number, "ts": at(max(seconds - back, 0))})
    return found


def valid(rows: list[Row], key: str, time: datetime, period: int) -> int | None:
    """The value at a time: of the last row of the key that began by then, unless it ended before the period."""
    own = [row for row in rows if row["k"] == key]
    ordered = [row for _, row in sorted(enumerate(own), key=lambda pair: (pair[1]["ts"], pair[0]))]
    newest = max(row["ts"] for row in rows)
    found = [n for n, row in enumerate(ordered) if row["ts"] <= time]
    if not found:
        return None
    end = ordered[found[-1] + 1]["ts"] if found[-1] + 1 < len(ordered) else None
    gone = end is not None and end <= newest - timedelta(seconds=period) and ordered[found[-1]] is not own[-1]
    return None if gone else ordered[found[-1]]["v"]


def sent(app: mp.App, name: str, rows: list[Row], cut: int) -> None:
    for start in range(0, len(rows), cut):
        app.feed(f"memory://{name}").send(rows[start : start + cut])
        app.drain("120s")


def asked(draw: random.Random) -> list[Row]:
    return [{"id": n, "k": draw.choice("abcd"), "ts": at(draw.randint(-5, 700))} for n in range(80)]


@pytest.mark.parametrize("others", ["", "UPDATE p SET v = p.v FROM s WHERE p.k = s.k AND s.op = 'none';"])
@pytest.mark.parametrize("seed", [1, FRESH])
def test_the_row_of_a_time_does_not_depend_on_batches(seed: int, others: str, tmp_path: Path) -> None:
    """With a second statement, the changes of both are folded event by event."""
    draw = random.Random(seed)
    rows, events, period = changes(draw, deletes=False), asked(draw), draw.choice((60, 3600))
    wanted = [{"id": e["id"], "v": valid(rows, e["k"], e["ts"], period)} for e in events]
    table = TABLE.format(period=f"{period}s", time=", 'history.time' = 'ts'")
    for cut in (1, 7, ROWS):
        with mp.App(sql=STREAM + EVENTS + table + INSERT + others + JOIN, state=tmp_path / str(cut)) as app:
            sent(app, "s", rows, cut)
            sent(app, "e", events, 50)
            assert app.query("SELECT * FROM out ORDER BY id").rows() == wanted, cut


def clock() -> Iterator[float]:
    now = START.timestamp()
    while True:
        now += 1.0
        yield now


@pytest.mark.parametrize("time", ["", ", 'history.time' = 'ts'"])
@pytest.mark.parametrize("seed", [2, FRESH])
def test_every_version_can_be_read(seed: int, time: str, tmp_path: Path) -> None:
    draw = random.Random(seed)
    rows = changes(draw, deletes=True)
    sql = STREAM + TABLE.format(period="1d", time=time) + INSERT + DELETE
    versions: dict[int, list[Row]] = {}
    with mp.App(sql=sql, state=tmp_path) as app:
        while rows:
            cut = draw.randint(1, 9)
            sent(app, "s", rows[:cut], cut)
            rows = rows[cut:]
            versions[app.table("p").version] = app.query("SELECT * FROM p ORDER BY k").rows()
        listed = app.query("SHOW CHANGES p").rows()
    assert listed == listing(versions)
    # After a restart they are the same.
    with mp.App(sql=sql, state=tmp_path) as app:
        for version, wanted in versions.items():
            assert app.query(f"SELECT * FROM p VERSION AS OF {version} ORDER BY k").rows() == wanted
        now = [{name: row[name] for name in row if name != "_at"} for row in app.query("SHOW CHANGES p LIMIT 3").rows()]
        assert now == [{name: row[name] for name in row if name != "_at"} for row in listed[:3]]


class _Anything:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, datetime)

    __hash__ = None  # type: ignore[assignment]


def listing(versions: dict[int, list[Row]]) -> list[Row]:
    """The changes between versions, newest first: new rows, then deleted ones."""
    found: list[Row] = []
    known = [(0, []), *versions.items()]
    for (_, before), (version, after) in reversed(list(pairwise(known))):
        old, new = {row["k"]: row for row in before}, {row["k"]: row for row in after}
        head = {"_version": version, "_at": _Anything()}
        found += [
            head | {"_op": "update" if k in old else "insert"} | row for k, row in new.items() if old.get(k) != row
        ]
        found += [head | {"_op": "delete"} | row for k, row in old.items() if k not in new]
    return found


def test_a_time_is_that_of_the_commit(tmp_path: Path) -> None:
    times = clock()
    now = [next(times)]
    with mp.App(sql=TABLE.format(period="10s", time=""), state=tmp_path, clock=lambda: now[0]) as app:
        for number in range(30):
            now[0] = next(times)
            app.execute(f"UPSERT INTO p VALUES ('a', {number}, NULL)")
        for number in range(20, 30):
            moment = at(number + 2).isoformat()
            found = app.query(f"SELECT v FROM p TIMESTAMP AS OF '{moment}'").rows()
            assert found == [{"v": number}]
        with pytest.raises(MillpondError, match="no longer available"):
            app.query(f"SELECT v FROM p TIMESTAMP AS OF '{at(5).isoformat()}'")
        with pytest.raises(MillpondError, match="no longer available"):
            app.query("SELECT v FROM p VERSION AS OF 3")
        with pytest.raises(MillpondError, match="has no version 99 yet: the newest is 30"):
            app.query("SELECT v FROM p VERSION AS OF 99")


def test_events_outside_of_the_history_are_counted(tmp_path: Path) -> None:
    time = ", 'history.time' = 'ts'"
    sql = STREAM + EVENTS + TABLE.format(period="60s", time=time) + INSERT + JOIN
    with mp.App(sql=sql, state=tmp_path / "state") as app:
        sent(app, "s", [{"op": "put", "k": "a", "v": n, "ts": at(n * 100)} for n in range(1, 5)], 1)
        sent(app, "e", [{"id": n, "k": "a", "ts": at(seconds)} for n, seconds in enumerate((120, 410, 150))], 1)
        rows = app.query("SELECT id, v FROM out ORDER BY id").to_arrow().to_pylist()
        counts = [flow.outside_history for flow in app.progress().flows if flow.stream == "e"]
    assert rows == [{"id": 0, "v": None}, {"id": 1, "v": 4}, {"id": 2, "v": None}]
    assert counts == [2]
