"""Tables in Delta: the contract of tables, what other programs read, and what a crash leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Reader
from deltalake import write_deltalake
from tests.databases.servers import until

import millpond as mp
from millpond.contracts.table import Store, TableSpec
from millpond.faults import DELTA_POINTS, REMOTE_POINTS
from millpond.tables.delta.files import FILES_MAX, kept_hours
from millpond.tables.delta.table import LOCK, DeltaPart
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN, BO, CY, EVENTS, USERS, refuses
from millpond.testing.tables import TableContract

App = Callable[..., mp.App]
STREAM = "CREATE STREAM s (user_id STRING, n BIGINT) FROM 'file:in.jsonl';"
TABLE = "CREATE TABLE users (user_id STRING PRIMARY KEY, n BIGINT)"


class TestDelta(TableContract):
    """Delta tables in the state directory, with changes in front of the files."""

    backend = "delta"


class TestMergedDelta(TableContract):
    """The same with each commit merged at once."""

    backend = "delta"

    @pytest.fixture(autouse=True)
    def _merged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        commit = DeltaPart.commit

        def merged(part: DeltaPart) -> None:
            commit(part)
            for table, _ in part.changes:
                table.merge()

        monkeypatch.setattr(DeltaPart, "commit", merged)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[App]:
    """run("CREATE TABLE ...", ...): an app over some statements, run once, with the same state directory each time."""
    apps: list[mp.App] = []

    def start(*statements: str, **options: Any) -> mp.App:
        for app in apps:
            app.stop()
        file = tmp_path / "app.sql"
        file.write_text("\n".join(statements))
        apps.append(mp.App(file, state=tmp_path / "state", **options))
        apps[-1].run_once()
        return apps[-1]

    yield start
    for app in apps:
        app.stop()


def write(folder: Path, *rows: dict[str, object]) -> None:
    with (folder / "in.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def held(path: Path) -> list[dict[str, Any]]:
    """The rows as another program reads them, without the number of a row that has no key."""
    rows = Reader(path).to_pyarrow_table()
    return sorted(rows.select([n for n in rows.column_names if n != "millpond_row"]).to_pylist(), key=str)


def merge(store: Any, name: str) -> None:
    store.table(name).rows.remote.merge()


def test_other_programs_read_the_rows(run: App, tmp_path: Path) -> None:
    write(tmp_path, {"user_id": "a", "n": 1}, {"user_id": "b"}, {"user_id": "a", "n": 5})
    app = run(
        f"{TABLE} WITH ('backend' = 'delta', 'path' = 'users');",
        STREAM,
        "INSERT INTO users SELECT user_id, n FROM s;",
        "CREATE TABLE sums AS SELECT user_id, SUM(n) AS n FROM s GROUP BY user_id",
        "  WITH ('backend' = 'delta', 'path' = 'sums');",
        "CREATE TABLE total AS SELECT SUM(n) AS n, COUNT(*) AS users FROM users",
        "  WITH ('backend' = 'delta', 'path' = 'total');",
    )
    assert app.query("SELECT n FROM users WHERE user_id = 'a'").rows() == [{"n": 5}]
    app.stop()
    assert held(tmp_path / "users") == [{"user_id": "a", "n": 5}, {"user_id": "b", "n": None}]
    assert held(tmp_path / "sums") == [{"user_id": "a", "n": 6}, {"user_id": "b", "n": None}]
    assert held(tmp_path / "total") == [{"n": 5, "users": 2}]
    write(tmp_path, {"user_id": "b", "n": 7})
    text = (tmp_path / "app.sql").read_text()
    run(text).stop()
    assert held(tmp_path / "users") == [{"user_id": "a", "n": 5}, {"user_id": "b", "n": 7}]
    assert held(tmp_path / "sums") == [{"user_id": "a", "n": 6}, {"user_id": "b", "n": 7}]
    assert held(tmp_path / "total") == [{"n": 12, "users": 2}]


def test_changes_are_merged_while_it_runs(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tables")
    options = {"path": str(tmp_path / "users"), "merge.interval": 1}
    users = store.create(TableSpec("users", USERS, "delta", options))
    users.insert([ANN, BO])
    until(lambda: len(held(tmp_path / "users")) == 2)
    users.delete(keys=["u1"])
    until(lambda: len(held(tmp_path / "users")) == 1)
    assert Reader(tmp_path / "users").transaction_version("millpond.version") == users.version == 2
    store.close()


def test_many_scattered_keys_are_read_as_a_range_without_the_rows_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("datafusion", "table"):
        monkeypatch.setattr(f"millpond.tables.delta.{module}.VALUES_MAX", 2)
    monkeypatch.setattr("millpond.tables.delta.files.PORTION_ROWS", 7)
    store = open_store(tmp_path / "tables")
    table: Any = store.create(TableSpec("users", USERS, "delta", {"path": str(tmp_path / "users")}))
    table.insert([{**ANN, "user_id": f"u{n:03d}", "age": n} for n in range(100)])
    merge(store, "users")
    fetched: list[int] = []
    remote = table.rows.remote
    lookup = remote.lookup

    def counted(*given: Any) -> Any:
        rows = lookup(*given)
        fetched.append(rows.num_rows)
        return rows

    monkeypatch.setattr(remote, "lookup", counted)
    keys = ["u003", "u050", "u099", "u098", "missing", "zzz"]
    assert sorted(table.lookup(keys).column("age").to_pylist()) == [3, 50, 98, 99]
    assert table.upsert([{**ANN, "user_id": key, "age": -1} for key in keys]) == 6
    assert fetched == [4, 4]
    merge(store, "users")
    assert (len(table), table.count("age = -1"), len(held(tmp_path / "users"))) == (102, 6, 102)
    store.close()


def test_replaced_files_are_kept_in_whole_hours_and_never_shorter() -> None:
    hour = 3_600_000_000
    assert [kept_hours(span) for span in (1, hour // 2, hour, hour + 1, 7 * 24 * hour)] == [1, 1, 1, 2, 168]


@pytest.fixture
def hours_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the time of 'vacuum.after' were over at once."""
    monkeypatch.setattr("millpond.tables.delta.files.kept_hours", lambda kept_us: 0)


