"""Random changes, transactions, checkpoints and crashes: a store equals a model of a few lines at every step."""

from __future__ import annotations

import copy
import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millpond.contracts.table import TableSpec
from millpond.errors import ConflictError, ConstraintError
from millpond.schema import Column, Schema
from millpond.tables import hashing, heap, memory
from millpond.tables.sqlite import backend
from millpond.tables.store import open_store

KEYED = TableSpec(
    "keyed",
    Schema.of([Column("k", pa.int64(), False), Column("s", pa.string(), False), Column("v", pa.int64())], ["k", "s"]),
    indexes=(("v",),),
)
PLAIN = TableSpec("plain", Schema.of([Column("n", pa.int64())]))

keys = st.tuples(st.integers(0, 5), st.sampled_from(["", "a", "bb"]))
values = st.one_of(st.none(), st.integers(0, 3))
batches = st.lists(st.tuples(keys, values), max_size=6)


def as_rows(batch: list[tuple[tuple[int, str], Any]]) -> list[dict[str, Any]]:
    return [{"k": k, "s": s, "v": v} for (k, s), v in batch]


class Model:
    """The same tables as plain Python values."""

    def __init__(self) -> None:
        self.keyed: dict[tuple[int, str], Any] = {}
        self.plain: list[int] = []
        self.values: dict[str, int] = {}

    def insert(self, batch: list[tuple[tuple[int, str], Any]]) -> bool:
        if len({key for key, _ in batch}) < len(batch) or any(key in self.keyed for key, _ in batch):
            return False
        self.keyed.update(batch)
        return True


class StoreMachine(RuleBasedStateMachine):
    """Changes go to the store and to the model; at most one transaction is open beside them."""

    @initialize()
    def start(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.generation = 0
        self.model = Model()
        self.tx: Any = None
        self.compactions: list[tuple[Any, Any]] = []
        self.open()

    def open(self) -> None:
        self.store = open_store(self.home / f"tables-{self.generation}")
        self.keyed, self.plain = self.store.create(KEYED), self.store.create(PLAIN)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.home)

    @property
    def target(self) -> tuple[Any, Any, Model]:
        """Where changes go: into the open transaction if there is one."""
        if self.tx is None:
            return self.keyed, self.plain, self.model
        return self.tx.table("keyed"), self.tx.table("plain"), self.inside

    @rule(batch=batches)
    def insert(self, batch: list[Any]) -> None:
        keyed, _, model = self.target
        if model.insert(batch):
            keyed.insert(as_rows(batch))
        else:
            with pytest.raises(ConstraintError, match="MP402"):
                keyed.insert(as_rows(batch))

    @rule(batch=batches)
    def upsert(self, batch: list[Any]) -> None:
        keyed, _, model = self.target
        keyed.upsert(as_rows(batch))
        model.keyed.update(batch)

    @rule(wanted=st.lists(keys, max_size=4))
    def delete_keys(self, wanted: list[Any]) -> None:
        keyed, _, model = self.target
        assert keyed.delete(keys=wanted) == len({w for w in wanted if model.keyed.pop(w, "no") != "no"})

    @rule(low=st.integers(0, 3), value=values)
    def update(self, low: int, value: Any) -> None:
        keyed, _, model = self.target
        keyed.update("v >= ?", {"v": value}, [low])
        model.keyed.update({k: value for k, v in model.keyed.items() if v is not None and v >= low})

    @rule(shift=st.integers(1, 3))
    def move_keys(self, shift: int) -> None:
        keyed, _, model = self.target
        expression = keyed_condition(self.store, f"k + {shift}")
        keyed.update("k >= 3", {"k": expression})
        moved = {(k + shift if k >= 3 else k, s): v for (k, s), v in model.keyed.items()}
        model.keyed.clear()
        model.keyed.update(moved)

    @rule(batch=batches)
    def replace(self, batch: list[Any]) -> None:
        keyed, _, model = self.target
        wanted = dict(batch)
        keyed.replace(pa.Table.from_pylist(as_rows(list(wanted.items())), KEYED.schema.arrow()))
        model.keyed = wanted

    @rule(numbers=st.lists(st.integers(0, 5), max_size=8))
    def append(self, numbers: list[int]) -> None:
        _, plain, model = self.target
        plain.insert([{"n": n} for n in numbers])
        model.plain.extend(numbers)

    @rule(number=st.integers(0, 5))
    def delete_plain(self, number: int) -> None:
        _, plain, model = self.target
        assert plain.delete("n = ?", [number]) == model.plain.count(number)
        model.plain = [n for n in model.plain if n != number]

    @precondition(lambda self: self.tx is None)
    @rule(locked=st.booleans())
    def begin(self, locked: bool) -> None:
        self.tx = self.store.begin(locks=["keyed", "plain"] if locked else [])
        self.inside = copy.deepcopy(self.model)
        self.points: list[tuple[Any, Model]] = []

    @precondition(lambda self: self.tx is not None)
    @rule()
    def savepoint(self) -> None:
        self.points.append((self.tx.savepoint(), copy.deepcopy(self.inside)))

    @precondition(lambda self: self.tx is not None and self.points)
    @rule(data=st.data())
    def rollback_to(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.points) - 1))
        point, model = self.points[place]
        self.tx.rollback_to(point)
        self.inside = copy.deepcopy(model)
        del self.points[place + 1 :]

    @precondition(lambda self: self.tx is not None)
    @rule(value=st.integers(0, 9))
    def put(self, value: int) -> None:
        self.tx.put("value", value)
        self.inside.values["value"] = value

    @precondition(lambda self: self.tx is not None)
    @rule()
    def commit(self) -> None:
        self.tx.commit()
        self.tx, self.model = None, self.inside

    @precondition(lambda self: self.tx is not None)
    @rule()
    def rollback(self) -> None:
        self.tx.rollback()
        self.tx = None

    @precondition(lambda self: self.tx is None and self.model.keyed)
    @rule(data=st.data())
    def conflict(self, data: st.DataObject) -> None:
        """Two transactions change one row: the first wins, the second raises and changes nothing."""
        key = data.draw(st.sampled_from(sorted(self.model.keyed)))
        late = self.store.begin()
        late.table("keyed").upsert(as_rows([(key, 100)]))
        late.table("plain").insert([{"n": 77}])
        self.keyed.upsert(as_rows([(key, 200)]))
        self.model.keyed[key] = 200
        with pytest.raises(ConflictError):
            late.commit()

    @rule()
    def begin_compaction(self) -> None:
        """Beside the writer: what follows happens while it is under way."""
        begun = [(table, table.rows.begin_compaction()) for table in (self.keyed, self.plain)]
        self.compactions = [(table, compaction) for table, compaction in begun if compaction is not None]

    @precondition(lambda self: self.tx is None)
    @rule(twice=st.booleans())
    def end_compaction(self, twice: bool) -> None:
        for table, compaction in self.compactions:
            if not twice or compaction.follow():
                self.store.end_compaction(table, compaction)

    @precondition(lambda self: self.tx is None)
    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    @precondition(lambda self: self.tx is None)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.compactions = []
        self.open()

    @rule()
    def crash(self) -> None:
        """Go on from the files as they are, as after a power cut; an open transaction is lost."""
        if self.tx is not None:
            self.tx.rollback()
            self.tx = None
        old = self.home / f"tables-{self.generation}"
        self.generation += 1
        shutil.copytree(old, self.home / f"tables-{self.generation}")
        self.store.close()
        self.compactions = []
        self.open()

    @invariant()
    def equals_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        keyed, plain, model = self.target
        rows = {(r["k"], r["s"]): r["v"] for r in keyed.to_arrow().to_pylist()}
        assert rows == model.keyed
        assert len(keyed) == len(model.keyed)
        assert plain.to_arrow().column("n").to_pylist() == model.plain
        some = [(k, "a") for k in range(7)]
        found = {(r["k"], r["s"]): r["v"] for r in keyed.lookup(some).to_pylist()}
        assert found == {k: v for k, v in model.keyed.items() if k in some}
        assert keyed.contains((1, "")) == ((1, "") in model.keyed)
        assert keyed.lookup([1, 2], by="v").num_rows == sum(v in (1, 2) for v in model.keyed.values())
        assert keyed.count("v IS NULL AND k < 3") == sum(v is None and k < 3 for (k, _), v in model.keyed.items())
        if self.tx is None:
            assert self.store.items("") == model.values


