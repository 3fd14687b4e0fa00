"""The commands as processes of their own: a real app on Spark, asked and stopped from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MILLPOND = (sys.executable, "-m", "millpond.cli.main")
PATIENCE_S = 300.0
PLAIN = {**os.environ, "LC_ALL": "C"}

APP = """
CREATE STREAM ticks AS SELECT seq, concat('u', seq % 3) AS user_id FROM 'generate://?rows=100000&rate=200&seed=1';
CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n FROM ticks GROUP BY user_id;
CREATE TABLE users (user_id STRING PRIMARY KEY, paid DECIMAL(12,2));
INSERT INTO users VALUES ('u1', 1.50);
CREATE TABLE sizes AS SELECT * FROM 'file://./größe.csv';
"""


class Process:
    """A running `millpond run --json`; `progress` waits for a moment, `end` for the exit code."""

    def __init__(self, folder: Path, *, in_background: bool = False) -> None:
        self.process = subprocess.Popen(
            [*MILLPOND, "run", "app.sql", "--json"],
            cwd=folder,
            env=PLAIN,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            preexec_fn=_ignore_interrupts if in_background else None,
        )
        self.said: list[str] = []
        # A process that hangs is ended, so that a broken stop fails the test instead of holding it.
        self._limit = threading.Timer(PATIENCE_S, self.process.kill)
        self._limit.daemon = True
        self._limit.start()

    def events(self) -> Iterator[dict[str, Any]]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            yield json.loads(line)

    def until_rows(self, count: int) -> None:
        """Until the flows have taken so many rows; before they begin, the rows are those of the last run."""
        for event in self.events():
            begun = event["event"] == "progress" and event["state"] != "starting"
            if begun and sum(flow["rows"] for flow in event["flows"]) >= count:
                return
        raise AssertionError("".join(self.said))

    def end(self, number: signal.Signals) -> int:
        """Signal the whole process group, as a terminal and `timeout` do."""
        os.killpg(self.process.pid, number)
        list(self.events())
        return self.process.wait()

    def java(self) -> int:
        """The process in which Spark runs, which is started beside the flows."""
        words = ["pgrep", "-P", str(self.process.pid), "java"]
        deadline = time.monotonic() + PATIENCE_S
        while not (found := subprocess.run(words, capture_output=True, text=True, check=False).stdout):
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.01)
        return int(found)

    def problems(self) -> set[str]:
        """The codes of everything that was reported; fails on a line that is not JSON."""
        return {event["code"] for line in self.said if (event := json.loads(line))["event"] == "problem"}

    def close(self) -> None:
        self._limit.cancel()
        self.process.kill()
        self.process.communicate()


def query(folder: Path, sql: str) -> list[dict[str, Any]]:
    words = [*MILLPOND, "query", sql, "--app", "app.sql", "--format", "json"]
    done = subprocess.run(words, cwd=folder, env=PLAIN, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _ignore_interrupts() -> None:
    """As a shell does for what a script starts with `&`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


