"""Events that wait for a joined row survive a restart, and go on when the row comes."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from millpond.app.app import App

SQL = """
CREATE STREAM trades (id INT, user_id STRING) FROM 'file:{folder}/trades.jsonl';
CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING);
CREATE TABLE seen (id INT PRIMARY KEY, tier STRING);
INSERT INTO seen SELECT t.id, u.tier FROM trades t JOIN users u ON u.user_id = t.user_id
  WITH ('on.missing' = 'wait', 'wait.timeout' = '1h');
"""
WAIT_S = 60


def held(app: App) -> int:
    store = app._open().context.store
    return sum(len(store.table(name)) for name in store.names() if name.startswith("waiting_"))


def wait_for_one(app: App) -> None:
    """Look until a row is there, with a bound."""
    end = time.monotonic() + WAIT_S
    pause = threading.Event()
    while len(app.table("seen")) < 1:
        assert time.monotonic() < end, "nothing was released"
        pause.wait(0.05)


@pytest.mark.spark
def test_waiting_events_survive_a_restart(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "trades.jsonl").write_text('{"id": 1, "user_id": "u1"}\n{"id": 2, "user_id": "u2"}\n')
    sql = SQL.format(folder=tmp_path)
    with App(sql=sql, state=tmp_path / "state", spark=spark) as app:
        app.wait_ready(f"{WAIT_S}s")
        assert held(app) == 2
        assert len(app.table("seen")) == 0
    with App(sql=sql, state=tmp_path / "state", spark=spark) as app:
        app.wait_ready(f"{WAIT_S}s")
        assert held(app) == 2
        app.execute("INSERT INTO users VALUES ('u2', 'GOLD')")
        wait_for_one(app)
        assert app.table("seen").get(2) == {"id": 2, "tier": "GOLD"}
        assert held(app) == 1
