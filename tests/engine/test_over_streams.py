"""Window functions over a stream: random apps, cut into batches in several ways, against a naive evaluator."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.seeds import FRESH

import millpond as mp

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 60
CUTS = (1, 7, ROWS)
Row = dict[str, Any]


def events(draw: random.Random, *, late: bool) -> list[Row]:
    """Events of a few keys; their times rise, some are equal, and some are earlier than one before."""
    found, seconds = [], 0
    for number in range(ROWS):
        seconds += draw.choice((0, 0, 1, 1, 5, 30))
        back = draw.randint(1, 40) if late and draw.random() < 0.2 else 0
        value = None if draw.random() < 0.1 else draw.randint(-20, 20)
        price = None if value is None else value * 0.37
        key = draw.choice(("a", "b", "c", None))
        time = START + timedelta(seconds=max(seconds - back, 0))
        found.append({"id": number, "k": key, "v": value, "p": price, "ts": time})
    return found


CALLS = {
    "LAG(v) OVER (PARTITION BY k ORDER BY ts)": ("lag", "v", "rows", 1, 1),
    "LAG(v, 3, -1) OVER w": ("lag", "v", "rows", 3, 3),
    "FIRST_VALUE(v) OVER w": ("first", "v", "running", 0, 0),
    "LAST_VALUE(v) OVER w": ("last", "v", "running", 0, 0),
    "ROW_NUMBER() OVER w": ("row_number", None, "running", 0, 0),
    "RANK() OVER w": ("rank", None, "running", 0, 0),
    "DENSE_RANK() OVER w": ("dense_rank", None, "running", 0, 0),
    "COUNT(*) OVER w": ("count", None, "running", 0, 0),
    "COUNT(v) OVER (w ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)": ("count", "v", "rows", 4, 0),
    "SUM(v) OVER w": ("sum", "v", "running", 0, 0),
    "SUM(p) OVER w": ("sum", "p", "running", 0, 0),
    "AVG(v) OVER w": ("avg", "v", "running", 0, 0),
    "MIN(v) OVER w": ("min", "v", "running", 0, 0),
    "MAX(p) OVER w": ("max", "p", "running", 0, 0),
    "SUM(v) OVER (w ROWS 2 PRECEDING)": ("sum", "v", "rows", 2, 0),
    "SUM(p) OVER (w ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)": ("sum", "p", "rows", 3, 1),
    "MAX(v) OVER (w ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)": ("max", "v", "rows", 2, 0),
    "COUNT(*) OVER (w RANGE BETWEEN INTERVAL 20 SECONDS PRECEDING AND CURRENT ROW)": ("count", None, "range", 20, 0),
    "SUM(v) OVER (w RANGE BETWEEN INTERVAL 1 MINUTE PRECEDING AND CURRENT ROW)": ("sum", "v", "range", 60, 0),
    "SUM(p) OVER (w RANGE BETWEEN INTERVAL 1 MINUTE PRECEDING AND CURRENT ROW)": ("sum", "p", "range", 60, 0),
    "MIN(p) OVER (w RANGE BETWEEN INTERVAL 9 SECONDS PRECEDING AND CURRENT ROW)": ("min", "p", "range", 9, 0),
    "FIRST_VALUE(v) OVER (w RANGE BETWEEN INTERVAL 9 SECONDS PRECEDING AND CURRENT ROW)": ("first", "v", "range", 9, 0),
    "FIRST_VALUE(v, true) OVER w": ("first known", "v", "running", 0, 0),
    "LAST_VALUE(v) IGNORE NULLS OVER w": ("last known", "v", "running", 0, 0),
    "LAST_VALUE(v) IGNORE NULLS OVER (w ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)": ("last known", "v", "rows", 3, 1),
    "FIRST_VALUE(v) IGNORE NULLS OVER (w RANGE BETWEEN INTERVAL 9 SECONDS PRECEDING AND CURRENT ROW)": (
        ("first known", "v", "range", 9, 0)
    ),
    "COUNT_IF(v > 0) OVER w": ("count if", "v", "running", 0, 0),
    "BOOL_OR(v > 0) OVER (w ROWS 2 PRECEDING)": ("or", "v", "rows", 2, 0),
    "BOOL_AND(v > 0) OVER w": ("and", "v", "running", 0, 0),
    "COUNT(v, k) OVER w": ("count pairs", "v", "running", 0, 0),
}


def naive(rows: list[Row], calls: list[str], policy: str, retention: int | None = None) -> tuple[list[Row], list[int]]:
    """One event after the other: what had arrived of its key and is still stored, and the ids of late events."""
    arrived: dict[Any, list[Row]] = defaultdict(list)
    kept: dict[Any, list[Row]] = defaultdict(list)
    newest: dict[Any, datetime] = {}
    latest: datetime | None = None
    found, late = [], []
    for row in rows:
        key, ts = row["k"], row["ts"]
        latest = ts if latest is None else max(latest, ts)
        expired = retention is not None and ts < latest - timedelta(seconds=retention)
        if (key in newest and ts < newest[key]) or expired:
            late.append(row["id"])
            if policy != "update":
                continue
        elif retention is not None and key in newest and latest - newest[key] > timedelta(seconds=retention):
            arrived[key], kept[key] = [], []
        arrived[key].append(row)
        kept[key] = sorted([*kept[key], row], key=lambda r: r["ts"])
        newest[key] = max(newest.get(key, ts), ts)
        at = next(n for n, r in enumerate(kept[key]) if r is row)
        values = {
            f"x{n}": value(arrived[key] if CALLS[c][2] == "running" else kept[key][: at + 1], row, *CALLS[c], c)
            for n, c in enumerate(calls)
        }
        found.append({"id": row["id"]} | values)
        kept[key] = pruned(kept[key], calls)
    return found, late


def pruned(kept: list[Row], calls: list[str]) -> list[Row]:
    """The rows that later frames can contain."""
    count = max((CALLS[c][3] for c in calls if CALLS[c][2] == "rows"), default=0)
    distance = max((CALLS[c][3] for c in calls if CALLS[c][2] == "range"), default=None)
    cut = max(0, len(kept) - count)
    edge = None if distance is None else kept[-1]["ts"] - timedelta(seconds=distance)
    return [r for r in kept[:cut] if edge is not None and r["ts"] >= edge] + kept[cut:]


def value(
    past: list[Row], row: Row, function: str, column: str | None, kind: str, start: int, end: int, text: str
) -> Any:
    at = len(past) - 1
    if kind == "rows":
        frame = past[max(0, at - start) : max(0, at - end + 1)]
    elif kind == "range":
        frame = [r for r in past if r["ts"] >= row["ts"] - timedelta(seconds=start)]
    else:
        frame = past
    values = [r[column] for r in frame if column is not None]
    known = [v for v in values if v is not None]
    if function == "lag":
        return values[0] if values and at >= start else (-1 if "-1" in text else None)
    if function in ("first", "last"):
        return (values[0] if function == "first" else values[-1]) if values else None
    if function.endswith(" known"):
        return (known[0] if function == "first known" else known[-1]) if known else None
    if function == "count if":
        return sum(1 for v in known if v > 0)
    if function == "count pairs":
        return len(known) if row["k"] is not None else 0
    if function in ("or", "and"):
        return ({"or": any, "and": all}[function](v > 0 for v in known)) if known else None
    if function == "row_number":
        return len(past)
    if function == "rank":
        return 1 + sum(1 for r in past if r["ts"] < row["ts"])
    if function == "dense_rank":
        return len({r["ts"] for r in past})
    if function == "count":
        return len(frame) if column is None else len(known)
    if not known:
        return None
    total: Any = 0
    for v in known:
        total += v
    return {"sum": total, "avg": total / len(known), "min": min(known), "max": max(known)}[function]


def run(folder: Path, rows: list[Row], cut: int, calls: list[str], options: str = "") -> tuple[list[Row], list[str]]:
    columns = ", ".join(f"{call} AS x{n}" for n, call in enumerate(calls))
    sql = f"""
        CREATE STREAM s (id INT, k STRING, v INT, p DOUBLE, ts TIMESTAMP) FROM memory://s;
        CREATE TABLE out AS SELECT id, {columns} FROM s WINDOW w AS (PARTITION BY k ORDER BY ts){options};
    """
    with mp.App(sql=sql, state=folder) as app:
        for start in range(0, len(rows), cut):
            app.feed("memory://s").send(rows[start : start + cut])
            app.drain("120s")
        letters = app.query("SELECT code FROM dead_letters").rows()
        return app.query("SELECT * FROM out ORDER BY id").rows(), [letter["code"] for letter in letters]


def test_show_all_tables_shows_what_is_stored_for_window_functions(tmp_path: Path) -> None:
    sql = """
        CREATE STREAM s (id INT, k STRING) FROM memory://s;
        CREATE TABLE out AS SELECT id, LAG(id, 2) OVER (PARTITION BY k) AS x FROM s;
    """
    with mp.App(sql=sql, state=tmp_path) as app:
        app.feed("memory://s").send([{"id": n, "k": "ab"[n % 2]} for n in range(20)])
        app.drain("120s")
        found = {row["name"]: row["rows"] for row in app.query("SHOW ALL TABLES").rows()}
        assert set(found) > {row["name"] for row in app.query("SHOW TABLES").rows()} == {"dead_letters", "out"}
        assert sorted(found.values()) == [0, 2, 4, 20]


@pytest.mark.parametrize("seed", [1, FRESH])
def test_values_do_not_depend_on_batches(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    rows, calls = events(draw, late=False), draw.sample(list(CALLS), 9)
    wanted, late = naive(rows, calls, "dead-letter")
    assert not late
    for cut in CUTS:
        got, letters = run(tmp_path / str(cut), rows, cut, calls)
        assert got == wanted, cut
        assert not letters


@pytest.mark.parametrize("policy", ["dead-letter", "drop", "update"])
@pytest.mark.parametrize("seed", [FRESH])
def test_late_events_follow_their_policy(seed: int, policy: str, tmp_path: Path) -> None:
    draw = random.Random(seed)
    rows = events(draw, late=True)
    calls = draw.sample([c for c in CALLS if "RANK" not in c], 6)
    wanted, late = naive(rows, calls, policy)
    for cut in (1, ROWS):
        got, letters = run(tmp_path / str(cut), rows, cut, calls, f" WITH ('late.rows' = '{policy}')")
        assert got == wanted, cut
        assert letters == ["MP706"] * (len(late) if policy == "dead-letter" else 0)


@pytest.mark.parametrize("seed", [4, FRESH])
def test_a_silent_key_is_forgotten(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    rows, calls = events(draw, late=True), draw.sample(list(CALLS), 6)
    wanted, _ = naive(rows, calls, "drop", retention=25)
    for cut in (7, ROWS):
        options = " WITH ('late.rows' = 'drop', 'retention' = '25s')"
        assert run(tmp_path / str(cut), rows, cut, calls, options)[0] == wanted, cut


@pytest.mark.parametrize("retention", [None, 60])
@pytest.mark.parametrize("seed", [FRESH])
def test_an_event_that_is_late_in_one_of_several_windows_is_late_in_none_of_the_others(
    seed: int, retention: int | None, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    rows = events(draw, late=True)
    wanted: list[Row] = []
    newest: dict[Any, datetime] = {}
    seen: dict[Any, int] = {}
    for row in rows:
        ts, keys = row["ts"], [("a", row["k"]), ("b", row["id"] % 2), ("c", row["id"] % 3)]
        until = max([ts, *(t for t in newest.values())])
        expired = retention is not None and ts < until - timedelta(seconds=retention)
        if expired or any(key in newest and ts < newest[key] for key in keys):
            continue
        for key in keys:
            silent = retention is not None and key in newest and until - newest[key] > timedelta(seconds=retention)
            seen[key] = 1 if silent else seen.get(key, 0) + 1
            newest[key] = ts
        wanted.append({"id": row["id"], **{name: seen[name, key] for name, key in keys}})
    keep = f", 'retention' = '{retention}s'" if retention else ""
    sql = f"""
        CREATE STREAM s (id INT, k STRING, v INT, p DOUBLE, ts TIMESTAMP) FROM memory://s;
        CREATE TABLE out AS SELECT id, COUNT(*) OVER (PARTITION BY k ORDER BY ts) AS a,
          ROW_NUMBER() OVER (PARTITION BY id % 2 ORDER BY ts) AS b, COUNT(*) OVER (PARTITION BY id % 3 ORDER BY ts) AS c
        FROM s WITH ('late.rows' = 'drop'{keep});
    """
    for cut in CUTS:
        with mp.App(sql=sql, state=tmp_path / str(cut)) as app:
            for start in range(0, len(rows), cut):
                app.feed("memory://s").send(rows[start : start + cut])
                app.drain("120s")
            assert app.query("SELECT * FROM out ORDER BY id").rows() == wanted, cut
