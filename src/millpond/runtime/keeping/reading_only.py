"""A state directory that may only be read: its tables are opened in a private copy that shares its large files.

Opening tables writes: a lock, the rest of a commit that a crash cut short, a new log. In the copy the files that are
never changed are links, and only the last log and what SQLite would write are copied. It is gone when it is closed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import StateError
from millpond.runtime.keeping.state import IDENTITY, LOCK, STORE, StateFolder, identity_of, in_use, open_existing
from millpond.tables.logs import log_numbers, log_path

# What is of no use to a reader.
LEFT_OUT = ("lock", "spill")


@dataclass
class CopiedState(StateFolder):
    """The copy of a state directory."""

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.path, ignore_errors=True)


def open_to_read(path: Path) -> StateFolder:
    """Take hold of a state directory for queries, of one that may not be written too; MP807 when there is none, MP801
    while an app holds it."""
    path = path.absolute()
    if not (path / IDENTITY).is_file() or all(_is_writable(folder) for folder in (path, path / STORE)):
        return open_existing(path)
    try:
        return _copied(path)
    except OSError as error:
        message = f"{error.filename or path} cannot be read: {error.strerror}."
        raise StateError("MP804", message, hint="Ask as the user that the app runs as.") from error


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def _copied(path: Path) -> StateFolder:
    identity = identity_of(path)
    lock = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    copy = Path(tempfile.mkdtemp(prefix="millpond-"))
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        _copy_store(path / STORE, copy / STORE)
    except BaseException as error:
        holder = os.read(lock, 32).decode("ascii", "replace").strip()
        os.close(lock)
        shutil.rmtree(copy, ignore_errors=True)
        if isinstance(error, BlockingIOError):
            raise in_use(path, holder) from None
        raise
    return CopiedState(copy, lock, identity["id"], True)


def _copy_store(store: Path, copy: Path) -> None:
    copy.mkdir(mode=0o700)
    last = {log_path(store, number).name for number in log_numbers(store)[-1:]}
    for file in store.iterdir():
        if file.name in LEFT_OUT:
            continue
        if file.name in last or ".sqlite" in file.name:
            shutil.copyfile(file, copy / file.name)
        else:
            (copy / file.name).symlink_to(file)
