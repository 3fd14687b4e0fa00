"""The contract suite of tables on servers: a subclass names its backend, and counts rows as a plain client does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from millpond.contracts.remote_table import RemotePart, RowChange
from millpond.contracts.table import Store, Table, TableSpec
from millpond.errors import SourceError
from millpond.faults import REMOTE_POINTS
from millpond.testing.table_harness import ANN, BO, CY, EVENTS, USERS, refuses
from millpond.testing.tables import TableContract

# Where the connection to a server may be lost in a commit, in their order; from `commit` on, it is decided.
STEPS = ("begin", "apply", "applied", "commit", "committed")
EVENT = {"kind": "a", "n": 1}

# A process that is killed in its second commit.
WORKER = """
import json, sys
from pathlib import Path
from millpond.contracts.table import TableSpec
from millpond.tables.store import open_store
from millpond.testing.remote_tables import change_all, made
from millpond.testing.table_harness import ANN

store = open_store(Path(sys.argv[1]))
made(store, sys.argv[2], json.loads(sys.argv[3]))
store.table("users").insert([ANN])
change_all(store)
"""


def made(store: Store, backend: str, options: Any) -> Table:
    """Tables of a backend, and one in memory."""
    users = store.create(TableSpec("users", USERS, backend, options))
    store.create(TableSpec("events", EVENTS, backend, options))
    store.create(TableSpec("here", EVENTS))
    return users


def change_all(store: Store) -> None:
    """One commit over all of them."""
    with store.begin() as tx:
        tx.table("users").upsert([BO])
        tx.table("users").delete(keys=["u1"])
        tx.table("events").insert([EVENT])
        tx.table("here").insert([EVENT])


class _LosingPart:
    """A part of a commit whose connection is lost at one step."""

    def __init__(self, table: _LosingTable, part: RemotePart[Any]) -> None:
        self._table, self._part = table, part

    def apply(self, table: Any, change: RowChange) -> None:
        self._table.reach("apply")
        self._part.apply(table, change)
        self._table.reach("applied")

    def commit(self) -> None:
        self._table.reach("commit")
        self._part.commit()
        self._table.reach("committed")

    def abort(self) -> None:
        self._part.abort()


class _LosingTable:
    def __init__(self, remote: Any, step: str) -> None:
        self._begin, self._step = remote.begin, step

    def reach(self, step: str) -> None:
        if step == self._step:
            # Once: then the server is back.
            self._step = ""
            raise SourceError("MP506", "The connection was lost.")

    def begin(self) -> RemotePart[Any]:
        self.reach("begin")
        return _LosingPart(self, self._begin())


@contextmanager
def losing(table: Any, step: str) -> Iterator[None]:
    """Inside, the connection to the server of a table is lost once, at a step of a commit."""
    remote = table.rows.remote
    begin, remote.begin = remote.begin, _LosingTable(remote, step).begin
    try:
        yield
    finally:
        remote.begin = begin


class RemoteTableContract(TableContract):
    """The contract of a table on a server, which `outside` reads without Millpond."""

    # The name of the seconds for which a second app waits for the first, if it waits.
    lock_wait = ""

    def outside(self, table: str) -> int:
        """The number of rows that a plain client sees."""
        raise NotImplementedError

    def test_a_second_app_is_kept_out_and_the_next_one_takes_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = self.spec("users", USERS)
        first = self.open(tmp_path / "first")
        first.create(spec).insert([ANN])
        second = self.open(tmp_path / "second")
        if self.lock_wait:
            monkeypatch.setattr(self.lock_wait, 0.0)
        with refuses(r"MP801(.|\n)*in use"):
            second.create(spec)
        if self.lock_wait:
            # A server may need a while to see that a connection is closed.
            monkeypatch.setattr(self.lock_wait, 60.0)
        first.close()
        with refuses("MP409"):
            second.create(self.spec("users", EVENTS))
        taken = second.create(spec)
        assert taken.get("u1") == ANN
        taken.upsert([{**ANN, "age": 1}])
        second.close()
        first = self.open(tmp_path / "first")
        with refuses(r"MP801(.|\n)*taken over"):
            first.create(spec)
        first.close()

    @pytest.mark.parametrize("step", STEPS)
    def test_a_connection_lost_at_any_step_changes_all_or_nothing_once(self, tmp_path: Path, step: str) -> None:
        store = self.open(tmp_path / "tables")
        users = made(store, self.backend, self.options)
        users.insert([ANN])
        decided = step.startswith("commit")
        with losing(users, step), nullcontext() if decided else refuses("MP506"):
            change_all(store)
        # The log keeps what the server lacks, also when it is truncated.
        store.checkpoint()
        self._require_all_or_nothing(store, decided=decided)
        store.close()
        store = self.open(tmp_path / "tables")
        users = made(store, self.backend, self.options)
        self._require_all_or_nothing(store, decided=decided)
        users.insert([CY])
        assert (len(users), self.outside("users")) == (2, 2)
        store.close()

    @pytest.mark.process
    @pytest.mark.parametrize("point", REMOTE_POINTS)
    def test_a_kill_in_a_commit_leaves_all_or_nothing(self, tmp_path: Path, point: str) -> None:
        command = [sys.executable, "-c", WORKER, str(tmp_path / "tables"), self.backend, json.dumps(dict(self.options))]
        # The first commit passes each point once.
        environment = {**os.environ, "MILLPOND_FAULT": f"{point}:2"}
        killed = subprocess.run(command, env=environment, timeout=240, capture_output=True, check=False)
        assert killed.returncode == 137, killed.stderr.decode()
        for _ in range(2):
            store = self.open(tmp_path / "tables")
            made(store, self.backend, self.options)
            self._require_all_or_nothing(store, decided=point != REMOTE_POINTS[0])
            store.close()

    def _require_all_or_nothing(self, store: Store, *, decided: bool) -> None:
        # What a server lacks is made when its table is read.
        found = [store.table(name).to_arrow().num_rows for name in ("users", "events", "here")]
        assert (store.table("users").values("user_id"), found) == (
            (["u2"], [1, 1, 1]) if decided else (["u1"], [1, 0, 0])
        )
        assert (self.outside("users"), self.outside("events")) == (1, int(decided))
