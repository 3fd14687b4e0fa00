"""Where a flow resumes: Spark's checkpoint is made to agree with the ledger, or seen to, before the flow starts.

Spark writes its checkpoint without checksums and without syncing it, so nothing in it is trusted. The ledger has what
decides where a flow goes on, and is checked and synced. Three kinds of flows:

- One that reads feed files: each file is one batch, so that the ledger's batch number says which is next. Its
  checkpoint is begun anew at each start (`epochs`).
- One whose source Spark reads itself: the ledger also keeps the offsets file of the last batch, and at each start a
  checkpoint is written from it. What Spark had planned beyond it is kept, so that the batch is cut as before.
- A join of two streams: Spark keeps the events that wait for a partner in files that cannot be made again. They are
  synced before the batch counts, and read critically here and by Spark.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from millpond.disk import disk_errors, sync_file, sync_folder, write_private
from millpond.errors import StateError
from millpond.runtime.flows.checkpoint import COMMITS, METADATA, OFFSETS, SOURCES, VERSION, is_readable, unreadable
from millpond.runtime.keeping.ledger import FlowEntry

NO_COMMIT = f'{VERSION}\n{{"nextBatchWatermarkMs":0}}'
HINT = "Restore the state directory from a copy, or start over with another --state."
# The checkpoint that a new one takes the place of.
REPLACED = ".replaced"


def settle_batch(checkpoint: Path, number: int) -> str:
    """Called before the commit of a batch that Spark reads itself: sync what Spark has written for it, so that a power
    cut cannot leave a ledger that is ahead of it. Returns the offsets file."""
    file = checkpoint / OFFSETS / str(number)
    written = [file, *checkpoint.glob(f"{SOURCES}/*/*"), *checkpoint.glob(f"state/*/*/*/{number + 1}.*")]
    with disk_errors(file):
        for found in written:
            sync_file(found)
        for folder in {found.parent for found in written}:
            sync_folder(folder)
        return file.read_text("utf-8")


def rebuild(checkpoint: Path, entry: FlowEntry, number: int) -> None:
    """Write the checkpoint of a flow whose last batch, by Spark's count, is `number` (-1: none). MP804 when the batch
    that Spark had begun beyond it cannot be read."""
    replaced = checkpoint.with_name(checkpoint.name + REPLACED)
    if replaced.exists() and not checkpoint.exists():
        replaced.rename(checkpoint)
    shutil.rmtree(replaced, ignore_errors=True)
    planned = checkpoint / OFFSETS / str(number + 1)
    files = {METADATA: json.dumps({"id": str(uuid.uuid4())})}
    if planned.exists():
        files[f"{OFFSETS}/{number + 1}"] = _require(planned)
    # Spark reads the batch before the last one too, and takes nothing from it.
    for done in range(max(number - 1, 0), number + 1):
        files |= {f"{OFFSETS}/{done}": entry.offsets, f"{COMMITS}/{done}": NO_COMMIT}
    fresh = checkpoint.with_name(checkpoint.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    for name, text in files.items():
        write_private(fresh / name, text.encode())
    with disk_errors(checkpoint):
        if checkpoint.exists():
            checkpoint.rename(replaced)
        fresh.rename(checkpoint)
    shutil.rmtree(replaced, ignore_errors=True)


def require_sound(checkpoint: Path, entry: FlowEntry, number: int) -> None:
    """MP804 for the first file of a join's checkpoint that is damaged or does not agree with the ledger."""
    for wrong in damage_of(checkpoint, entry, number):
        raise StateError("MP804", wrong, hint=HINT)


def damage_of(checkpoint: Path, entry: FlowEntry, number: int) -> Iterator[str]:
    """What is wrong with a checkpoint in which batch `number` is done, a sentence for each file."""
    if number < 0 and not checkpoint.exists():
        return
    done = range(max(number - 1, 0), number + 1)
    needed = {checkpoint / METADATA, *(checkpoint / OFFSETS / str(batch) for batch in done)}
    yield from (f"{file} is missing." for file in sorted(needed) if not file.exists())
    for file in unreadable(checkpoint):
        yield f"{file} is damaged: it is not what Spark writes."
    last = checkpoint / OFFSETS / str(number)
    if number >= 0 and last.exists() and is_readable(last) and last.read_text("utf-8") != entry.offsets:
        yield f"{last} is damaged: the ledger has other offsets for this batch."


def _require(file: Path) -> str:
    if not is_readable(file):
        raise StateError("MP804", f"{file} is damaged: it is not what Spark writes.", hint=HINT)
    return file.read_text("utf-8")
