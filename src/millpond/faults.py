"""Fault points: named places in the code at which a crash test can end the process. In production they do nothing."""

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
# In a commit that changes tables on servers.
REMOTE_POINTS = ("commit.remote.staged", "commit.remote.decided", "commit.remote.committed")
# When changes of a table in Delta are merged into its files.
DELTA_POINTS = ("delta.merge.begin", "delta.merge.done", "delta.compacted")
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
# When a sink that is a server publishes rows: a database, or Kafka in transactions, which alone has the second one.
SINK_POINTS = ("sink.ready", "sink.sent", "sink.applied")
# In a file sink whose files take the rows of several batches, and in the inbox of a webhook.
OPEN_FILE_POINTS = ("sink.part.added", "sink.merged", "sink.whole.shown")
# In the S3 sink, when an object was written whose file still exists.
OBJECT_POINTS = ("sink.object.written",)
INBOX_POINTS = ("inbox.written", "inbox.synced")
# When a changed file drops tables.
EDIT_POINTS = ("edit.decided", "edit.forgotten", "edit.done")
# When a table is recomputed from the beginning of its source.
BACKFILL_POINTS = ("backfill.read", "backfill.computed", "backfill.stored")
# When a table is loaded, and when it follows the changes of a database.
LOAD_POINTS = ("load.committed",)
CAPTURE_POINTS = ("capture.loaded", "capture.applied", "capture.committed")


def armed(point: str) -> bool:
    """Whether this process ends at a point, so that a writer can stop half way through a write."""
    return point == _point


def reach(point: str) -> None:
    """End the process if a test selected this point."""
    global _left
    if point != _point:
        return
    _left -= 1
    if _left == 0:
        # No cleanup, no flush, no `finally`: like `kill -9`, whose exit code this is.
        os._exit(137)
