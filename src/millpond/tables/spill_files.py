"""Rows that left memory: Arrow files that are mapped, checked before they are read, and gone when nobody reads them.

What is durable is in the log and the checkpoint; a new process begins without these files."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa

from millpond.disk import Writer, refused, replace_file
from millpond.errors import TableError
from millpond.faults import reach

LOCK = "lock"
# The folder of a store in which its tables spill.
SPILL = "spill"
_REFUSED = "Rows cannot be spilled"
_numbers = count(1)

# When a file was last changed, and its size; None for one that is no longer in its folder.
Stamp = tuple[int, int, int] | None


class SpillFile:
    """One batch of rows in a file, which is removed with the last version of the table that has it."""

    def __init__(self, path: Path, written: Writer) -> None:
        self.path = path
        self.size = written.size
        self._checksum = written.checksum
        weakref.finalize(self, _remove, path)
        with pa.memory_map(str(path)) as source:
            self._data = source.read_buffer()
        self.batch: pa.RecordBatch = pa.ipc.open_file(self._data).get_batch(0)
        # Unlike any stamp, so that the first reading checks.
        self._checked: Stamp = (-1, -1, -1)

    def check(self) -> None:
        """MP407 when the file is not what was written; called before every reading. All bytes are read at the first
        one and after each change of the file."""
        stamp = self._stamp()
        if stamp == self._checked:
            return
        # A file that was cut short must not be touched: the system would end the process.
        if (stamp is not None and stamp[0] != self.size) or zlib.crc32(self._data) != self._checksum:
            message = f"{self.path} is damaged: it fails its checksum."
            hint = "Nothing was read from it. Start the app again: the rows of a durable table are in its commit log."
            raise TableError("MP407", message, hint=hint)
        self._checked = stamp

    def _stamp(self) -> Stamp:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            # What is mapped stays readable when its name is gone.
            return None
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns


class SpillFolder:
    """Where one table of this process spills: a folder of its own below `root`, made when it is first needed."""

    def __init__(self, root: Path, table: str) -> None:
        self.root = root
        self._table = table
        self._path: Path | None = None
        self._guard = -1
        # The writer of a table and its compaction may both be the first to spill.
        self._making = threading.Lock()
        remove_abandoned(root)

    def write(self, batch: pa.RecordBatch) -> SpillFile:
        """A batch as a file that is mapped from now on; MP805 when the disk refuses."""
        path = self._folder() / f"{next(_numbers):08d}.arrow"

        def fill(file: Writer) -> None:
            # Not compressed, whatever the table's other files are: mapped rows are read where they lie.
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)

        reach("spill.begin")
        return SpillFile(path, replace_file(path, fill, "spill", _REFUSED))

    def close(self) -> None:
        """Remove all files; who still reads from one goes on, as it stays mapped."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._guard)
            self._path = None

    def _folder(self) -> Path:
        with self._making:
            if self._path is None:
                try:
                    self._path, self._guard = self._make()
                except OSError as error:
                    raise refused(_REFUSED, self.root, error) from error
            return self._path

    def _make(self) -> tuple[Path, int]:
        name = "".join(c if c.isalnum() else "_" for c in self._table)
        with _alone(self.root):
            path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.root))
            guard = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(guard, fcntl.LOCK_EX)
            return path, guard


def remove_abandoned(root: Path) -> None:
    """Remove what processes left that ended without doing so."""
    if not root.is_dir():
        return
    with _alone(root):
        for folder in root.iterdir():
            if (folder / LOCK).exists() and _is_free(folder / LOCK):
                shutil.rmtree(folder, ignore_errors=True)
                reach("spill.abandoned.removed")


def temporary_root() -> Path:
    """Where tables spill that have no folder."""
    return Path(tempfile.gettempdir()) / f"millpond-spill-{os.getuid()}"


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """While no other process makes or removes folders here."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    guard = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield
    finally:
        os.close(guard)


def _is_free(lock: Path) -> bool:
    guard = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(guard)
    return True


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    reach("spill.removed")
