"""A disk without room: the flow says so, loses nothing, and goes on when there is room."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.app.planning import plan_text
from millpond.engine.availability import Interruption
from millpond.engine.spark.spark_errors import translate
from millpond.errors import StateError
from millpond.testing.table_harness import no_room_beyond

BOUND_S = 120.0
APP = """
CREATE STREAM ticks (id INT, text STRING) FROM 'file://FOLDER/in/*.jsonl' WITH ('watch.interval' = '20ms');
CREATE TABLE total AS SELECT COUNT(*) AS n, SUM(id) AS s FROM ticks;
"""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def give(file: Path, ids: range) -> None:
    with file.open("a") as lines:
        lines.writelines(json.dumps({"id": id_, "text": f"{id_ * 7919}" * 20}) + "\n" for id_ in ids)


@pytest.mark.spark
def test_a_flow_without_room_says_so_and_goes_on_when_there_is_some(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "in").mkdir()
    give(tmp_path / "in" / "a.jsonl", range(3))
    give(tmp_path / "b.jsonl", range(3, 300))
    with mp.App(sql=APP.replace("FOLDER", str(tmp_path)), state=tmp_path / "state", spark=spark) as app:
        with no_room_beyond(500):
            (tmp_path / "b.jsonl").rename(tmp_path / "in" / "b.jsonl")
            wait_for(lambda: app.progress().flows[0].state == "retrying")
            (flow,) = app.progress().flows
            assert flow.error.startswith("MP805 The state cannot be written: the disk of ")
            assert app.query("SHOW FLOWS").rows()[0]["state"] == "retrying"
            assert app.table("total").values("n") == [3]
        wait_for(lambda: app.table("total").to_arrow().to_pylist() == [{"n": 300, "s": sum(range(300))}])
        wait_for(lambda: app.progress().flows[0].state == "running")
        assert app.failures == ()


def test_a_full_disk_is_waited_for_while_running_and_an_error_while_catching_up() -> None:
    source = plan_text("CREATE STREAM s (a INT) FROM memory://m; SELECT a FROM s;", file="app.sql").sources[0]
    full = translate(OSError(28, "No space left on device"))
    assert full.code == "MP805"
    running = Interruption(source)
    assert running.begins(full, catching_up=False)
    assert running.is_on
    assert running.error is full
    running.tries()
    running.is_over()
    assert running.error is None
    assert not Interruption(source).begins(full, catching_up=True)
    assert not running.notes(StateError("MP804", "damaged"))
    assert running.notes(full)
    running.polled()
    assert running.error is None
