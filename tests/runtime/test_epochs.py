"""Checkpoints that are begun anew, and checkpoints that do not belong to the tables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import StateError
from millpond.faults import EPOCH_POINTS
from millpond.runtime.flows import epochs
from millpond.testing.sql_files import sink_lines

APP = """
CREATE STREAM ticks (id INT) FROM 'file:ticks.jsonl' WITH ('max.rows.per.batch' = '1', 'watch.interval' = '20ms');
CREATE TABLE total AS SELECT COUNT(*) AS n, SUM(id) AS s FROM ticks;
INSERT INTO 'file:out' SELECT id FROM ticks;
"""
# Begins the next epoch of the first flow, and ends itself on the way.
BEGIN_ANEW = """
import sys, millpond as mp
from millpond.runtime.flows import epochs
running = mp.App(sys.argv[1])._open()
flow = running.flows[0]
flow.open()
context = running.context
epochs.begin_anew(context.store, flow.plan.id, context.state.flow(flow.plan.id), flow.reader.given)
"""
BOUND_S = 120.0


def give(folder: Path, *ids: int) -> None:
    with open(folder / "ticks.jsonl", "a") as file:
        file.writelines(json.dumps({"id": id_}) + "\n" for id_ in ids)


def run(folder: Path, spark: Any) -> None:
    app = mp.App(folder / "app.sql", spark=spark)
    try:
        app.run_once()
    finally:
        app.stop()


def require_all(folder: Path, spark: Any, *ids: int) -> None:
    """Each tick once, in order, in the table and in the sink."""
    app = mp.App(folder / "app.sql", spark=spark)
    assert app.table("total").to_arrow().to_pylist() == [{"n": len(ids), "s": sum(ids)}]
    app.stop()
    assert [json.loads(line)["id"] for line in sink_lines(folder / "out")] == list(ids)


def flow_folder(folder: Path) -> Path:
    return next((folder / ".millpond" / "app" / "flows").iterdir())


@pytest.fixture
def folder(tmp_path: Path, spark: Any) -> Path:
    """An app that has taken five ticks in five batches."""
    made = tmp_path / "made"
    made.mkdir()
    (made / "app.sql").write_text(APP)
    give(made, 1, 2, 3, 4, 5)
    run(made, spark)
    return made


@pytest.mark.spark
def test_a_long_epoch_ends_at_a_start_and_while_running(
    folder: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "BATCHES_MAX", 3)
    shutil.copytree(folder / ".millpond" / "app" / "store", folder / "older")
    give(folder, 6)
    run(folder, spark)
    require_all(folder, spark, 1, 2, 3, 4, 5, 6)
    assert [f.name for f in flow_folder(folder).glob("checkpoint*")] == ["checkpoint-1"]
    with mp.App(folder / "app.sql", spark=spark) as app:
        for id_ in range(7, 13):
            give(folder, id_)
            deadline = time.monotonic() + BOUND_S
            while app.table("total").values("n") != [id_]:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    require_all(folder, spark, *range(1, 13))
    (checkpoint,) = flow_folder(folder).glob("checkpoint*")
    require_left_alone(folder, spark, checkpoint)
    assert int(checkpoint.name.removeprefix("checkpoint-")) >= 3
    assert len([f for f in (checkpoint / "sources" / "0").iterdir() if f.name.isdigit()]) <= 4


def require_left_alone(folder: Path, spark: Any, checkpoint: Path) -> None:
    """A store without the ledger of later epochs is refused, and their checkpoint is still there to restore to."""
    store = folder / ".millpond" / "app" / "store"
    store.rename(folder / "kept")
    (folder / "older").rename(store)
    with pytest.raises(StateError, match="MP809"):
        run(folder, spark)
    assert (checkpoint / "offsets").is_dir()
    shutil.rmtree(store)
    (folder / "kept").rename(store)


@pytest.mark.spark
@pytest.mark.process
def test_a_crash_on_the_way_to_the_next_epoch_neither_loses_nor_doubles_a_record(folder: Path, spark: Any) -> None:
    for id_, point in enumerate(EPOCH_POINTS, 6):
        command = [sys.executable, "-c", BEGIN_ANEW, str(folder / "app.sql")]
        done = subprocess.run(command, env={**os.environ, "MILLPOND_FAULT": point}, check=False)
        assert done.returncode == 137, point
        give(folder, id_)
        run(folder, spark)
        require_all(folder, spark, *range(1, id_ + 1))


@pytest.mark.spark
def test_a_state_directory_can_be_moved(folder: Path, spark: Any) -> None:
    moved = folder.rename(folder.parent / "moved")
    give(moved, 6)
    run(moved, spark)
    require_all(moved, spark, 1, 2, 3, 4, 5, 6)


@pytest.mark.spark
def test_a_checkpoint_that_is_older_or_gone_is_made_again_from_the_ledger(folder: Path, spark: Any) -> None:
    older = folder / "older"
    shutil.copytree(flow_folder(folder), older)
    give(folder, 6)
    run(folder, spark)
    (checkpoint,) = flow_folder(folder).glob("checkpoint*")
    shutil.rmtree(checkpoint)
    give(folder, 7)
    run(folder, spark)
    require_all(folder, spark, *range(1, 8))
    (checkpoint,) = flow_folder(folder).glob("checkpoint*")
    shutil.rmtree(checkpoint)
    shutil.copytree(older / "checkpoint", flow_folder(folder) / "checkpoint")
    give(folder, 8)
    run(folder, spark)
    require_all(folder, spark, *range(1, 9))


@pytest.mark.spark
def test_what_was_restored_or_removed_alone_is_told_and_nothing_is_mixed(folder: Path, spark: Any) -> None:
    state = folder / ".millpond" / "app"
    older = folder / "older"
    shutil.copytree(state, older)
    give(folder, 6)
    run(folder, spark)
    kept = folder / "kept"
    shutil.copytree(state, kept)
    parts = {
        "the store": ("store", older),
        "what the source remembers": (f"flows/{flow_folder(folder).name}/source", older),
        "no memory of the source": (f"flows/{flow_folder(folder).name}/source", None),
        "no store": ("store", None),
    }
    codes = {"no store": "MP804"}
    for name, (part, origin) in parts.items():
        shutil.rmtree(state / part)
        if origin is not None:
            shutil.copytree(origin / part, state / part)
        with pytest.raises(StateError, match=codes.get(name, "MP809")):
            run(folder, spark)
        assert len(list(sink_lines(folder / "out"))) == 6, name
        shutil.rmtree(state)
        shutil.copytree(kept, state)
    run(folder, spark)
    require_all(folder, spark, 1, 2, 3, 4, 5, 6)
