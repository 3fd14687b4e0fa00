"""Where a flow resumes: Spark's checkpoint is made to agree with the ledger, or seen to, before the flow starts.

Spark writes its checkpoint without checksums and without syncing it, so nothing in it is trusted. The ledger has what
decides where a flow goes on, and is checked and synced. Three kinds of flows:

- One that reads feed files: each file is one batch, so that the ledger's batch number says which is next. Its
  checkpoint is begun anew at each start (`epochs`).
- One whose source Spark reads itself: the ledger also keeps the offsets file of the last batch, and at each start a
  checkpoint is written from it. What Spark had planned beyond it is kept, so that the batch is cut as before.
- A join of two streams: Spark keeps the events that wait for a partner in files that cannot be made again. They are
  synced before the batch counts, and their checksums are kept beside them.
"""

from __future__ import annotations

import json
import shutil
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

from millpond.disk import disk_errors, sync_file, sync_folder, write_private
from millpond.errors import StateError
from millpond.runtime.flows.checkpoint import COMMITS, METADATA, OFFSETS, SOURCES, VERSION, is_readable, unreadable
from millpond.runtime.keeping.ledger import FlowEntry
from millpond.small_files import read_sealed, write_sealed

NO_COMMIT = f'{VERSION}\n{{"nextBatchWatermarkMs":0}}'
HINT = "Restore the state directory from a copy, or start over with another --state."
# The checkpoint that a new one takes the place of.
REPLACED = ".replaced"
# Beside the checkpoint of a join: the checksums of its files by their names.
SUMS = "sums.json"
DELTA, SNAPSHOT, COMPACT = ".delta", ".snapshot", ".compact"


def settle_batch(checkpoint: Path, number: int) -> str:
    """Called before the commit of a batch that Spark reads itself: sync its offsets file, so that a power cut cannot
    leave a ledger that is ahead of it. Returns the file."""
    file = checkpoint / OFFSETS / str(number)
    with disk_errors(file):
        sync_file(file)
        sync_folder(file.parent)
        return file.read_text("utf-8")


def settle_state(checkpoint: Path, number: int) -> None:
    """The same for what Spark has written of the state of a join in a batch; the checksums are kept beside it."""
    known = _sums(checkpoint)
    files = {str(file.relative_to(checkpoint)): file for file in _state_files(checkpoint)}
    fresh = {name for name, file in files.items() if name not in known or _version(file) == number + 1}
    with disk_errors(checkpoint):
        sums = {name: zlib.crc32(files[name].read_bytes()) if name in fresh else known[name] for name in files}
        for name in fresh:
            sync_file(files[name])
        for folder in {files[name].parent for name in fresh}:
            sync_folder(folder)
    write_sealed(checkpoint.with_name(SUMS), sums)


def _sums(checkpoint: Path) -> dict[str, int]:
    try:
        return dict(read_sealed(checkpoint.with_name(SUMS), HINT))
    except FileNotFoundError:
        return {}


def _state_files(checkpoint: Path) -> list[Path]:
    patterns = ("state/**/*", f"{SOURCES}/*/*")
    return sorted(file for pattern in patterns for file in checkpoint.glob(pattern) if file.is_file())


def _version(file: Path) -> int | None:
    """Which version of the state a file makes: `7.delta` from 6, `7.snapshot` from nothing."""
    return int(file.stem) if file.stem.isdigit() and file.suffix in (DELTA, SNAPSHOT) else None


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
    yield from _state_damage(checkpoint, number + 1)
    last = checkpoint / OFFSETS / str(number)
    if number >= 0 and last.exists() and is_readable(last) and last.read_text("utf-8") != entry.offsets:
        yield f"{last} is damaged: the ledger has other offsets for this batch."


def _state_damage(checkpoint: Path, version: int) -> Iterator[str]:
    """What is wrong with the state of a join, which must have all that makes a version."""
    try:
        sums = _sums(checkpoint)
    except StateError as error:
        yield error.problems[0].message
        return
    files = _state_files(checkpoint)
    for file in files:
        expected = sums.get(str(file.relative_to(checkpoint)))
        if expected is not None and zlib.crc32(file.read_bytes()) != expected:
            yield f"{file} is damaged: its checksum does not match."
    named = [checkpoint / name for name in sums]
    for folder in sorted({file.parent for file in named if file.suffix == DELTA}):
        yield from _gaps(folder, DELTA, SNAPSHOT, first=1, last=version)
    for folder in sorted({file.parent for file in named if file.parent.parent == checkpoint / SOURCES}):
        last = max(int(file.stem) for file in named if file.parent == folder)
        yield from _gaps(folder, "", COMPACT, first=0, last=last)


def _gaps(folder: Path, step: str, whole: str, *, first: int, last: int) -> Iterator[str]:
    """The files that are missing of a numbered row of them, in which a `whole` one stands for all up to it."""
    there = {file.name for file in folder.glob("*")}
    start = max((number for number in range(first, last + 1) if f"{number}{whole}" in there), default=first - 1)
    for number in range(start + 1, last + 1):
        if f"{number}{step}" not in there:
            yield f"{folder / f'{number}{step}'} is missing."


def _require(file: Path) -> str:
    if not is_readable(file):
        raise StateError("MP804", f"{file} is damaged: it is not what Spark writes.", hint=HINT)
    return file.read_text("utf-8")
