"""The ledger: entries in commits that record which batches, statements and loads are done."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.contracts.table import Store, TableSpec
from millpond.errors import StateError
from millpond.faults import reach
from millpond.plan.model import BESIDE, FlowPlan

FLOW, ONCE, LOAD, DEFINITION, VIEW, CHANGES = "flow:", "once:", "load:", "definition:", "view:", "changes:"
# Key prefix, followed by the name of a capture: its position in the log of its server.
CAPTURE = "capture:"
# The statements that a flow had at the last start, and the last known figures of flows and sources.
STATEMENTS, LAST = "statements:", "last:"
# What each engine has done of a flow's statements.
ENGINES = "engines:"
# The tables that a changed file drops, while they are being dropped.
EDIT = "edit"
# The query of a view that stores no rows, and whether it is in the app's file.
NAMED = "named:"
# The statement that declared a table outside of the app's file.
MADE = "made:"
# A copy of the state directory's identity.
IDENTITY_ENTRY = "identity:"


@dataclass(frozen=True)
class Definition:
    """The definition of a table; `kind` determines whether its rows can be computed again."""

    meaning: str
    kind: str
    # The stored accumulators of an aggregate, see plan.aggregate_shape.
    shape: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        return {"meaning": self.meaning, "kind": self.kind, "shape": self.shape}


def definition_of(found: Any) -> Definition | None:
    """A table's entry; None for a table that was not defined by the file."""
    return None if found is None else Definition(found["meaning"], found["kind"], found.get("shape"))


@dataclass(frozen=True)
class Reshapes:
    """Tables with changed columns and all their rows, and their new entries."""

    tables: tuple[tuple[TableSpec, pa.Table], ...] = ()
    puts: Mapping[str, Any] = field(default_factory=dict)

    def __add__(self, other: Reshapes) -> Reshapes:
        return Reshapes((*self.tables, *other.tables), {**self.puts, **other.puts})


@dataclass(frozen=True)
class FlowEntry:
    """The last batch that is in the tables (-1: none), the staged outputs of its sinks, the flow's watermark in
    microseconds since the epoch, and, if Spark reads the source itself, the offsets file of the batch."""

    batch: int = -1
    sinks: tuple[dict[str, Any], ...] = ()
    watermark: int | None = None
    offsets: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"batch": self.batch, "sinks": list(self.sinks), "watermark": self.watermark, "offsets": self.offsets}


def flow_key(flow_id: str) -> str:
    return FLOW + flow_id


def flow_entry(store: Store, flow_id: str) -> FlowEntry:
    """A flow's entry; for a new flow, one without any batch."""
    return flow_entry_of(store.get(flow_key(flow_id)))


def flow_entry_of(found: Any) -> FlowEntry:
    """A flow's entry as the ledger has it."""
    if found is None:
        return FlowEntry()
    return FlowEntry(found["batch"], tuple(found["sinks"]), found["watermark"], found["offsets"])


def require_agreement(flow: FlowPlan, entry: FlowEntry, checkpoint: Path) -> None:
    """MP809 if Spark's checkpoint has finished a batch that is not in the tables: Spark writes its commit after ours,
    so the tables must have been restored from an older copy."""
    committed = _last(checkpoint / "commits")
    if committed > entry.batch:
        what = f"its checkpoint has finished batch {committed}, and its tables hold batches up to {entry.batch} only"
        raise disagreement(flow, what, checkpoint)


def disagreement(flow: FlowPlan, what: str, folder: Path) -> StateError:
    """MP809 with a hint."""
    message = f"The flow '{flow.name}' cannot continue: {what}."
    hint = (
        "One of them was restored or removed alone. Restore both from the same moment, or start again with another "
        f"--state. Look at {folder}."
    )
    return StateError("MP809", message, place=flow.steps[0].place if flow.steps else None, hint=hint)


def _last(folder: Path) -> int:
    if not folder.is_dir():
        return -1
    return max((int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()), default=-1)


def decide_edit(store: Store, forgotten: Sequence[str], statements: Mapping[str, Any], reshaped: Reshapes) -> None:
    """Change columns of tables, drop others, and store the statements of flows by their ids, as one step: a crash
    before its commit leaves everything unchanged, and after a later one `finish_edit` completes it."""
    remembered = {STATEMENTS + flow_id: found for flow_id, found in statements.items()}
    decided = {EDIT: {"forget": list(forgotten), "statements": dict(statements)}} if forgotten else remembered
    puts = {**reshaped.puts, **decided}
    if reshaped.tables:
        store.reshape(reshaped.tables, puts)
    else:
        with store.begin() as tx:
            for key, value in puts.items():
                tx.put(key, value)
            tx.commit()
    reach("edit.decided")
    finish_edit(store)


def finish_edit(store: Store) -> None:
    """Complete a decided edit; also called when the store is opened."""
    found = store.get(EDIT)
    if found is None:
        return
    for name in found["forget"]:
        forget_table(store, name)
        reach("edit.forgotten")
    with store.begin() as tx:
        for flow_id, remembered in found["statements"].items():
            tx.put(STATEMENTS + flow_id, remembered)
        tx.put(EDIT, None)
        tx.commit()
    reach("edit.done")


def forget_table(store: Store, name: str) -> None:
    """Drop a table with its companions and ledger entries; does nothing for what was dropped already."""
    prefix = f"{name.lower()}{BESIDE}"
    beside = [n for n in store.names() if n.lower().startswith(prefix) and store.table(n).spec.hidden]
    for found in (*beside, name):
        store.drop(found)
    # Last: as long as the entry exists, the next start completes an interrupted drop.
    with store.begin() as tx:
        for entry in (DEFINITION, LOAD, VIEW, MADE):
            tx.put(entry + name.lower(), None)
        tx.commit()


CHECKPOINT = "checkpoint"


def forget_checkpoints(folder: Path) -> None:
    """Remove Spark's checkpoint of a flow that now reads a feed."""
    for found in folder.glob(f"{CHECKPOINT}*"):
        shutil.rmtree(found, ignore_errors=True)


# The source's journal, in the flow's folder.
SOURCE = "source"
FORGOTTEN = "its source does not remember all of the batches that it has given"


def require_together(flow: FlowPlan, store: Store, folder: Path) -> None:
    """MP809 if a flow that resumes and its tables do not belong together, because one of them was restored or removed
    separately."""
    entry = flow_entry(store, flow.id)
    require_agreement(flow, entry, folder / CHECKPOINT)
    # If Spark reads the source itself, the ledger has its offsets.
    if entry.batch >= 0 and not entry.offsets and flow.join is None and not (folder / SOURCE).exists():
        raise disagreement(flow, FORGOTTEN, folder / SOURCE)
