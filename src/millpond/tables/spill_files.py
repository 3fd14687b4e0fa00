"""Files of spilled rows: memory-mapped Arrow files, verified before they are read, removed when no version uses them.

They are not part of the durable state, which is in the log and the checkpoint; a new process starts without them."""

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
# The folder of a store for the spilled rows of its tables.
SPILL = "spill"
_REFUSED = "Rows cannot be spilled"
_numbers = count(1)

# The modification time and size of a file; None for one that was unlinked.
Stamp = tuple[int, int, int] | None


class SpillFile:
    """One batch of rows in a file, which is removed with the last version of the table that uses it."""

    def __init__(self, path: Path, written: Writer) -> None:
        self.path = path
        self.size = written.size
        self._checksum = written.checksum
        weakref.finalize(self, _remove, path)
        with pa.memory_map(str(path)) as source:
            self._data = source.read_buffer()
        self.batch: pa.RecordBatch = pa.ipc.open_file(self._data).get_batch(0)
        # Different from any stamp, so that the first read verifies the file.
        self._checked: Stamp = (-1, -1, -1)

    def check(self) -> None:
        """MP407 if the file is damaged; called before every read. All bytes are verified at the first read and after
        each change of the file."""
        stamp = self._stamp()
        if stamp == self._checked:
            return
        # A truncated file must not be read: accessing the missing pages of a mapping ends the process (SIGBUS).
        if (stamp is not None and stamp[0] != self.size) or zlib.crc32(self._data) != self._checksum:
            message = f"{self.path} is damaged: its checksum does not match."
            hint = "Nothing was read from it. Restart the app: the rows of a durable table are in its commit log."
            raise TableError("MP407", message, hint=hint)
        self._checked = stamp

    def _stamp(self) -> Stamp:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            # A mapped file stays readable after it was unlinked.
            return None
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns


class SpillFolder:
    """The folder of one table of this process below `root`, created when it is first needed."""

    def __init__(self, root: Path, table: str) -> None:
        self.root = root
        self._table = table
        self._path: Path | None = None
        self._guard = -1
        # Both the writer and the compaction of a table may be the first to spill.
        self._making = threading.Lock()
        remove_abandoned(root)

    def write(self, batch: pa.RecordBatch) -> SpillFile:
        """Write a batch to a file and map it; MP805 if that fails."""
        path = self._folder() / f"{next(_numbers):08d}.arrow"

        def fill(file: Writer) -> None:
            # Not compressed, whatever the option 'compression' is: mapped rows are read in place.
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)

        reach("spill.begin")
        return SpillFile(path, replace_file(path, fill, "spill", _REFUSED))

    def close(self) -> None:
        """Remove all files; readers can continue, because the files stay mapped."""
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
    """Remove the files of processes that ended without doing so."""
    if not root.is_dir():
        return
    with _alone(root):
        for folder in root.iterdir():
            if (folder / LOCK).exists() and _is_free(folder / LOCK):
                shutil.rmtree(folder, ignore_errors=True)
                reach("spill.abandoned.removed")


def temporary_root() -> Path:
    """The folder for tables of a store without a folder."""
    return Path(tempfile.gettempdir()) / f"millpond-spill-{os.getuid()}"


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Inside, no other process creates or removes folders here."""
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
