"""Any file of a folder of tables that is removed, cut or changed is named, or made good aloud; never served empty."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.errors import StateError
from millpond.schema import Column, Schema
from millpond.tables.repair import inspect, repair
from millpond.tables.store import TableStore, open_store
from millpond.testing.table_harness import no_room_beyond

SPEC = TableSpec("t", Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"]))
COMMITS = 9
NO_RECORD = ("lock", "spill")


def grow(store: TableStore, commits: range) -> None:
    for k in commits:
        store.table("t").insert([{"k": k, "v": f"{k}" * 500}])


def make(folder: Path) -> TableStore:
    """Tables with a checkpoint, and a log of two files since: a second checkpoint did not get further."""
    store = open_store(folder)
    store.create(SPEC)
    grow(store, range(3))
    store.checkpoint()
    grow(store, range(3, 6))
    with no_room_beyond((folder / "log-000002").stat().st_size + 200), pytest.raises(StateError, match="MP805"):
        store.checkpoint()
    grow(store, range(6, COMMITS))
    return store


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a kill leaves of such a folder."""
    folder = tmp_path_factory.mktemp("crashed") / "store"
    store = make(folder)
    shutil.copytree(folder, folder.parent / "left")
    store.close()
    return folder.parent / "left"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("closed") / "store"
    make(folder).close()
    return folder


def remove(path: Path) -> None:
    path.unlink()


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in NO_RECORD)


def keys(folder: Path) -> tuple[list[int], str]:
    """What a folder opens with, and what was said."""
    store = open_store(folder)
    try:
        return sorted(store.table("t").values("k")) if store.names() else [], " ".join(map(str, store.problems))
    finally:
        store.close()


@pytest.mark.parametrize("harm", [remove, halve, empty, flip])
def test_every_file_counts(closed: Path, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    names = files(closed)
    assert [name.split(".")[0][:5] for name in names] == ["log-0", "log-0", "manif", "table"]
    for name in names:
        folder = tmp_path / name / "store"
        shutil.copytree(closed, folder)
        harm(folder / name)
        with pytest.raises(StateError) as raised:
            open_store(folder)
        assert raised.value.code == "MP804"
        reported = str(raised.value)
        assert str(folder / name) in reported
        # The content of a manifest that is lost after a checkpoint is stored nowhere else.
        assert ("--state" if name == "manifest.json" else f"doctor --repair --state {folder.parent}") in reported


@pytest.mark.parametrize("harm", [remove, halve, empty, flip])
def test_what_is_sound_can_be_kept(closed: Path, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    for name in files(closed):
        if name == "manifest.json":
            continue
        folder = tmp_path / name / "store"
        shutil.copytree(closed, folder)
        harm(folder / name)
        opens, reported = inspect(folder)
        assert not opens
        assert str(folder / name) in " ".join(reported)
        assert "lost" in " ".join(repair(folder))
        kept, _ = keys(folder)
        assert kept == list(range(len(kept)))
        assert len(kept) < COMMITS
        assert inspect(folder) == (True, [])
        store = open_store(folder)
        store.table("t").insert([{"k": 100}])
        store.close()
        assert keys(folder) == ([*kept, 100], "")


def test_a_log_that_a_crash_left_may_end_anywhere_but_not_be_missing(crashed: Path, tmp_path: Path) -> None:
    for name in files(crashed):
        folder = tmp_path / name / "store"
        shutil.copytree(crashed, folder)
        remove(folder / name)
        with pytest.raises(StateError, match="MP804") as raised:
            open_store(folder)
        assert str(folder / name) in str(raised.value)
    folder = tmp_path / "store"
    shutil.copytree(crashed, folder)
    halve(folder / "log-000003")
    assert inspect(folder)[0]
    kept, reported = keys(folder)
    assert 6 <= len(kept) < COMMITS
    assert "MP808" in reported


def test_a_first_log_that_is_removed_is_not_an_empty_table(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = open_store(folder)
    store.create(SPEC)
    grow(store, range(2))
    store.close()
    remove(folder / "log-000001")
    with pytest.raises(StateError, match=r"MP804.*log-000001 is missing"):
        open_store(folder)
    assert "lost" in " ".join(repair(folder))
    assert keys(folder) == ([], "")


def test_a_manifest_is_made_again_from_a_whole_log(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = open_store(folder)
    store.create(SPEC)
    grow(store, range(2))
    store.close()
    remove(folder / "manifest.json")
    assert inspect(folder) == (True, [])
    kept, reported = keys(folder)
    assert kept == [0, 1]
    assert "MP812" in reported
    assert "manifest.json" in reported
    assert keys(folder) == ([0, 1], "")


def test_commits_cut_off_between_two_records_are_missed_after_a_stop(closed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(closed, folder)
    log = folder / "log-000003"
    data = log.read_bytes()
    log.write_bytes(data[: data.rfind(b"MPr1")])
    with pytest.raises(StateError, match=r"MP804.*log-000003.*records 12 to 12 are missing"):
        open_store(folder)