@pytest.mark.usefixtures("hours_later")
def test_merges_that_replace_few_files_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.tables.delta.files.VACUUM_VERSIONS", 6)
    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", USERS, "delta", {"path": str(tmp_path / "users")}))
    users.insert([ANN])
    before = users.snapshot()
    for number in range(20):
        users.upsert([{**ANN, "age": number}])
        merge(store, "users")
    assert len(list((tmp_path / "users").glob("*.parquet"))) < 8
    assert (before.to_arrow().to_pylist(), held(tmp_path / "users")) == ([ANN], [{**ANN, "age": 19}])
    store.close()


@pytest.mark.usefixtures("hours_later")
def test_many_small_files_become_few_and_old_ones_are_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tables")
    options = {"path": str(tmp_path / "users"), "vacuum.after": 1}
    users = store.create(TableSpec("users", USERS, "delta", options))
    for number in range(FILES_MAX + 2):
        users.insert([{**ANN, "user_id": f"u{number}"}])
        merge(store, "users")
    table = Reader(tmp_path / "users")
    assert len(table.file_uris()) <= 3
    assert len(list((tmp_path / "users").glob("*.parquet"))) <= 4
    assert len(users) == len(users.to_arrow()) == table.to_pyarrow_table().num_rows == FILES_MAX + 2
    store.close()


