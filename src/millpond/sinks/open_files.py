"""Files that are still growing: parts of several batches, which are shown as one file when it is full or old.

A part is durable and committed when it comes here. A file with several parts is first written as a whole, then what
becomes of it is recorded, then it is shown and its parts are removed: a crash between any two steps shows each row
once. A file that could not be shown takes no more parts: it may be visible although an error was reported. A run shows
what the one before has left.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.disk import read_sealed, sync_file, sync_folder, write_sealed
from millpond.errors import MillpondError
from millpond.faults import reach
from millpond.sinks.destinations import Destination

COPY_BYTES = 1 << 20
RETRY_S = 1.0
# Files that grow at a time; then the oldest are shown although they are not full.
OPEN_MAX = 1000


@dataclass
class Growing:
    """A file in the making: the folder with its parts, how many rows they have, when it must be shown, and whether that
    was tried."""

    folder: Path
    rows: int
    due: float
    closing: bool = False


class OpenFiles:
    """The growing files of one sink; any thread may call. `warn` takes an error of a file that is shown because of its
    age, once until it was shown."""

    def __init__(
        self,
        destination: Destination,
        name: str,
        rows_max: int | None,
        age_s: float | None,
        warn: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._destination, self._warn = destination, warn
        self._parts, self._closing = destination.staging / f"open-{name}", destination.staging / f"closing-{name}"
        self._rows_max, self._age_s = rows_max, age_s
        self._growing: dict[str, Growing] = {}
        self._changed = threading.Condition(threading.RLock())
        self._watch: threading.Thread | None = None
        self._ended = self._is_recovered = self._warned = False

    def rows(self, group: str) -> int:
        """How many rows a file has that takes more."""
        found = self._growing.get(group)
        return 0 if found is None or found.closing else found.rows

    def add(self, file: Path, group: str, name: str, rows: int) -> None:
        """Add a part to the file of a group; the first part gives the file its name."""
        with self._changed:
            before = self._growing.get(group)
            # The part was cut for a file that may have been shown since, because of its age or by a restart.
            if before is not None and (before.closing or before.rows + rows > (self._rows_max or math.inf)):
                self._show(group)
            folder = self._parts / group
            folder.mkdir(parents=True, exist_ok=True)
            file.replace(folder / name.rpartition("/")[2])
            due = time.monotonic() + self._age_s if self._age_s is not None else float("inf")
            growing = self._growing.setdefault(group, Growing(folder, 0, due))
            growing.rows += rows
            for made in (folder, *folder.parents):
                sync_folder(made)
                if made == self._parts.parent:
                    break
            reach("sink.part.added")
            if self._rows_max is not None and growing.rows >= self._rows_max:
                self._show(group)
            while len(self._growing) > OPEN_MAX:
                self._show(next(iter(self._growing)))
            self._wake()

    def show_closing(self) -> None:
        """Show files again that could not be shown."""
        with self._changed:
            for group in [group for group, growing in self._growing.items() if growing.closing]:
                self._show(group)

    def end(self) -> None:
        """Show all files; the app stops."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            for group in list(self._growing):
                self._show(group)

    def recover(self) -> None:
        """Show what an earlier run has left; called until it succeeds, before anything is added."""
        with self._changed:
            if self._is_recovered:
                return
            self._finish()
            for folder in sorted(_folders_with_files(self._parts)):
                self._show_parts(folder)
            shutil.rmtree(self._parts, ignore_errors=True)
            self._is_recovered = True

    def _show(self, group: str) -> None:
        self._growing[group].closing = True
        self._show_parts(self._growing[group].folder)
        del self._growing[group]

    def _show_parts(self, folder: Path) -> None:
        parts = sorted(path for path in folder.glob("*") if path.is_file())
        if not parts:
            return
        # The first folder is that of the statement, the others are those of the partition.
        within = folder.relative_to(self._parts).parts[1:]
        name = "/".join((*within, parts[0].name))
        if len(parts) == 1:
            self._destination.show(parts[0], name)
        else:
            self._closing.mkdir(parents=True, exist_ok=True)
            whole = self._closing / "whole"
            merge(parts, whole)
            whole.chmod(parts[0].stat().st_mode & 0o777)
            sync_file(whole)
            write_sealed(self._closing / "plan", {"name": name, "parts": [str(part) for part in parts]})
            reach("sink.merged")
            self._finish()
        self._destination.settle()
        shutil.rmtree(folder, ignore_errors=True)

    def _finish(self) -> None:
        """Show a file that was written as a whole, and remove its parts."""
        try:
            plan = read_sealed(self._closing / "plan")
        except FileNotFoundError:
            shutil.rmtree(self._closing, ignore_errors=True)
            return
        whole = self._closing / "whole"
        if whole.exists():
            self._destination.show(whole, plan["name"])
            self._destination.settle()
        reach("sink.whole.shown")
        for part in plan["parts"]:
            Path(part).unlink(missing_ok=True)
        shutil.rmtree(self._closing)

    def _wake(self) -> None:
        """A thread shows files that have become old; it ends with the app."""
        if self._age_s is None:
            return
        if self._watch is None:
            self._watch = threading.Thread(target=self._show_old, name="file-sink", daemon=True)
            self._watch.start()
        self._changed.notify_all()

    def _show_old(self) -> None:
        with self._changed:
            while not self._ended:
                now = time.monotonic()
                wait_s = min((growing.due - now for growing in self._growing.values()), default=None)
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                old = [group for group, growing in self._growing.items() if growing.due <= now]
                shown = [self._is_shown(group) for group in old]
                self._warned = not all(shown)
                if self._warned:
                    # They stay where they are, and are shown later, at the next start at the latest.
                    self._changed.wait(RETRY_S)

    def _is_shown(self, group: str) -> bool:
        """Show an old file; False if it could not be shown."""
        try:
            self._show(group)
        except (OSError, MillpondError) as error:
            if not self._warned:
                self._warned = True
                self._warn(error)
            return False
        return True


def _folders_with_files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from {path.parent for path in folder.rglob("*") if path.is_file()}


def merge(parts: Sequence[Path], whole: Path) -> None:
    """Write the rows of several files of one format into one."""
    ending = parts[0].suffix
    writers: dict[str, Callable[[Sequence[Path], Path], None]] = {".parquet": _merge_parquet, ".csv": _merge_csv}
    writers.get(ending, _concatenate)(parts, whole)


def _concatenate(parts: Sequence[Path], whole: Path) -> None:
    with whole.open("wb") as out:
        for part in parts:
            with part.open("rb") as rows:
                shutil.copyfileobj(rows, out, COPY_BYTES)


def _merge_csv(parts: Sequence[Path], whole: Path) -> None:
    with whole.open("wb") as out:
        for number, part in enumerate(parts):
            with part.open("rb") as rows:
                header = rows.readline()
                # A column's name may have line ends.
                while header.count(b'"') % 2 and (more := rows.readline()):
                    header += more
                out.write(b"" if number else header)
                shutil.copyfileobj(rows, out, COPY_BYTES)


def _merge_parquet(parts: Sequence[Path], whole: Path) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(whole, pq.read_schema(parts[0])) as out:
        for part in parts:
            out.write_table(pq.read_table(part))
