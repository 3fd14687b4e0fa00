"""A running app is killed at random moments and restarted: the end is that of an undisturbed run."""

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
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import millpond as mp

KILLS = int(os.environ.get("MILLPOND_KILLS", "100" if os.environ.get("MILLPOND_SOAK") else "20"))
LONGEST_S = 120

APP = """
CREATE STREAM trades (id INT, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2))
  FROM 'file://./in/*.jsonl';
CREATE TABLE users PRIMARY KEY (user_id) AS SELECT * FROM 'file://./users.csv';
CREATE TABLE last_trades (symbol STRING PRIMARY KEY, id INT, price DECIMAL(12,2));
CREATE TABLE log (id INT, user_id STRING);
CREATE TABLE balances (user_id STRING PRIMARY KEY, balance DECIMAL(14,2), n INT);
INSERT INTO balances VALUES ('u0', 0, 0), ('u1', 0, 0), ('u2', 0, 0), ('u3', 0, 0);

INSERT INTO last_trades SELECT symbol, id, price FROM trades;
INSERT INTO log SELECT id, user_id FROM trades WHERE quantity > 5;
UPDATE balances SET balance = balances.balance + t.quantity * t.price, n = balances.n + 1
  FROM trades t WHERE balances.user_id = t.user_id;
CREATE TABLE positions AS
  SELECT user_id, symbol, SUM(quantity) AS size, SUM(quantity * price) AS value, AVG(price) AS mean, COUNT(*) AS n
  FROM trades GROUP BY user_id, symbol;
CREATE TABLE by_tier AS
  SELECT u.tier, SUM(p.size) AS size, COUNT(*) AS positions FROM positions p JOIN users u ON u.user_id = p.user_id
  GROUP BY u.tier;
INSERT INTO 'file://./out'
  SELECT t.id, t.user_id, u.tier, t.quantity * t.price AS value
  FROM trades t LEFT JOIN users u ON t.user_id = u.user_id;
"""
USERS = "user_id,tier\nu0,GOLD\nu1,BASIC\nu2,GOLD\n"
TIERS = {"u0": "GOLD", "u1": "BASIC", "u2": "GOLD"}


def trades(first: int, count: int) -> Iterator[dict[str, Any]]:
    for n in range(first, first + count):
        yield {
            "id": n,
            "user_id": f"u{n % 4}",
            "symbol": f"S{n * 7 % 13}",
            "quantity": n % 11,
            "price": f"{n % 97}.{n % 100:02d}",
        }


def give(folder: Path, first: int, count: int) -> None:
    """A new file of events appears whole."""
    lines = "".join(json.dumps(t) + "\n" for t in trades(first, count))
    made = folder / "in" / f".{first:06d}.tmp"
    made.write_text(lines)
    made.rename(folder / "in" / f"{first:06d}.jsonl")


def expected(total: int) -> dict[str, Any]:
    """The same app in a few lines of Python."""
    last: dict[str, tuple[int, Decimal]] = {}
    balances = {f"u{i}": [Decimal(0), 0] for i in range(4)}
    positions: dict[tuple[str, str], list[Any]] = defaultdict(lambda: [0, Decimal(0), Decimal(0), 0])
    out = []
    for t in trades(0, total):
        price, value = Decimal(t["price"]), t["quantity"] * Decimal(t["price"])
        last[t["symbol"]] = (t["id"], price)
        balances[t["user_id"]][0] += value
        balances[t["user_id"]][1] += 1
        held = positions[t["user_id"], t["symbol"]]
        positions[t["user_id"], t["symbol"]] = [held[0] + t["quantity"], held[1] + value, held[2] + price, held[3] + 1]
        out.append((t["id"], t["user_id"], TIERS.get(t["user_id"]), value))
    by_tier: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (user, _), (size, *_rest) in positions.items():
        if user in TIERS:
            by_tier[TIERS[user]][0] += size
            by_tier[TIERS[user]][1] += 1
    return {
        "last_trades": {(s, i, p) for s, (i, p) in last.items()},
        "log": sorted((t["id"], t["user_id"]) for t in trades(0, total) if t["quantity"] > 5),
        "balances": {(u, b, n) for u, (b, n) in balances.items()},
        "positions": {(u, s, size, value, n) for (u, s), (size, value, _, n) in positions.items()},
        "by_tier": {(t, size, n) for t, (size, n) in by_tier.items()},
        "out": sorted(out),
    }


def found(folder: Path) -> dict[str, Any]:
    """What the app holds, tables through Python and files as a reader finds them."""
    app = mp.App(folder / "app.sql", state=folder / "state")
    try:
        rows = {name: app.table(name).to_arrow().to_pylist() for name in app.tables()}
    finally:
        app.stop()
    lines = [line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    out = [json.loads(line, parse_float=Decimal) for line in lines]
    return {
        "last_trades": {(r["symbol"], r["id"], r["price"]) for r in rows["last_trades"]},
        "log": sorted((r["id"], r["user_id"]) for r in rows["log"]),
        "balances": {(r["user_id"], r["balance"], r["n"]) for r in rows["balances"]},
        "positions": {(r["user_id"], r["symbol"], r["size"], r["value"], r["n"]) for r in rows["positions"]},
        "by_tier": {(r["tier"], r["size"], r["positions"]) for r in rows["by_tier"]},
        "out": sorted((r["id"], r["user_id"], r["tier"], Decimal(r["value"])) for r in out),
    }


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--state", "state", "--no-http", *flags]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def committed_bytes(folder: Path) -> int:
    """A measure of progress that a stranger can see: what the store has written so far."""
    return sum(f.stat().st_size for f in (folder / "state" / "store").rglob("*") if f.is_file())


def wait_for_progress(folder: Path, process: subprocess.Popen[str], before: int) -> None:
    """Until the app commits something new, so that kills fall into its work and not into Spark's start."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        try:
            if committed_bytes(folder) != before:
                return
        except FileNotFoundError:
            pass
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.005)
    raise AssertionError("the app committed nothing")


@pytest.mark.process
@pytest.mark.timeout(KILLS * LONGEST_S)
def test_an_app_killed_at_random_moments_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    chance = random.Random(7)
    (tmp_path / "in").mkdir()
    (tmp_path / "app.sql").write_text(APP)
    (tmp_path / "users.csv").write_text(USERS)
    total = 0
    for _ in range(KILLS):
        for _ in range(3):
            give(tmp_path, total, 40)
            total += 40
        before = committed_bytes(tmp_path) if (tmp_path / "state" / "store").exists() else 0
        process = start(tmp_path)
        wait_for_progress(tmp_path, process, before)
        deadline = time.monotonic() + chance.uniform(0.0, 1.5)
        while time.monotonic() < deadline:
            give(tmp_path, total, 5)
            total += 5
            time.sleep(chance.uniform(0.01, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    process = start(tmp_path, "--once")
    _, errors = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, errors
    assert found(tmp_path) == expected(total)
