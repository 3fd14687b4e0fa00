"""What is done: the last batch of each flow, the one-shot statements, the loads; all in the commits themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.contracts.table import Store, Transaction
from millpond.errors import StateError
from millpond.faults import reach
from millpond.plan.model import BESIDE, FlowPlan

FLOW, ONCE, LOAD, DEFINITION, VIEW, CHANGES = "flow:", "once:", "load:", "definition:", "view:", "changes:"
# The statements that a flow had at the last start, and what was last known of flows and sources.
STATEMENTS, LAST = "statements:", "last:"
# What a changed file has decided to drop, while it is being dropped.
EDIT = "edit"
# The query of a view that has no rows of its own, and whether it stands in the app's file.
NAMED = "named:"
# Which epoch a flow is in.
EPOCH = "epoch:"
# A copy of the state directory's identity.
IDENTITY_ENTRY = "identity:"


@dataclass(frozen=True)
class Definition:
    """What a table was made from; `kind` says whether its rows can be had again."""

    meaning: str
    kind: str
    # Of an aggregate: what it keeps, see plan.aggregate_shape.
    shape: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        return {"meaning": self.meaning, "kind": self.kind, "shape": self.shape}


def definition_of(found: Any) -> Definition | None:
    """A table's entry; None for a table that was not made from the file."""
    return None if found is None else Definition(found["meaning"], found["kind"], found.get("shape"))


@dataclass(frozen=True)
class FlowEntry:
    """The last batch that is in the tables (-1: none), what its sinks had to publish, how far the flow's watermark has
    come, in microseconds since the epoch, and, where Spark reads the source itself, the offsets file of the batch."""

    batch: int = -1
    sinks: tuple[dict[str, Any], ...] = ()
    watermark: int | None = None
    offsets: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"batch": self.batch, "sinks": list(self.sinks), "watermark": self.watermark, "offsets": self.offsets}


def flow_key(flow_id: str) -> str:
    return FLOW + flow_id


def flow_entry(store: Store, flow_id: str) -> FlowEntry:
    """A flow's entry; that of a new flow says that nothing is done."""
    return flow_entry_of(store.get(flow_key(flow_id)))


def flow_entry_of(found: Any) -> FlowEntry:
    """A flow's entry as the ledger has it."""
    if found is None:
        return FlowEntry()
    return FlowEntry(found["batch"], tuple(found["sinks"]), found["watermark"], found["offsets"])


def require_agreement(flow: FlowPlan, entry: FlowEntry, checkpoint: Path, first: int) -> None:
    """MP809 when Spark's checkpoint, whose batch 0 is `first` to us, has finished a batch that is not in the tables:
    Spark writes its commit after ours, so that the tables were restored from an older copy."""
    committed = _last(checkpoint / "commits") + first
    if committed > entry.batch:
        what = f"its checkpoint has finished batch {committed}, and its tables hold batches up to {entry.batch} only"
        raise disagreement(flow, what, checkpoint)


def disagreement(flow: FlowPlan, what: str, folder: Path) -> StateError:
    """MP809 with what to do."""
    message = f"The flow '{flow.name}' cannot go on: {what}."
    hint = (
        "One of them was restored or removed alone. Restore both from the same moment, or start over with another "
        f"--state. Look at {folder}."
    )
    return StateError("MP809", message, place=flow.steps[0].place if flow.steps else None, hint=hint)


def _last(folder: Path) -> int:
    if not folder.is_dir():
        return -1
    return max((int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()), default=-1)


def decide_edit(store: Store, forgotten: Sequence[str], statements: Mapping[str, Any]) -> None:
    """Drop tables, and remember the statements of flows by their ids, as one step: a crash before the entry leaves all
    as it was, one after it is made good by `finish_edit`."""
    with store.begin() as tx:
        if forgotten:
            tx.put(EDIT, {"forget": list(forgotten), "statements": dict(statements)})
        else:
            _remember(tx, statements)
        tx.commit()
    reach("edit.decided")
    finish_edit(store)


def _remember(tx: Transaction, statements: Mapping[str, Any]) -> None:
    for flow_id, remembered in statements.items():
        tx.put(STATEMENTS + flow_id, remembered)


def finish_edit(store: Store) -> None:
    """Do what was decided; called when the store was opened, too."""
    found = store.get(EDIT)
    if found is None:
        return
    for name in found["forget"]:
        forget_table(store, name)
        reach("edit.forgotten")
    with store.begin() as tx:
        _remember(tx, found["statements"])
        tx.put(EDIT, None)
        tx.commit()
    reach("edit.done")


def forget_table(store: Store, name: str) -> None:
    """Drop a table with what is kept beside it, and all that is known of it; harmless when it is gone already."""
    prefix = f"{name.lower()}{BESIDE}"
    beside = [n for n in store.names() if n.lower().startswith(prefix) and store.table(n).spec.hidden]
    for found in (*beside, name):
        store.drop(found)
    # Last: while there is an entry, a crash in between is made good at the next start.
    with store.begin() as tx:
        for entry in (DEFINITION, LOAD, VIEW):
            tx.put(entry + name.lower(), None)
        tx.commit()