class SqliteMachine(StoreMachine):
    """The keyed table is in SQLite, the other in memory: every transaction is over two backends."""

    def open(self) -> None:
        self.store = open_store(self.home / f"tables-{self.generation}")
        values = {"path": str(self.home / "outside.db")}
        self.keyed = self.store.create(dataclasses.replace(KEYED, backend="sqlite", values=values))
        self.plain = self.store.create(PLAIN)


class SpillMachine(StoreMachine):
    """Both tables are in memory and spill at once."""

    def open(self) -> None:
        self.store = open_store(self.home / f"tables-{self.generation}")
        values = {"spill": True, "max_memory": 1}
        self.keyed = self.store.create(dataclasses.replace(KEYED, values=values))
        self.plain = self.store.create(dataclasses.replace(PLAIN, values=values))


def keyed_condition(store: Any, text: str) -> Any:
    return store.table("keyed").condition(text).expression


@pytest.mark.parametrize("hash_bits", [64, 2])
def test_a_store_equals_its_model(monkeypatch: pytest.MonkeyPatch, hash_bits: int) -> None:
    """Also with hashes of two bits, where nearly all keys collide, and with compaction after a few dead rows."""
    monkeypatch.setattr(memory, "_DEAD_MIN", 8)
    # At once, so that a run can be had again; the rules of the machine begin those beside the writer.
    monkeypatch.setattr(memory, "_PATIENCE", 0)
    monkeypatch.setattr(heap, "TAIL_ROWS_MAX", 3)
    keep = np.uint64((1 << hash_bits) - 1)
    hash_columns, hash_key = hashing.hash_columns, hashing.hash_key
    monkeypatch.setattr(hashing, "hash_columns", lambda columns: hash_columns(columns) & keep)
    monkeypatch.setattr(hashing, "hash_key", lambda parts: hash_key(parts) & int(keep))
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_store_over_two_backends_equals_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_DEAD_MIN", 8)
    run_state_machine_as_test(
        SqliteMachine,
        settings=settings(
            max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_store_that_spills_equals_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_DEAD_MIN", 8)
    # At once, so that a run can be had again; the rules of the machine begin those beside the writer.
    monkeypatch.setattr(memory, "_PATIENCE", 0)
    run_state_machine_as_test(
        SpillMachine,
        settings=settings(
            max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
