"""What is done: the last batch of each flow, the one-shot statements, the loads; all in the commits themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.contracts.table import Store
from millpond.errors import StateError
from millpond.plan.model import BESIDE, FlowPlan

FLOW, ONCE, LOAD, DEFINITION, VIEW, CHANGES = "flow:", "once:", "load:", "definition:", "view:", "changes:"
# The statements that a flow had at the last start, and what was last known of flows and sources.
STATEMENTS, LAST = "statements:", "last:"
# Which epoch a flow is in.
EPOCH = "epoch:"


@dataclass(frozen=True)
class Definition:
    """What a table was made from; `kind` says whether its rows can be had again."""

    meaning: str
    kind: str

    def as_json(self) -> dict[str, str]:
        return {"meaning": self.meaning, "kind": self.kind}


def definition_of(found: Any) -> Definition | None:
    """A table's entry; None for a table that was not made from the file."""
    return None if found is None else Definition(found["meaning"], found["kind"])


@dataclass(frozen=True)
class FlowEntry:
    """The last batch that is in the tables (-1: none), what its sinks had to publish, and how far the flow's watermark
    has come, in microseconds since the epoch."""

    batch: int = -1
    sinks: tuple[dict[str, Any], ...] = ()
    watermark: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {"batch": self.batch, "sinks": list(self.sinks), "watermark": self.watermark}


def flow_key(flow_id: str) -> str:
    return FLOW + flow_id


def flow_entry(store: Store, flow_id: str) -> FlowEntry:
    """A flow's entry; that of a new flow says that nothing is done."""
    found = store.get(flow_key(flow_id))
    return FlowEntry() if found is None else FlowEntry(found["batch"], tuple(found["sinks"]), found.get("watermark"))


def require_agreement(flow: FlowPlan, entry: FlowEntry, checkpoint: Path, first: int) -> None:
    """MP809 unless Spark's checkpoint, whose batch 0 is `first` to us, and the tables' ledger can belong together.

    Spark writes a batch's offsets before the batch runs and its commit after ours: the ledger is never ahead of the
    offsets and never behind the commits."""
    planned, committed = last_planned(checkpoint) + first, _last(checkpoint / "commits") + first
    if committed <= entry.batch <= planned:
        return
    if entry.batch > planned:
        what = f"its tables hold batch {entry.batch}, and its checkpoint knows batches up to {planned} only"
    else:
        what = f"its checkpoint has finished batch {committed}, and its tables hold batches up to {entry.batch} only"
    raise disagreement(flow, what, checkpoint)


def last_planned(checkpoint: Path) -> int:
    """The last batch that Spark has begun, by its own count; -1: none."""
    return _last(checkpoint / "offsets")


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
