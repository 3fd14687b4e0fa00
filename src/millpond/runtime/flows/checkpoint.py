"""Spark's own checkpoint of a flow: which feed files a batch consists of, and whether its files can be read at all.

A small batch is read by the driver itself, which takes a millisecond where a Spark job takes fifty. Spark writes down
what a batch consists of before it runs it: the number in `offsets/<batch>`, the files of that number in `sources/0`.
Whatever is not as expected makes the answer None, and Spark reads the batch.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

VERSION = "v1"
OFFSETS, COMMITS, SOURCES, METADATA = "offsets", "commits", "sources", "metadata"


def feed_files(folder: Path, batch_id: int) -> list[Path] | None:
    """The files of a batch, as Spark numbers it in a checkpoint, or None where that cannot be told."""
    try:
        last = _log_number(folder, batch_id)
        first = _log_number(folder, batch_id - 1) if batch_id else -1
        if last - first != 1:
            return None
        files = [_path(entry["path"]) for entry in _entries(folder / SOURCES / "0", last)]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
    return files if files and all(file.exists() for file in files) else None


def has_read(folder: Path, files: Sequence[tuple[int, str]]) -> bool:
    """Whether files, each with the number of its source, are in batches that are done. Spark writes a batch's offsets
    before it runs, and its commit after our own."""
    try:
        done = max((int(f.name) for f in (folder / COMMITS).iterdir() if f.name.isdigit()), default=-1)
        if done < 0:
            return not files
        offsets = (folder / OFFSETS / str(done)).read_text().splitlines()[2:]
        read = [_names(folder / SOURCES / str(number), line) for number, line in enumerate(offsets)]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        # Spark is writing just now, or has not begun.
        return not files
    return all(name in read[number] for number, name in files)


def _names(folder: Path, offset: str) -> set[str]:
    """The names of the files that a source had given up to an offset; "-" is before the first."""
    if offset == "-":
        return set()
    last = int(json.loads(offset)["logOffset"])
    logs = {int(f.name.partition(".")[0]): f for f in folder.iterdir() if f.name.partition(".")[0].isdigit()}
    wanted = [log for number, log in logs.items() if number <= last]
    entries = [json.loads(line) for log in wanted for line in log.read_text().splitlines()[1:]]
    return {_path(entry["path"]).name for entry in entries if entry["batchId"] <= last}


def _log_number(folder: Path, batch_id: int) -> int:
    """The third line, behind version and metadata, is the offset of the only source."""
    lines = (folder / OFFSETS / str(batch_id)).read_text().splitlines()
    if len(lines) != 3:
        raise ValueError("more than one source")
    return int(json.loads(lines[2])["logOffset"])


def _entries(folder: Path, number: int) -> list[dict[str, str]]:
    """What a number of the log says; now and then Spark writes the whole log into one file."""
    plain = folder / str(number)
    text = (plain if plain.exists() else folder / f"{number}.compact").read_text()
    entries = [json.loads(line) for line in text.splitlines()[1:]]
    return [entry for entry in entries if entry["batchId"] == number]


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def unreadable(checkpoint: Path) -> list[Path]:
    """The files of a checkpoint that do not have the form in which Spark writes them."""
    patterns = (METADATA, f"{OFFSETS}/*", f"{COMMITS}/*", f"{SOURCES}/*/*")
    return [file for pattern in patterns for file in sorted(checkpoint.glob(pattern)) if not is_readable(file)]


def is_readable(file: Path) -> bool:
    """Whether a file has the form in which Spark writes its logs: a version, then JSON in each line; the metadata is
    JSON alone."""
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