Run = Callable[..., Process]


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    """Starts the app; whatever still runs at the end of the test is ended."""
    started: list[Process] = []

    def start(**options: bool) -> Process:
        started.append(Process(folder, **options))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With names beyond ASCII, which any locale must allow."""
    folder = tmp_path / "Übung ß"
    folder.mkdir()
    (folder / "app.sql").write_text(APP, "utf-8")
    (folder / "größe.csv").write_text("size\nÄ\n", "utf-8")
    return folder


@pytest.mark.process
def test_a_running_app_is_asked_and_stopped_and_goes_on_where_it_was(folder: Path, run: Run) -> None:
    app = run(in_background=True)
    app.until_rows(100)
    assert query(folder, "SELECT paid, size FROM users, sizes") == [{"paid": "1.50", "size": "Ä"}]
    live = query(folder, "SELECT SUM(n) AS n FROM totals")[0]["n"]
    assert live >= 100
    assert app.end(signal.SIGTERM) == 0, app.said
    assert app.process.stdout is not None
    assert app.process.stdout.read() == ""

    stopped = query(folder, "SELECT SUM(n) AS n FROM totals")[0]["n"]
    assert stopped >= live

    again = run()
    again.until_rows(1)
    assert again.end(signal.SIGINT) == 130, again.said
    assert query(folder, "SELECT SUM(n) AS n FROM totals")[0]["n"] > stopped
    assert [event for line in again.said if (event := json.loads(line)).get("severity") == "error"] == []


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_app_whose_java_is_ended_says_so_and_ends(folder: Path, run: Run, number: signal.Signals) -> None:
    app = run()
    app.until_rows(1)
    os.kill(app.java(), number)
    list(app.events())
    assert app.process.wait() == 1
    assert app.problems() == {"MP705"}


@pytest.mark.process
def test_an_app_that_is_ended_together_with_its_java_has_not_failed(folder: Path, run: Run) -> None:
    app = run()
    app.until_rows(1)
    os.kill(app.java(), signal.SIGTERM)
    assert app.end(signal.SIGTERM) == 0, app.said
    assert app.problems() == set()
    assert query(folder, "SELECT COUNT(*) AS n FROM users") == [{"n": 1}]


@pytest.mark.process
def test_a_signal_while_the_app_starts_ends_it_cleanly(folder: Path, run: Run) -> None:
    app = run()
    next(iter(app.events()))
    assert app.end(signal.SIGTERM) == 0, app.said
    assert query(folder, "SELECT COUNT(*) AS n FROM users") == [{"n": 1}]


DEMO = """
import sys
from functools import partial
from millpond.cli import demo
from millpond.cli.main import main
demo.Show = partial(demo.Show, trades=3_000, trades_per_s=1_000, quotes=300, quotes_per_s=100)
sys.exit(main(["demo"]))
"""


@pytest.mark.process
def test_the_demo_ends_with_what_it_computed_and_how_to_go_on(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-c", DEMO]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    for said in ("Last prices", "Largest gains", "Profit by tier", "3,000 trades were enriched", "millpond run my-app"):
        assert said in done.stdout
    assert list(tmp_path.glob("millpond-demo-*")) == []


SHOP = """
CREATE STREAM orders (id INT, amount INT, parts INT) FROM 'file://./orders.jsonl';
CREATE STREAM clicks (k INT) FROM 'file://./clicks.jsonl';
CREATE TABLE each_part (id INT PRIMARY KEY, v DOUBLE);
INSERT INTO each_part SELECT id, amount / parts FROM orders;
CREATE TABLE clicked AS SELECT k, COUNT(*) AS n FROM clicks GROUP BY k;
"""


def command(folder: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [*MILLPOND, *words], cwd=folder, env=PLAIN, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.process
def test_a_failed_flow_is_reported_at_once_and_goes_on_with_the_repaired_file(folder: Path, run: Run) -> None:
    file = folder / "app.sql"
    file.write_text(SHOP)
    (folder / "orders.jsonl").write_text('{"id": 1, "amount": 6, "parts": 3}\n')
    (folder / "clicks.jsonl").write_text('{"k": 1}\n')
    app = run()
    app.until_rows(2)
    with (folder / "orders.jsonl").open("a") as orders:
        orders.write('{"id": 2, "amount": 1, "parts": 0}\n')
    failed = next(event for event in app.events() if event["event"] == "problem")
    assert (failed["code"], failed["place"]) == ("MP701", "app.sql:5:1")

    code, said = command(folder, "restart", "orders", "--app", "app.sql")
    assert (code, "MP701 app.sql:5:1" in said) == (1, True), said
    file.write_text(SHOP.replace("amount / parts", "amuont / parts"))
    code, said = command(folder, "apply", "app.sql")
    assert (code, "Did you mean 'amount'" in said) == (2, True), said
    file.write_text(SHOP.replace("amount / parts", "amount / NULLIF(parts, 0)"))
    code, said = command(folder, "apply", "app.sql")
    assert (code, "flow orders: running" in said) == (0, True), said
    assert query(folder, "SELECT id, v FROM each_part ORDER BY id") == [{"id": 1, "v": 2.0}, {"id": 2, "v": None}]
    assert app.end(signal.SIGTERM) == 0, app.said


RESTARTED = """
import os, signal, sys, threading, time
import millpond as mp
from pyspark import SparkContext

app = mp.App("app.sql")
app.start()
while SparkContext._gateway is None:
    time.sleep(0.01)
os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
app.wait()
print([failure.code for failure in app.failures])
app.stop()
app.start()
print([failure.code for failure in app.failures], app.stats()["state"])
print(app.query("SELECT COUNT(*) AS n, MAX(paid) OVER () AS m FROM users GROUP BY paid").to_arrow().to_pylist())
app.stop()
"""


@pytest.mark.process
def test_an_app_of_python_starts_again_after_its_java_was_killed(folder: Path) -> None:
    words = [sys.executable, "-c", RESTARTED]
    done = subprocess.run(words, cwd=folder, env=PLAIN, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.stdout.splitlines()[:2] == ["['MP705']", "[] running"], done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
