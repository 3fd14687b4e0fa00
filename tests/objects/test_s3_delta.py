"""Tables in Delta on an S3 server: rows, exactly once, and one owner."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Reader
from tests.objects.conftest import Bucket
from tests.objects.servers import ACCESS, REGION, SECRET

from millpond.contracts.table import TableSpec
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN, BO, CY, USERS, refuses


def options(bucket: Bucket) -> dict[str, str]:
    given = {"s3.endpoint": bucket.endpoint, "s3.region": REGION, "s3.access.key": ACCESS, "s3.secret.key": SECRET}
    return {**given, "path": f"s3://{bucket.name}/users"}


def merge(table: Any) -> None:
    table.rows.remote.merge()


def held(bucket: Bucket) -> list[dict[str, Any]]:
    """The rows as another program reads them."""
    given = {
        "AWS_ENDPOINT_URL": bucket.endpoint,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ALLOW_HTTP": "true",
    }
    table = Reader(f"s3://{bucket.name}/users", storage_options=given).to_pyarrow_table()
    return sorted(table.to_pylist(), key=str)


def test_rows_are_in_the_bucket_and_leave_it_with_the_table(bucket: Bucket, tmp_path: Path) -> None:
    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", USERS, "delta", options(bucket)))
    users.insert([ANN, BO])
    users.delete(keys=["u1"])
    assert users.to_arrow().to_pylist() == [BO]
    store.close()
    assert held(bucket) == [BO]
    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", USERS, "delta", options(bucket)))
    users.upsert([{**BO, "age": 18}])
    merge(users)
    assert (len(users), users.get("u2")) == (1, {**BO, "age": 18})
    store.drop("users")
    store.close()
    assert bucket.all_keys() == []


def test_the_app_that_came_last_owns_the_table(bucket: Bucket, tmp_path: Path) -> None:
    spec = TableSpec("users", USERS, "delta", options(bucket))
    first, second = open_store(tmp_path / "first"), open_store(tmp_path / "second")
    old = first.create(spec)
    old.insert([ANN])
    merge(old)
    new = second.create(spec)
    assert new.get("u1") == ANN
    with refuses(r"MP801(.|\n)*taken over"):
        old.insert([BO])
    new.upsert([{**ANN, "age": 1}])
    second.close()
    first.close()
    assert held(bucket) == [{**ANN, "age": 1}]


STALE = """
import json, sys
from pathlib import Path
from millpond.contracts.table import TableSpec
from millpond.errors import MillpondError
from millpond.tables.store import open_store
from millpond.testing.table_harness import CY, USERS

store = open_store(Path(sys.argv[1]))
users = store.create(TableSpec("users", USERS, "delta", json.loads(sys.argv[2])))
try:
    for number in range(10**9):
        users.upsert([{**CY, "age": number}])
        print(number, flush=True)
except MillpondError as error:
    print(error, flush=True)
"""


@pytest.mark.process
def test_a_stale_driver_that_comes_back_is_fenced(bucket: Bucket, tmp_path: Path) -> None:
    """A driver stands still while another one continues with a copy of its disk; then it continues too."""
    given = {**options(bucket), "merge.interval": 1}
    command = [sys.executable, "-c", STALE, str(tmp_path / "stale"), json.dumps(given)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8") as stale:
        assert stale.stdout is not None
        try:
            assert [stale.stdout.readline() for _ in range(20)][-1] == "19\n"
            stale.send_signal(signal.SIGSTOP)
            shutil.copytree(tmp_path / "stale", tmp_path / "new")
            store = open_store(tmp_path / "new")
            users = store.create(TableSpec("users", USERS, "delta", given))
            assert users.count("age >= 19") == 1
            users.upsert([{**CY, "age": -1}, BO])
            merge(users)
            stale.send_signal(signal.SIGCONT)
            output = stale.communicate(timeout=240)[0]
        finally:
            stale.kill()
    assert re.search(r"MP801(.|\n)*taken over", output), output
    users.upsert([ANN])
    store.close()
    assert held(bucket) == sorted([ANN, BO, {**CY, "age": -1}], key=str)


def test_a_wrong_secret_is_reported_as_such(bucket: Bucket, tmp_path: Path) -> None:
    store = open_store(tmp_path / "tables")
    with refuses(r"MP507(.|\n)*s3.secret.key"):
        store.create(TableSpec("users", USERS, "delta", {**options(bucket), "s3.secret.key": "wrong"}))
    store.close()


WORKER = """
import json, sys
from pathlib import Path
from millpond.contracts.table import TableSpec
from millpond.tables.store import open_store
from millpond.testing.table_harness import ANN, BO, USERS

store = open_store(Path(sys.argv[1]))
users = store.create(TableSpec("users", USERS, "delta", json.loads(sys.argv[2])))
users.insert([ANN])
users.upsert([BO])
store.close()
"""


@pytest.mark.process
@pytest.mark.parametrize("point", ["delta.merge.begin", "delta.merge.done"])
def test_a_kill_during_a_merge_changes_once(bucket: Bucket, tmp_path: Path, point: str) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "tables"), json.dumps(options(bucket))]
    environment = {**os.environ, "MILLPOND_FAULT": point}
    killed = subprocess.run(command, env=environment, timeout=240, capture_output=True, check=False)
    assert killed.returncode == 137, killed.stderr.decode()
    assert len(held(bucket)) == (2 if point == "delta.merge.done" else 0)
    store = open_store(tmp_path / "tables")
    users = store.create(TableSpec("users", USERS, "delta", options(bucket)))
    assert len(users) == users.to_arrow().num_rows == 2
    store.close()
    assert held(bucket) == sorted([ANN, BO], key=str)