def test_a_checkpoint_keeps_what_is_not_merged(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "tables"), str(tmp_path / "users"), "checkpoint"]
    environment = {**os.environ, "MILLPOND_FAULT": "delta.merge.begin"}
    killed = subprocess.run(command, env=environment, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    assert held(tmp_path / "users") == []
    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", USERS, "delta", {"path": str(tmp_path / "users")}))
    assert users.to_arrow().to_pylist() == [BO]
    store.close()
    assert held(tmp_path / "users") == [BO]


@pytest.mark.parametrize("names", [("u1", "u2", "u3"), ("u1",)], ids=["all", "one"])
def test_a_table_of_others_is_taken_over_if_it_fits(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = tmp_path / "there"
    rows = [row for row in (ANN, BO, CY) if row["user_id"] in names]
    write_deltalake(path, pa.Table.from_pylist(rows, schema=USERS.arrow()))
    store = open_store(tmp_path / "tables")
    with refuses(r"MP409(.|\n)*column 'kind' is missing"):
        store.create(TableSpec("events", EVENTS, "delta", {"path": str(path)}))
    users = store.create(TableSpec("users", USERS, "delta", {"path": str(path)}))
    assert (len(users), users.get("u1")) == (len(rows), ANN)
    users.delete(keys=["u1"])
    store.drop("users")
    store.close()
    # It was not created here, so it is not removed with the table.
    assert path.exists()
    write_deltalake(tmp_path / "twice", pa.Table.from_pylist([ANN, ANN], schema=USERS.arrow()))
    store = open_store(tmp_path / "tables")
    with refuses(r"MP409(.|\n)*several rows have the same key"):
        store.create(TableSpec("users", USERS, "delta", {"path": str(tmp_path / "twice")}))
    store.close()


def test_there_is_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TableSpec("users", USERS, "delta", {"path": str(tmp_path / "users")})
    first, second = open_store(tmp_path / "first"), open_store(tmp_path / "second")
    first.create(spec).insert([ANN])
    monkeypatch.setattr("millpond.tables.delta.table.LOCK_S", 0.0)
    with refuses(r"MP801(.|\n)*in use"):
        second.create(spec)
    first.close()
    assert second.create(spec).get("u1") == ANN
    second.close()
    first = open_store(tmp_path / "first")
    with refuses(r"MP801(.|\n)*taken over"):
        first.create(spec)
    first.close()


def test_a_stale_process_is_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system that lost the lock of a process which comes back: both have the same state."""
    spec = TableSpec("users", USERS, "delta", {"path": str(tmp_path / "users"), "merge.interval": 1})
    store = open_store(tmp_path / "stale")
    store.create(spec).insert([ANN])
    store.close()
    shutil.copytree(tmp_path / "stale", tmp_path / "new")
    monkeypatch.setattr("millpond.tables.delta.table.DeltaTable._lock_out", lambda table: None)
    stale, new = open_store(tmp_path / "stale"), open_store(tmp_path / "new")
    old, users = stale.create(spec), new.create(spec)
    users.upsert([BO])
    merge(new, "users")

    def is_rejected() -> bool:
        try:
            old.upsert([CY])
        except mp.MillpondError as error:
            return "MP801" in str(error)
        return False

    until(is_rejected)
    stale.close()
    new.close()
    assert held(tmp_path / "users") == sorted([ANN, BO], key=str)


def test_a_folder_that_is_away_while_the_table_is_used_is_an_unreachable_server(tmp_path: Path) -> None:
    store: Any = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", USERS, "delta", {"path": str(tmp_path / "users")}))
    users.insert([ANN])
    users.rows.remote.merge()
    (tmp_path / "users").rename(tmp_path / "away")
    users.upsert([BO])
    with refuses("MP506"):
        users.rows.remote.merge()
    # Nothing is written to another folder that stands in its place.
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / LOCK).touch()
    with refuses("MP506"):
        users.rows.remote.merge()
    shutil.rmtree(tmp_path / "users")
    (tmp_path / "away").rename(tmp_path / "users")
    users.rows.remote.merge()
    store.close()
    assert held(tmp_path / "users") == sorted([ANN, BO], key=str)


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    spec = TableSpec("users", USERS, "delta", {"path": str(tmp_path / "users")})
    store = open_store(tmp_path / "tables")
    store.create(spec).insert([ANN])
    store.close()
    (tmp_path / "users").rename(tmp_path / "elsewhere")
    store = open_store(tmp_path / "tables")
    with refuses(r"MP804(.|\n)*no longer"):
        store.create(spec)
    store.close()


@pytest.mark.parametrize("place", ["'backend' = 'sqlite'", "'backend' = 'memory'"], ids=["sqlite", "memory"])
def test_a_table_moves_with_its_rows_there_and_back(run: App, tmp_path: Path, place: str) -> None:
    write(tmp_path, {"user_id": "a", "n": 1})
    sums = "CREATE TABLE sums AS SELECT user_id, SUM(n) AS n FROM s GROUP BY user_id"
    there, insert = "'backend' = 'delta', 'path' = '{}'", "INSERT INTO users SELECT * FROM s;"
    run(STREAM, f"{TABLE} WITH ({place});", insert, f"{sums} WITH ({place});")
    moved = (STREAM, f"{TABLE} WITH ({there.format('u')});", insert, f"{sums} WITH ({there.format('t')});")
    with pytest.raises(mp.MillpondError, match=r"MP806(.|\n)*moves from \w+ to delta"):
        run(*moved)
    write(tmp_path, {"user_id": "a", "n": 2}, {"user_id": "b", "n": 3})
    for _ in range(2):
        run(*moved, accept=True).stop()
        assert held(tmp_path / "u") == [{"user_id": "a", "n": 2}, {"user_id": "b", "n": 3}]
        assert held(tmp_path / "t") == [{"user_id": "a", "n": 3}, {"user_id": "b", "n": 3}]
    write(tmp_path, {"user_id": "b", "n": 4})
    app = run(STREAM, f"{TABLE} WITH ({place});", insert, f"{sums} WITH ({place});", accept=True)
    assert not (tmp_path / "u").exists()
    assert app.query("SELECT * FROM users ORDER BY 1").rows() == [{"user_id": "a", "n": 2}, {"user_id": "b", "n": 4}]
    assert app.query("SELECT * FROM sums ORDER BY 1").rows() == [{"user_id": "a", "n": 3}, {"user_id": "b", "n": 7}]


def test_what_aggregates_need_is_in_delta_too(run: App, tmp_path: Path) -> None:
    write(tmp_path, {"user_id": "a", "n": 1}, {"user_id": "a", "n": 1}, {"user_id": "b", "n": 5})
    columns = "user_id, COUNT(DISTINCT n) AS kinds, MEDIAN(n) AS middle"
    text = f"{STREAM} CREATE TABLE t AS SELECT {{}} FROM s GROUP BY user_id WITH ('backend' = '{{}}');"
    run(text.format(columns, "memory"))
    app = run(text.format(columns, "delta"), accept=True)
    write(tmp_path, {"user_id": "a", "n": 4}, {"user_id": "a", "n": 1})
    app = run(text.format(columns, "delta"))
    found = app.query("SELECT * FROM t ORDER BY 1").rows()
    assert found == [{"user_id": "a", "kinds": 2, "middle": 1.0}, {"user_id": "b", "kinds": 1, "middle": 5.0}]
    folders = {path.name.partition("-")[0] for path in (tmp_path / "state" / "store" / "delta").iterdir()}
    assert len(folders) == 4
    # One more aggregate: the rows are copied into a folder with the new column.
    app = run(text.format(f"{columns}, COUNT(*) AS n", "delta"), accept=True)
    assert app.query("SELECT user_id, middle, n FROM t WHERE user_id = 'b'").rows() == [
        {"user_id": "b", "middle": 5.0, "n": 0}
    ]
    write(tmp_path, {"user_id": "b", "n": 7})
    app = run((tmp_path / "app.sql").read_text())
    assert app.query("SELECT user_id, middle, n FROM t WHERE user_id = 'b'").rows() == [
        {"user_id": "b", "middle": 6.0, "n": 1}
    ]


def test_columns_are_added_to_a_table_in_the_state_directory(run: App, tmp_path: Path) -> None:
    run(f"{TABLE} WITH ('backend' = 'delta'); INSERT INTO users (user_id, n) VALUES ('a', 1);")
    wider = "CREATE TABLE users (user_id STRING PRIMARY KEY, n BIGINT, tier STRING DEFAULT 'X')"
    for _ in range(2):
        app = run(f"{wider} WITH ('backend' = 'delta'); INSERT INTO users (user_id, n) VALUES ('a', 1);", accept=True)
        assert app.query("SELECT * FROM users").rows() == [{"user_id": "a", "n": 1, "tier": "X"}]
    app.stop()
    assert [path.name for path in (tmp_path / "state" / "store" / "delta").iterdir()] == ["users-2"]


WORKER = """
import sys
from pathlib import Path
from millpond.contracts.table import TableSpec
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN, BO, EVENTS, USERS

store = open_store(Path(sys.argv[1]))
users = store.create(TableSpec("users", USERS, "delta", {"path": sys.argv[2]}))
users.insert([ANN])
if sys.argv[3] == "checkpoint":
    users.upsert([BO])
    store.checkpoint()
    users.delete(keys=["u1"])
    store.checkpoint()
    store.close()
store.create(TableSpec("events", EVENTS, "delta"))
store.create(TableSpec("here", EVENTS))
if sys.argv[3] == "merged":
    users.rows.remote.merge()
with store.begin() as tx:
    tx.table("users").upsert([BO])
    tx.table("users").delete(keys=["u1"])
    tx.table("events").insert([{"kind": "a", "n": 1}])
    tx.table("here").insert([{"kind": "a", "n": 1}])
store.close()
"""


@pytest.mark.process
@pytest.mark.parametrize("how", ["merged", "waiting"])
@pytest.mark.parametrize("point", [*REMOTE_POINTS, *DELTA_POINTS[:2]])
def test_a_kill_in_a_commit_leaves_all_or_nothing(tmp_path: Path, point: str, how: str) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "tables"), str(tmp_path / "users"), how]
    environment = {**os.environ, "MILLPOND_FAULT": f"{point}:2"}
    killed = subprocess.run(command, env=environment, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    decided = point != REMOTE_POINTS[0]
    for _ in range(2):
        store: Store = open_store(tmp_path / "tables")
        users = store.create(TableSpec("users", USERS, "delta", {"path": str(tmp_path / "users")}))
        events = store.create(TableSpec("events", EVENTS, "delta"))
        found = [row["user_id"] for row in users.to_arrow().to_pylist()]
        counts = [len(users), len(events), events.to_arrow().num_rows, len(store.table("here"))]
        store.close()
        assert (found, counts) == ((["u2"], [1, 1, 1, 1]) if decided else (["u1"], [1, 0, 0, 0]))
    assert [row["user_id"] for row in held(tmp_path / "users")] == (["u2"] if decided else ["u1"])


COMPACTING = """
import sys
from pathlib import Path
from millpond.contracts.table import TableSpec
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN, USERS

store = open_store(Path(sys.argv[1]))
users = store.create(TableSpec("users", USERS, "delta", {"path": sys.argv[2]}))
for number in range(int(sys.argv[3])):
    users.insert([{**ANN, "user_id": f"u{number}"}])
    users.rows.remote.merge()
"""


@pytest.mark.process
def test_a_kill_after_a_compaction_loses_no_row(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMPACTING, str(tmp_path / "tables"), str(tmp_path / "users"), str(FILES_MAX + 2)]
    environment = {**os.environ, "MILLPOND_FAULT": DELTA_POINTS[2]}
    killed = subprocess.run(command, env=environment, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    compacted = Reader(tmp_path / "users")
    assert len(compacted.file_uris()) < FILES_MAX
    store: Store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", USERS, "delta", {"path": str(tmp_path / "users")}))
    ids = [row["user_id"] for row in users.to_arrow().to_pylist()]
    users.insert([{**ANN, "user_id": "later"}])
    store.close()
    assert sorted(ids) == sorted(f"u{number}" for number in range(compacted.to_pyarrow_table().num_rows))
    assert len(ids) >= FILES_MAX
    assert [row["user_id"] for row in held(tmp_path / "users") if row["user_id"] == "later"] == ["later"]
