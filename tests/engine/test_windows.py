"""Windows over a stream against a naive model: rows in their windows, late ones reported, closed ones emitted once."""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.stepping import Stepper

START = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
DELAY_S = 5
STREAM = """
CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
  FROM 'file://./never.jsonl';
"""
Row = dict[str, Any]


def row(seconds: float | None, n: int = 1, k: str | None = "a") -> Row:
    return {"k": k, "n": n, "ts": None if seconds is None else START + timedelta(seconds=seconds)}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def ends(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    """Rows as tuples, sorted; times as seconds since START."""

    def plain(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("2026-"):
            value = datetime.fromisoformat(value.replace("Z", "+00:00"))
        return (value - START).total_seconds() if isinstance(value, datetime) else value

    return sorted((tuple(plain(r[name]) for name in names or r) for r in rows), key=str)


class Model:
    """Rows one by one; a window is open while the watermark, as a batch found it, has not reached its end."""

    def __init__(self, size_s: int, slide_s: int) -> None:
        self.size, self.slide = size_s, slide_s
        self.windows: dict[tuple[Any, float], list[int]] = {}
        self.late = 0
        self.emitted: list[tuple[Any, ...]] = []
        self.watermark: float | None = None

    def starts(self, seconds: float) -> Iterator[float]:
        start = seconds // self.slide * self.slide
        while start + self.size > seconds:
            yield start
            start -= self.slide

    def feed(self, batch: Sequence[tuple[Any, float, int]]) -> None:
        before = self.watermark
        for key, seconds, n in batch:
            closed = [s for s in self.starts(seconds) if before is not None and s + self.size <= before]
            self.late += bool(closed)
            for start in self.starts(seconds):
                if start not in closed:
                    self.windows.setdefault((key, start), []).append(n)
        newest = max((seconds for _, seconds, _ in batch), default=None)
        if newest is not None:
            self.watermark = max(newest - DELAY_S, -1e18 if before is None else before)
        emitted = {key for _, key in ((e, e[:2]) for e in self.emitted)}
        for (key, start), values in self.windows.items():
            ended = self.watermark is not None and start + self.size <= self.watermark
            if ended and (key, start) not in emitted:
                self.emitted.append((key, start, start + self.size, sum(values), len(set(values))))


@pytest.mark.spark
@pytest.mark.parametrize(("window", "size_s", "slide_s"), [("TUMBLING", 10, 10), ("SLIDING", 15, 6), ("HOPPING", 4, 9)])
def test_windows_hold_what_a_naive_model_holds(
    window: str, size_s: int, slide_s: int, spark: Any, tmp_path: Path
) -> None:
    random_ = random.Random(size_s)
    model = Model(size_s, slide_s)
    slide = "" if window == "TUMBLING" else f", INTERVAL {slide_s} SECONDS"
    query = f"""SELECT k, window_start, window_end, SUM(n) AS total, COUNT(DISTINCT n) AS kinds
      FROM s GROUP BY k, {window}(ts, INTERVAL {size_s} SECONDS{slide})"""
    sql = f"{STREAM} CREATE TABLE t AS {query}; INSERT INTO 'file://./out' {query};"
    stepper = Stepper(sql, tmp_path, spark, large=window == "SLIDING")
    for number in range(4):
        newest = 12 * (number + 1)
        batch = [
            (random_.choice(["a", None]), newest - random_.choice([0, 1, 3, 7, 20]), random_.randint(1, 3))
            for _ in range(8)
        ]
        model.feed(batch)
        stepper.feed([row(seconds, n, k) for k, seconds, n in batch])
        if number == 1:
            stepper.restart()
    emitted, kept = ends(stepper.sink("out")), ends(stepper.rows("t"))
    letters = stepper.rows("dead_letters")
    companion = stepper.rows("t__groups")
    stepper.close()
    held = [(k, s, s + size_s, sum(v), len(set(v))) for (k, s), v in model.windows.items()]
    assert emitted == sorted(model.emitted, key=str)
    assert kept == sorted(held, key=str)
    assert [letter["code"] for letter in letters] == ["MP706"] * model.late * 2
    assert all(at(model.watermark or 0) < r["we"] for r in companion), "what closed is forgotten"


def sessions_of(times: list[float], gap_s: float) -> list[list[float]]:
    found: list[list[float]] = []
    for time in sorted(times):
        if found and time - found[-1][-1] <= gap_s:
            found[-1].append(time)
        else:
            found.append([time])
    return found


@pytest.mark.spark
def test_sessions_of_any_batches_are_those_of_all_rows(spark: Any, tmp_path: Path) -> None:
    random_ = random.Random(7)
    sql = f"""{STREAM}
    CREATE TABLE t AS SELECT k, window_start, window_end, COUNT(*) AS c, SUM(n) AS total, COLLECT_LIST(n) AS list,
        COUNT(DISTINCT n) AS kinds, FIRST(n) AS f, STDDEV_POP(n) AS spread
      FROM s GROUP BY k, SESSION(ts, INTERVAL 10 SECONDS) WITH ('late.rows' = 'update');
    CREATE TABLE ends AS SELECT window_end, MAX(n) AS top FROM s GROUP BY SESSION(ts, INTERVAL 10 SECONDS)
      WITH ('late.rows' = 'update');"""
    stepper = Stepper(sql, tmp_path, spark)
    events = [(random_.choice(["a", None]), float(random_.randint(0, 120)), n) for n in range(24)]
    for number in range(3):
        stepper.feed([row(t, n, k) for k, t, n in events[number * 8 : number * 8 + 8]])
        if number == 0:
            stepper.restart()
    got = ends(stepper.rows("t"), "k", "window_start", "window_end", "c", "total", "list", "kinds", "f")
    top = ends(stepper.rows("ends"))
    stepper.close()
    wanted = []
    for key in ("a", None):
        for session in sessions_of([t for k, t, _ in events if k == key], 10):
            inside = [n for k, t, n in events if k == key and session[0] <= t <= session[-1]]
            window = (session[0], session[-1] + 10)
            wanted.append((key, *window, len(inside), sum(inside), inside, len(set(inside)), inside[0]))
    assert got == sorted(wanted, key=str)
    everyone = sessions_of([t for _, t, _ in events], 10)
    assert top == sorted(((s[-1] + 10, max(n for _, t, n in events if s[0] <= t <= s[-1])) for s in everyone), key=str)


@pytest.mark.spark
def test_a_session_is_emitted_once_and_what_comes_after_its_end_is_late(spark: Any, tmp_path: Path) -> None:
    sql = f"""{STREAM} INSERT INTO 'file://./out'
      SELECT k, window_start, window_end, SUM(n) AS total, MEDIAN(n) AS middle
      FROM s GROUP BY k, SESSION(ts, INTERVAL 10 SECONDS);"""
    stepper = Stepper(sql, tmp_path, spark)
    stepper.feed([row(0, 1), row(12, 2), row(6, 3)])
    stepper.feed([row(30, 4)])
    assert ends(stepper.sink("out")) == [("a", 0.0, 22.0, 6, 2.0)]
    stepper.restart()
    # 8 would end at 18, before the watermark of 25; 20 would end at 30 and touches the open session.
    stepper.feed([row(8, 5), row(20, 6), row(None, 7)])
    stepper.feed([row(60, 8)])
    emitted, letters = ends(stepper.sink("out")), [(r["code"], r["raw"]) for r in stepper.rows("dead_letters")]
    open_, values = (
        stepper.rows(next(n for n in stepper.tables() if n.endswith("__groups"))),
        stepper.rows(next(n for n in stepper.tables() if n.endswith("__values"))),
    )
    stepper.close()
    assert emitted == [("a", 0.0, 22.0, 6, 2.0), ("a", 20.0, 40.0, 10, 5.0)]
    assert [code for code, _ in letters] == ["MP706", "MP401"]
    assert b'"n":5' in letters[0][1].replace(b" ", b"")
    assert len(open_) == 1
    assert len(values) == 1


@pytest.mark.spark
def test_sessions_inserted_into_a_keyed_table_leave_it_when_they_are_joined(spark: Any, tmp_path: Path) -> None:
    sql = f"""{STREAM} CREATE TABLE visits (who STRING, began TIMESTAMP, c BIGINT, PRIMARY KEY (who, began));
    INSERT INTO visits SELECT k, window_start, COUNT(*) FROM s GROUP BY k, SESSION(ts, INTERVAL 10 SECONDS);"""
    stepper = Stepper(sql, tmp_path, spark)
    stepper.feed([row(0), row(14), row(3, k="b")])
    assert ends(stepper.rows("visits")) == [("a", 0.0, 1), ("a", 14.0, 1), ("b", 3.0, 1)]
    stepper.feed([row(7)])
    got = ends(stepper.rows("visits"))
    stepper.close()
    assert got == [("a", 0.0, 3), ("b", 3.0, 1)]


@pytest.mark.spark
def test_late_rows_by_policy_and_windows_by_retention(spark: Any, tmp_path: Path) -> None:
    def table(name: str, options: str) -> str:
        return f"""CREATE TABLE {name} AS SELECT window_start, COUNT(*) AS c, COUNT(DISTINCT n) AS kinds, MODE(n) AS m
          FROM s GROUP BY TUMBLING(ts, INTERVAL 10 SECONDS) WITH ({options});"""

    sql = STREAM + table("dropped", "'late.rows' = 'drop'") + table("updated", "'late.rows' = 'update'")
    sql += table("short", "'late.rows' = 'update', 'retention' = '20s'")
    stepper = Stepper(sql, tmp_path, spark)
    stepper.feed([row(1), row(16)])
    stepper.feed([row(2, 5), row(17)])
    stepper.feed([row(40, 9)])
    stepper.feed([row(3, 7)])
    found = {name: ends(stepper.rows(name)) for name in ("dropped", "updated", "short")}
    letters = [r["code"] for r in stepper.rows("dead_letters")]
    stepper.close()
    assert found["dropped"] == [(0.0, 1, 1, 1), (10.0, 2, 1, 1), (40.0, 1, 1, 9)]
    assert [r[:3] for r in found["updated"]] == [(0.0, 3, 3), (10.0, 2, 1), (40.0, 1, 1)]
    # The watermark is 35: windows that ended by 15 have left, and take no row any more.
    assert found["short"] == [(10.0, 2, 1, 1), (40.0, 1, 1, 9)]
    assert letters == ["MP706"]


@pytest.mark.spark
def test_the_clause_form_takes_the_watermarks_column(spark: Any, tmp_path: Path) -> None:
    sql = f"{STREAM} CREATE TABLE t AS SELECT k, window_start, COUNT(*) AS c FROM s GROUP BY k WINDOW TUMBLING(10s);"
    stepper = Stepper(sql, tmp_path, spark)
    stepper.feed([row(1), row(3), row(12)])
    got = ends(stepper.rows("t"))
    stepper.close()
    assert got == [("a", 0.0, 2), ("a", 10.0, 1)]


@pytest.mark.spark
def test_a_silent_stream_closes_its_windows_by_the_clock(spark: Any, tmp_path: Path) -> None:
    now = 100.0
    query = "SELECT window_start, COUNT(*) AS c FROM s GROUP BY TUMBLING(ts, INTERVAL 10 SECONDS)"
    sql = f"{STREAM.replace(';', '')} WITH ('idle.timeout' = '30s'); INSERT INTO 'file://./out' {query};"
    stepper = Stepper(sql, tmp_path, spark)
    stepper.flow._idle._clock = lambda: now
    stepper.feed([row(1), row(12)])
    now += 20
    stepper.flow.rest()
    assert stepper.sink("out") == []
    now += 11
    stepper.flow.rest()
    assert ends(stepper.sink("out")) == [(0.0, 1), (10.0, 1)]
    # The watermark is 12 - 5 + 31 by now.
    stepper.feed([row(29), row(31)])
    letters = [r["code"] for r in stepper.rows("dead_letters")]
    stepper.close()
    assert letters == ["MP706"]
