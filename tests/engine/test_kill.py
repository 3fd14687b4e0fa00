"""An app that is killed, at random moments and at each step of a batch, ends as an undisturbed one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.faults import FLOW_POINTS

KILLS = int(os.environ.get("MILLPOND_KILLS", "100" if os.environ.get("MILLPOND_SOAK") else "20"))
LONGEST_S = 180
# Where the app's messages go: not through a pipe, which its JVM would keep open.
SAID = "said.txt"
# Where the process ends itself: each step of a batch, in the second batch after one that was not finished, between the
# files of two sinks, and inside the commit.
STEPS = (
    *FLOW_POINTS[:4],
    "flow.worked:2",
    *FLOW_POINTS[4:7],
    "sink.renamed:2",
    *FLOW_POINTS[7:],
    "log.append.half",
    "log.append.synced",
    "commit.applied",
)

APP = """
CREATE STREAM trades (id INT, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), ts TIMESTAMP,
                      WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS)
  FROM 'file://./in/*.jsonl';
CREATE TABLE users PRIMARY KEY (user_id) AS SELECT * FROM 'file://./users.csv';
CREATE TABLE last_trades (symbol STRING PRIMARY KEY, id INT, price DECIMAL(12,2), seen STRING DEFAULT 'yes');
CREATE TABLE log (id INT, user_id STRING);
CREATE TABLE balances (user_id STRING PRIMARY KEY, balance DECIMAL(14,2), n INT);
CREATE TABLE seats (symbol STRING PRIMARY KEY);
INSERT INTO balances VALUES ('u0', 0, 0), ('u1', 0, 0), ('u2', 0, 0), ('u3', 0, 0);
INSERT INTO seats VALUES ('S0'), ('S1'), ('S2'), ('S3'), ('S99');

UPSERT INTO last_trades (symbol, id, price) SELECT symbol, id, price FROM trades;
INSERT INTO log SELECT id, user_id FROM trades WHERE quantity > 5;
UPDATE balances SET balance = balances.balance + t.quantity * t.price, n = balances.n + 1
  FROM trades t WHERE balances.user_id = t.user_id;
DELETE FROM seats USING trades t WHERE seats.symbol = t.symbol AND t.quantity = 10;
CREATE TABLE positions AS
  SELECT user_id, symbol, SUM(quantity) AS size, SUM(quantity * price) AS value, AVG(price) AS mean, COUNT(*) AS n
  FROM trades GROUP BY user_id, symbol;
CREATE TABLE by_tier AS
  SELECT u.tier, SUM(p.size) AS size, COUNT(*) AS positions FROM positions p JOIN users u ON u.user_id = p.user_id
  GROUP BY u.tier;
INSERT INTO 'file://./out'
  SELECT t.id, t.user_id, u.tier, t.quantity * t.price AS value
  FROM trades t LEFT JOIN users u ON t.user_id = u.user_id;
INSERT INTO 'file://./windows'
  SELECT window_start, COUNT(*) AS n, SUM(quantity) AS size FROM trades GROUP BY TUMBLING(ts, INTERVAL 10 SECONDS);
INSERT INTO 'file://./changes' SELECT * FROM CHANGES(log);
CREATE TABLE prices (symbol STRING PRIMARY KEY, price DECIMAL(12,2), ts TIMESTAMP)
  WITH ('history' = '1h', 'history.time' = 'ts');
INSERT INTO prices SELECT symbol, price, ts FROM trades;
CREATE TABLE earlier AS SELECT t.id, p.price
  FROM trades t LEFT JOIN prices FOR SYSTEM_TIME AS OF t.ts - INTERVAL 20 SECONDS AS p ON p.symbol = t.symbol;
CREATE TABLE steps AS SELECT id, LAG(price) OVER w AS before, SUM(quantity) OVER w AS total,
    COUNT(*) OVER (w RANGE BETWEEN INTERVAL 40 SECONDS PRECEDING AND CURRENT ROW) AS recent
  FROM trades WINDOW w AS (PARTITION BY user_id ORDER BY ts);
