"""Whether the tables, a flow's checkpoint and the journal of its source belong together."""

from __future__ import annotations

from pathlib import Path

from millpond.contracts.table import Store
from millpond.plan.model import FlowPlan
from millpond.runtime.flows.epochs import Epoch, epoch_of, is_behind
from millpond.runtime.keeping.ledger import disagreement, flow_entry, require_agreement

# What a source remembers of what it has given, in the flow's folder.
SOURCE = "source"
FORGOTTEN = "its source does not remember all of the batches that it has given"


def require_together(flow: FlowPlan, store: Store, folder: Path) -> Epoch:
    """The epoch of a flow that is about to go on; MP809 when one of them was restored or removed alone."""
    epoch, entry = epoch_of(store, flow.id), flow_entry(store, flow.id)
    require_agreement(flow, entry, folder / epoch.folder, epoch.first)
    if is_behind(folder, epoch):
        raise disagreement(flow, "its checkpoint is of a later time than its tables", folder)
    # Where Spark reads the source itself, the ledger has its offsets.
    if entry.batch >= 0 and not entry.offsets and flow.join is None and not (folder / SOURCE).exists():
        raise disagreement(flow, FORGOTTEN, folder / SOURCE)
    return epoch
