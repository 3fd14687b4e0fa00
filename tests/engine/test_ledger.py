"""The ledger alone determines which batches of a feed are done; what does not belong to the tables is reported."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import StateError
from millpond.testing.sql_files import sink_lines

APP = """
CREATE STREAM ticks (id INT) FROM 'file:ticks.jsonl' WITH ('max.rows.per.batch' = '1', 'watch.interval' = '20ms');
CREATE TABLE total AS SELECT COUNT(*) AS n, SUM(id) AS s FROM ticks;
INSERT INTO 'file:out' SELECT id FROM ticks;
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
def test_what_is_kept_of_a_flow_does_not_grow_with_its_batches(folder: Path, spark: Any) -> None:
    def kept() -> set[str]:
        return {str(file.relative_to(flow_folder(folder))) for file in flow_folder(folder).rglob("*") if file.is_file()}

    assert kept() == {"source/journal.jsonl"}
    with mp.App(folder / "app.sql", spark=spark) as app:
        for id_ in range(6, 13):
            give(folder, id_)
            deadline = time.monotonic() + BOUND_S
            while app.table("total").values("n") != [id_]:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    assert kept() == {"source/journal.jsonl"}
    require_all(folder, spark, *range(1, 13))


@pytest.mark.spark
def test_a_checkpoint_of_an_earlier_version_is_removed(folder: Path, spark: Any) -> None:
    for name, last in (("checkpoint", 4), ("checkpoint-3", 0)):
        (flow_folder(folder) / name / "commits").mkdir(parents=True)
        (flow_folder(folder) / name / "commits" / str(last)).write_text("v1\n{}")
    give(folder, 6)
    run(folder, spark)
    require_all(folder, spark, 1, 2, 3, 4, 5, 6)
    assert list(flow_folder(folder).glob("checkpoint*")) == []


@pytest.mark.spark
def test_a_state_directory_can_be_moved(folder: Path, spark: Any) -> None:
    moved = folder.rename(folder.parent / "moved")
    give(moved, 6)
    run(moved, spark)
    require_all(moved, spark, 1, 2, 3, 4, 5, 6)


@pytest.mark.spark
def test_what_was_restored_or_removed_alone_is_reported_and_nothing_is_mixed(folder: Path, spark: Any) -> None:
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