"""
USERS = "user_id,tier\nu0,GOLD\nu1,BASIC\nu2,GOLD\n"
TIERS = {"u0": "GOLD", "u1": "BASIC", "u2": "GOLD"}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def trades(first: int, count: int) -> Iterator[dict[str, Any]]:
    for n in range(first, first + count):
        yield {
            "id": n,
            "user_id": f"u{n % 4}",
            "symbol": f"S{n * 7 % 13}",
            "quantity": n % 11,
            "price": f"{n % 97}.{n % 100:02d}",
            "ts": (BEGIN + timedelta(seconds=n)).isoformat(),
        }


class Source:
    """The folder that the app follows: files of events appear in it whole, one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.total = 0

    def give(self, count: int) -> None:
        lines = "".join(json.dumps(t) + "\n" for t in trades(self.total, count))
        made = self.folder / f".{self.total:06d}.tmp"
        made.write_text(lines)
        made.rename(self.folder / f"{self.total:06d}.jsonl")
        self.total += count


def expected(total: int) -> dict[str, Any]:
    """The same app in a few lines of Python."""
    events = [{**t, "price": Decimal(t["price"])} for t in trades(0, total)]
    balances = {f"u{i}": [Decimal(0), 0] for i in range(4)}
    positions: dict[tuple[str, str], list[Any]] = defaultdict(lambda: [0, Decimal(0), 0])
    windows: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for t in events:
        added = (t["quantity"], t["quantity"] * t["price"], 1)
        held = positions[t["user_id"], t["symbol"]]
        positions[t["user_id"], t["symbol"]] = [a + b for a, b in zip(held, added, strict=True)]
        balances[t["user_id"]] = [a + b for a, b in zip(balances[t["user_id"]], added[1:], strict=True)]
        windows[t["id"] // 10] = [a + b for a, b in zip(windows[t["id"] // 10], (1, t["quantity"]), strict=True)]
    by_tier: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (user, _), (size, *_) in positions.items():
        if user in TIERS:
            by_tier[TIERS[user]] = [a + b for a, b in zip(by_tier[TIERS[user]], (size, 1), strict=True)]
    logged = [(t["id"], t["user_id"]) for t in events if t["quantity"] > 5]
    closed = (total - 1 - 2) // 10
    return {
        "last_trades": sorted(
            (t["symbol"], t["id"], t["price"], "yes") for t in {t["symbol"]: t for t in events}.values()
        ),
        "log": logged,
        "balances": sorted((u, *figures) for u, figures in balances.items()),
        "seats": sorted({"S0", "S1", "S2", "S3", "S99"} - {t["symbol"] for t in events if t["quantity"] == 10}),
        "positions": sorted((u, s, *figures) for (u, s), figures in positions.items()),
        "by_tier": sorted((tier, *figures) for tier, figures in by_tier.items()),
        "out": [(t["id"], t["user_id"], TIERS.get(t["user_id"]), t["quantity"] * t["price"]) for t in events],
        "windows": [(BEGIN + timedelta(seconds=10 * w), *windows[w]) for w in range(closed)],
        "changes": [(*row, "insert") for row in logged],
        "earlier": [(n, _price_before(events, n)) for n in range(total)],
        "steps": [_step(events, n) for n in range(total)],
    }


def _price_before(events: list[dict[str, Any]], number: int) -> Decimal | None:
    """The price of the symbol's last trade at least 20 seconds before."""
    own = [t for t in events[: max(number - 19, 0)] if t["symbol"] == events[number]["symbol"]]
    return own[-1]["price"] if own else None


def _step(events: list[dict[str, Any]], number: int) -> tuple[Any, ...]:
    """The price before, the quantity so far, and the number of the last 40 seconds, of the same user."""
    own = [t for t in events[: number + 1] if t["user_id"] == events[number]["user_id"]]
    before = own[-2]["price"] if len(own) > 1 else None
    return number, before, sum(t["quantity"] for t in own), sum(t["id"] >= number - 40 for t in own)


def found(folder: Path) -> dict[str, Any]:
    """What the app holds, tables through Python and files as a reader finds them."""
    app = mp.App(folder / "app.sql", state=folder / "state")
    try:
        rows = {name: app.table(name).to_arrow().to_pylist() for name in app.tables()}
    finally:
        app.stop()
    assert rows["dead_letters"] == []
    out, windows, changes = (_lines(folder / name) for name in ("out", "windows", "changes"))
    return {
        "last_trades": sorted((r["symbol"], r["id"], r["price"], r["seen"]) for r in rows["last_trades"]),
        "log": sorted((r["id"], r["user_id"]) for r in rows["log"]),
        "balances": sorted((r["user_id"], r["balance"], r["n"]) for r in rows["balances"]),
        "seats": sorted(r["symbol"] for r in rows["seats"]),
        "positions": sorted((r["user_id"], r["symbol"], r["size"], r["value"], r["n"]) for r in rows["positions"]),
        "by_tier": sorted((r["tier"], r["size"], r["positions"]) for r in rows["by_tier"]),
        "out": sorted((r["id"], r["user_id"], r.get("tier"), Decimal(r["value"])) for r in out),
        "windows": sorted((datetime.fromisoformat(r["window_start"]), r["n"], r["size"]) for r in windows),
        "changes": sorted((r["id"], r["user_id"], r["_op"]) for r in changes),
        "earlier": sorted((r["id"], r["price"]) for r in rows["earlier"]),
        "steps": sorted((r["id"], r["before"], r["total"], r["recent"]) for r in rows["steps"]),
    }


def _lines(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return [json.loads(line, parse_float=Decimal) for line in lines]


def start(folder: Path, *flags: str, fault: str = "") -> subprocess.Popen[bytes]:
    """The app in a session of its own, with its JVM."""
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--state", "state", "--no-http", *flags]
    environment = {**os.environ, "MILLPOND_FAULT": fault}
    with (folder / SAID).open("wb") as said:
        return subprocess.Popen(command, cwd=folder, stderr=said, stdout=said, env=environment, start_new_session=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is there of the app: its JVM outlives it by a while."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(LONGEST_S)


def committed_bytes(folder: Path) -> int:
    """A measure of progress that a stranger can see: what the store has written so far."""
    return sum(f.stat().st_size for f in (folder / "state" / "store").rglob("*") if f.is_file())


def wait_for_progress(folder: Path, process: subprocess.Popen[bytes], before: int) -> None:
    """Until the app commits something new, so that kills fall into its work and not into Spark's start."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        try:
            if committed_bytes(folder) != before:
                return
        except FileNotFoundError:
            pass
        assert process.poll() is None, (folder / SAID).read_text()
        time.sleep(0.005)
    raise AssertionError("the app committed nothing")


def end_at(folder: Path, fault: str) -> None:
    """Let the app end itself at a step."""
    process = start(folder, "--once", fault=fault)
    try:
        assert process.wait(LONGEST_S) == 137, f"{fault} was not reached: {(folder / SAID).read_text()}"
    finally:
        end(process)


def kill_at_random(folder: Path, source: Source, chance: random.Random) -> None:
    """Kill the app while events come in."""
    before = committed_bytes(folder) if (folder / "state" / "store").exists() else 0
    process = start(folder)
    wait_for_progress(folder, process, before)
    deadline = time.monotonic() + chance.uniform(0.0, 1.0)
    while time.monotonic() < deadline:
        source.give(5)
        time.sleep(chance.uniform(0.01, 0.1))
    end(process)


@pytest.mark.process
@pytest.mark.timeout(KILLS * LONGEST_S)
def test_a_killed_app_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    chance = random.Random(7)
    (tmp_path / "in").mkdir()
    (tmp_path / "app.sql").write_text(APP)
    (tmp_path / "users.csv").write_text(USERS)
    source = Source(tmp_path / "in")
    for number in range(KILLS):
        for _ in range(3):
            source.give(10)
        # Seven of ten at a step, three at random: in twenty kills each step is met once.
        if number % 10 < 7:
            end_at(tmp_path, STEPS[(number // 10 * 7 + number % 10) % len(STEPS)])
        else:
            kill_at_random(tmp_path, source, chance)
    process = start(tmp_path, "--once")
    assert process.wait(LONGEST_S) == 0, (tmp_path / SAID).read_text()
    assert found(tmp_path) == expected(source.total)
