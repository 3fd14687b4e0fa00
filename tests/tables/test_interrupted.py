"""A commit that is interrupted in the same process: all of it is applied or nothing, and the error says which."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.errors import StateError
from millpond.faults import POINTS
from millpond.schema import Column, Schema
from millpond.tables import commit_log, store
from millpond.tables.memory import MemoryRows
from millpond.tables.store import TableStore, open_store

SCHEMA = Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"])


def opened(folder: Path) -> TableStore:
    made = open_store(folder / "tables")
    made.create(TableSpec("inside", SCHEMA))
    made.create(TableSpec("outside", SCHEMA, "sqlite", {"path": str(folder / "outside.db")}))
    return made


def commit(made: TableStore, turn: int) -> None:
    with made.begin() as tx:
        for name in ("inside", "outside"):
            tx.table(name).upsert([{"k": k, "v": str(turn)} for k in range(turn)])
        tx.put("turn", turn)


def content(made: TableStore) -> dict[str, Any]:
    return {n: sorted(map(str, made.table(n).to_arrow().to_pylist())) for n in made.names()} | made.items("")


def expected(turn: int) -> dict[str, Any]:
    rows = sorted(str({"k": k, "v": str(turn)}) for k in range(turn))
    return {"inside": rows, "outside": rows, "turn": turn}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt here, also where the tests run in the background, which ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("point", [p for p in POINTS if p.startswith(("commit", "log.append")) and "half" not in p])
def test_ctrl_c_waits_for_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    made = opened(tmp_path)
    commit(made, 2)

    def reach(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGINT)

    for module in (store, commit_log):
        monkeypatch.setattr(module, "reach", reach)
    with pytest.raises(KeyboardInterrupt):
        commit(made, 3)
    monkeypatch.undo()
    assert content(made) == expected(3)
    commit(made, 4)
    made.close()
    again = opened(tmp_path)
    assert content(again) == expected(4)
    again.close()


def test_a_failure_between_the_log_and_the_tables_shows_nothing_and_is_done_at_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = opened(tmp_path)
    commit(made, 2)

    def fail(self: MemoryRows, prepared: object) -> None:
        raise MemoryError

    monkeypatch.setattr(MemoryRows, "apply", fail)
    with pytest.raises(MemoryError):
        commit(made, 3)
    monkeypatch.undo()
    assert content(made) == expected(2)
    with pytest.raises(StateError, match="MP810"):
        commit(made, 4)
    assert content(made) == expected(2)
    made.close()
    again = opened(tmp_path)
    assert content(again) == expected(3)
    commit(again, 4)
    again.close()
    last = opened(tmp_path)
    assert content(last) == expected(4)
    last.close()
