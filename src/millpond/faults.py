"""Named points at which a crash test can end the process; nothing happens at them otherwise."""

from __future__ import annotations

import os

# MILLPOND_FAULT=log.append.fsync:3 ends the process the third time that point is reached.
_point, _, _count = os.environ.get("MILLPOND_FAULT", "").partition(":")
_left = int(_count or 1)

# In the store.
POINTS = (
    "log.append.begin",
    "log.append.half",
    "log.append.written",
    "log.append.synced",
    "log.rotate.created",
    "log.rotate.synced",
    "log.cut.begin",
    "folder.manifest.half",
    "folder.manifest.written",
    "folder.manifest.synced",
    "folder.manifest.renamed",
    "commit.staged",
    "commit.applied",
    "sqlite.commit.begin",
    "sqlite.commit.end",
    "spill.begin",
    "spill.half",
    "spill.written",
    "spill.synced",
    "spill.renamed",
    "spill.removed",
    "spill.abandoned.removed",
    "compaction.begin",
    "compaction.done",
    "checkpoint.begin",
    "checkpoint.table.half",
    "checkpoint.table.written",
    "checkpoint.table.synced",
    "checkpoint.table.renamed",
    "checkpoint.manifest.half",
    "checkpoint.manifest.written",
    "checkpoint.manifest.synced",
    "checkpoint.manifest.renamed",
    "checkpoint.old.removed",
)
# In a flow, in the order of one batch; those of the commit lie between `flow.worked` and `flow.committed`.
FLOW_POINTS = (
    "feed.written",
    "feed.remembered",
    "feed.shown",
    "flow.begun",
    "flow.worked",
    "flow.committed",
    "sink.renamed",
    "flow.published",
    "flow.done",
)
# When a flow's checkpoint is begun anew.
EPOCH_POINTS = ("epoch.forgotten", "epoch.begun", "epoch.cleaned")
# When a changed file drops tables.
EDIT_POINTS = ("edit.decided", "edit.forgotten", "edit.done")
# When a table is computed again from the beginning of its source.
BACKFILL_POINTS = ("backfill.read", "backfill.computed", "backfill.stored")


def armed(point: str) -> bool:
    """Whether this process is to end at a point: lets a writer stop half way only when a test asks for it."""
    return point == _point


def reach(point: str) -> None:
    """End the process at once, without any cleaning up, if a test asked for this point."""
    global _left
    if point != _point:
        return
    _left -= 1
    if _left == 0:
        os._exit(137)
