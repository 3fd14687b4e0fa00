"""A process that commits, checkpoints and compacts a store until the test's fault ends it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.contracts.table import Store, TableSpec
from millpond.schema import Column, Schema
from millpond.tables.store import open_store

KEYED = TableSpec("keyed", Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"]))
PLAIN = TableSpec("plain", Schema.of([Column("n", pa.int64())]))
OUTSIDE = TableSpec("outside", Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"]))
# Small enough that every commit spills, large enough changes that some of them compact.
SPILLED = TableSpec("spilled", Schema.of([Column("k", pa.int64(), False), Column("v", pa.string())], ["k"]))
SPILL = {"spill": True, "max_memory": 4096}
SPILLED_ROWS = 800
COMMITS = 14
CHECKPOINTS = (4, 9)


def commit(store: Store, turn: int) -> None:
    """The commit of a turn: all tables and a value, adding, replacing and removing rows."""
    with store.begin() as tx:
        keyed, plain, outside = tx.table("keyed"), tx.table("plain"), tx.table("outside")
        keyed.upsert([{"k": k, "v": f"{turn}-{k}"} for k in range(turn, turn + 5)])
        keyed.delete(keys=[turn - 1])
        plain.insert([{"n": turn * 10 + i} for i in range(3)])
        plain.delete("n % 4 = ?", [turn % 4])
        outside.upsert([{"k": k, "v": f"{turn}-{k}"} for k in range(turn, turn + 5)])
        outside.delete(keys=[turn - 1])
        spilled = tx.table("spilled")
        spilled.upsert([{"k": k, "v": f"{turn}-{k}"} for k in range(turn, turn + SPILLED_ROWS)])
        spilled.delete(keys=[turn - 1])
        tx.put("turn", turn)


def content(store: Store) -> dict[str, Any]:
    """Everything a store holds, to be compared."""
    tables = {n: sorted(map(str, store.table(n).to_arrow().to_pylist())) for n in store.names()}
    return {"tables": tables, "values": store.items("")}


def expected(turns: int) -> dict[str, Any]:
    """What a store holds after so many commits, by a store that nothing happens to."""
    store = open_store(None)
    store.create(KEYED)
    store.create(PLAIN)
    store.create(OUTSIDE)
    store.create(SPILLED)
    for turn in range(1, turns + 1):
        commit(store, turn)
    return content(store)


def main(folder: Path, acknowledged: Path) -> None:
    store = open_store(folder)
    store.create(KEYED)
    store.create(PLAIN)
    store.create(replace(SPILLED, values=SPILL))
    store.create(replace(OUTSIDE, backend="sqlite", values={"path": str(folder.parent / "outside.db")}))
    for turn in range((store.get("turn") or 0) + 1, COMMITS + 1):
        commit(store, turn)
        store.compact()
        acknowledged.write_text(str(turn))
        if turn in CHECKPOINTS:
            store.checkpoint()
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
