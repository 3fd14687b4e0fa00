"""Spark's checkpoint of a flow: verified, or rebuilt from the ledger, so that Spark resumes after the last commit."""

from __future__ import annotations

import json
import shutil
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from millpond.disk import disk_errors, read_sealed, sync_file, sync_folder, write_private, write_sealed
from millpond.engine.ledger import FlowEntry
from millpond.errors import StateError

VERSION = "v1"
OFFSETS, COMMITS, SOURCES, METADATA = "offsets", "commits", "sources", "metadata"


def has_read(folder: Path, files: Sequence[tuple[int, str]]) -> bool:
    """Whether files, each with the number of its source, are in finished batches. Spark writes a batch's offsets before
    it runs, and its commit after ours."""
    try:
        done = max((int(f.name) for f in (folder / COMMITS).iterdir() if f.name.isdigit()), default=-1)
        if done < 0:
            return not files
        offsets = (folder / OFFSETS / str(done)).read_text().splitlines()[2:]
        read = [_names(folder / SOURCES / str(number), line) for number, line in enumerate(offsets)]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        # Spark is writing a file, or has not started yet.
        return not files
    return all(name in read[number] for number, name in files)


def _names(folder: Path, offset: str) -> set[str]:
    """The names of the files of a source up to an offset; "-" is before the first."""
    if offset == "-":
        return set()
    last = int(json.loads(offset)["logOffset"])
    logs = {int(f.name.partition(".")[0]): f for f in folder.iterdir() if f.name.partition(".")[0].isdigit()}
    wanted = [log for number, log in logs.items() if number <= last]
    entries = [json.loads(line) for log in wanted for line in log.read_text().splitlines()[1:]]
    return {_path(entry["path"]).name for entry in entries if entry["batchId"] <= last}


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def unreadable(checkpoint: Path) -> list[Path]:
    """The files of a checkpoint that Spark could not read."""
    patterns = (METADATA, f"{OFFSETS}/*", f"{COMMITS}/*", f"{SOURCES}/*/*")
    return [file for pattern in patterns for file in sorted(checkpoint.glob(pattern)) if not is_readable(file)]


def is_readable(file: Path) -> bool:
    """Whether a file has the format of Spark's logs: a version, then JSON in each line; the metadata is only JSON."""
    try:
        lines = file.read_text("utf-8").splitlines()
        found = [json.loads(line) for line in (lines if file.name == METADATA else lines[1:]) if line != "-"]
    except (OSError, ValueError):
        return False
    if file.name == METADATA:
        return len(found) == 1 and isinstance(found[0], dict) and _is_id(found[0].get("id"))
    return lines[:1] == [VERSION] and bool(found) and all(isinstance(line, dict) for line in found)


def _is_id(text: object) -> bool:
    try:
        return bool(uuid.UUID(str(text)))
    except ValueError:
        return False


NO_COMMIT = f'{VERSION}\n{{"nextBatchWatermarkMs":0}}'
HINT = "Restore the state directory from a copy, or start again with another --state."
# The suffix of a checkpoint while it is being replaced.
REPLACED = ".replaced"
# The file next to a join's checkpoint with the checksums of its files.
SUMS = "sums.json"
DELTA, SNAPSHOT, COMPACT = ".delta", ".snapshot", ".compact"


def settle_batch(checkpoint: Path, number: int) -> str:
    """Called before the commit of a batch that Spark reads: sync its offsets file, so that after a power failure the
    ledger is not ahead of it. Returns its content."""
    file = checkpoint / OFFSETS / str(number)
    with disk_errors(file):
        sync_file(file)
        sync_folder(file.parent)
        return file.read_text("utf-8")


def settle_state(checkpoint: Path, number: int) -> None:
    """The same for the state of a join that Spark has written in a batch; its checksums are stored too."""
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
    """The version of the state that a file results in: `7.delta` from version 6, `7.snapshot` by itself."""
    return int(file.stem) if file.stem.isdigit() and file.suffix in (DELTA, SNAPSHOT) else None


def rebuild(checkpoint: Path, entry: FlowEntry, number: int) -> None:
    """Write the checkpoint of a flow whose last batch, by Spark's count, is `number` (-1: none). MP804 if the offsets
    of a batch that Spark had started after it cannot be read."""
    replaced = checkpoint.with_name(checkpoint.name + REPLACED)
    if replaced.exists() and not checkpoint.exists():
        replaced.rename(checkpoint)
    shutil.rmtree(replaced, ignore_errors=True)
    planned = checkpoint / OFFSETS / str(number + 1)
    files = {METADATA: json.dumps({"id": str(uuid.uuid4())})}
    # The offsets of a started batch are kept, so that it is repeated with the same records.
    if planned.exists():
        files[f"{OFFSETS}/{number + 1}"] = _require(planned)
    # Spark also requires the files of the batch before the last one, but does not use their content.
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
    """MP804 for the first file of a join's checkpoint that is damaged or differs from the ledger."""
    for wrong in damage_of(checkpoint, entry, number):
        raise StateError("MP804", wrong, hint=HINT)


def damage_of(checkpoint: Path, entry: FlowEntry, number: int) -> Iterator[str]:
    """The damage of a checkpoint whose last finished batch is `number`, a sentence for each file."""
    if number < 0 and not checkpoint.exists():
        return
    done = range(max(number - 1, 0), number + 1)
    needed = {checkpoint / METADATA, *(checkpoint / OFFSETS / str(batch) for batch in done)}
    yield from (f"{file} is missing." for file in sorted(needed) if not file.exists())
    for file in unreadable(checkpoint):
        yield f"{file} is damaged: Spark cannot read it."
    yield from _state_damage(checkpoint, number + 1)
    last = checkpoint / OFFSETS / str(number)
    if number >= 0 and last.exists() and is_readable(last) and last.read_text("utf-8") != entry.offsets:
        yield f"{last} is damaged: the ledger has other offsets for this batch."


def _state_damage(checkpoint: Path, version: int) -> Iterator[str]:
    """The damage of the state of a join, which must have all files of a version."""
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
    """The missing files of a numbered sequence, in which a `whole` one replaces all before it."""
    there = {file.name for file in folder.glob("*")}
    start = max((number for number in range(first, last + 1) if f"{number}{whole}" in there), default=first - 1)
    for number in range(start + 1, last + 1):
        if f"{number}{step}" not in there:
            yield f"{folder / f'{number}{step}'} is missing."


def _require(file: Path) -> str:
    if not is_readable(file):
        raise StateError("MP804", f"{file} is damaged: Spark cannot read it.", hint=HINT)
    return file.read_text("utf-8")
