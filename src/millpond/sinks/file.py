"""The file sink: a folder to which each batch adds complete files.

Guarantee: exactly once. Rows are staged in a hidden folder before the commit and renamed into place after it; the
rename is redone at recovery, and the same batch always gives the same names. Names and the staging folder carry the id
of the state directory, so that several apps can write to one folder.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.sink import Mark, Sink, SinkPlugin, SinkSpec
from millpond.contracts.stored_json import JsonObject, StoredJson
from millpond.disk import PRIVATE_FILE, make_folder, sync_file, sync_folder
from millpond.errors import MillpondError, Problem, Severity, SinkError, StateError
from millpond.faults import reach
from millpond.options import NAMES, POSITIVE, SPAN, Option, choice
from millpond.sinks.destinations import Destination, LocalFolder
from millpond.sinks.file_parts import divided, wrong_partition
from millpond.sinks.open_files import OpenFiles
from millpond.sinks.text_columns import csv_blocks, json_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = ".staging"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
OPTIONS = (
    Option("format", choice("jsonl", "json", "csv", "parquet"), "jsonl", "The format of the files."),
    Option(
        "partition.by",
        NAMES,
        None,
        "The columns by whose values files are divided into folders, such as day=2026-01-02/; files do not have them.",
    ),
    Option(
        "file.max.rows",
        POSITIVE,
        None,
        "The most rows of a file. A file takes the rows of several batches, and is shown when it is full.",
    ),
    Option(
        "file.max.age",
        SPAN,
        None,
        "How long a file takes the rows of further batches before it is shown, even if it is not full.",
    ),
)
_NOT_FOR_NAMES = re.compile(r"[^\w.\-]")


class FileSink:
    """A Sink of files; see the contract. Several flows may write to one."""

    def __init__(self, spec: SinkSpec, destination: Destination | None = None) -> None:
        self._writer, self._private = spec.writer, spec.private
        self._format: str = spec.values["format"]
        self._shown = spec.shown
        self._rows = 0
        self._lock = threading.Lock()
        self._destination = destination or self._local_folder(spec)
        self._staging = self._destination.staging
        with self._disk():
            if self._private or destination is not None:
                make_folder(self._staging)
            self._staging.mkdir(parents=True, exist_ok=True)
        self._by: tuple[str, ...] = spec.values.get("partition.by") or ()
        self._rows_max: int | None = spec.values.get("file.max.rows")
        age_us = spec.values.get("file.max.age")
        grows = self._rows_max is not None or age_us is not None
        age_s = None if age_us is None else age_us / 1e6
        self._open = OpenFiles(self._destination, spec.id, self._rows_max, age_s, partial(self._warn, spec.warn))
        self._grows = grows
        try:
            self._recover()
        except SinkError as error:
            # A server that cannot be reached now may be reached when the flow starts.
            if error.code != "MP602":
                raise
        if grows:
            spec.at_stop(self._end)

    def _local_folder(self, spec: SinkSpec) -> LocalFolder:
        folder = Path(os.path.normpath(spec.base / Path(spec.uri.path).expanduser()))
        if folder.exists() and not folder.is_dir():
            hint = "A file sink is a folder: use a new or an existing folder."
            raise SinkError("MP601", f"'{self._shown}' is a file, not a folder.", hint=hint)
        return LocalFolder(folder, folder / STAGING / (spec.writer or "app"))

    def _recover(self) -> None:
        with self._disk():
            self._open.recover()

    def _end(self) -> None:
        with self._disk():
            self._open.end()

    def _warn(self, warn: Callable[[Problem], None], error: Exception) -> None:
        """Report that a file was not shown when it was old."""
        if not isinstance(error, MillpondError):
            assert isinstance(error, OSError)
            error = self._refused(error.errno in DISK_FULL, error.strerror or str(error))
        for problem in error.problems:
            message = f"A file that reached 'file.max.age' is not shown yet, and this is tried again: {problem.message}"
            warn(replace(problem, message=message, severity=Severity.WARNING))

    marks_rows = False

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Show what an earlier run has left. The folder was created when the sink was opened."""
        self._recover()

    def prepare(self, rows: pa.Table) -> pa.Table:
        return rows

    def takes_arrow(self, rows: pa.Table) -> bool:
        return True

    def stage(self, rows: DataFrame | pa.Table, mark: Mark) -> JsonObject | None:
        folder = self._staging / _NOT_FOR_NAMES.sub("_", str(mark))
        group = _NOT_FOR_NAMES.sub("_", f"{mark.flow}-{mark.part}-{mark.statement:03d}")
        with self._disk():
            shutil.rmtree(folder, ignore_errors=True)
            count, files = self._write(rows, folder, group)
            for file, _, _ in files:
                # An executor that runs as another user has set the mode of its files.
                if file.stat().st_uid == os.geteuid():
                    file.chmod(self._mode())
                sync_file(file)
            if not files:
                shutil.rmtree(folder, ignore_errors=True)
                return None
            sync_folder(folder)
            sync_folder(self._staging)
        name = f"{self._writer}-{folder.name}" if self._writer else folder.name
        names: list[list[Any]] = []
        for part, (file, within, held) in enumerate(files):
            final = f"{within}{name}-{part:05d}.{self._format}"
            names.append([file.name, final, f"{group}/{within}", held] if self._grows else [file.name, final])
        return {"staged": folder.name, "files": names, "rows": count}

    def _mode(self) -> int:
        """The mode of the files: that of the user's umask, because Spark creates them private."""
        return PRIVATE_FILE if self._private else self._staging.stat().st_mode & 0o666

    def _write(self, rows: DataFrame | pa.Table, folder: Path, group: str) -> tuple[int, list[tuple[Path, str, int]]]:
        """The number of rows, and the files, each with the folder of its partition and its number of rows."""
        if self._by or self._grows:
            whole = rows if isinstance(rows, pa.Table) else rows.toArrow()
            room = self._rows_max if self._grows else None
            parts = divided(whole, self._by, room, lambda within: self._open.rows(f"{group}/{within}"))
            files = [
                (write_rows(part.rows, folder, self._format, number)[1][0], part.folder, part.rows.num_rows)
                for number, part in enumerate(parts)
            ]
            return whole.num_rows, files
        if isinstance(rows, pa.Table):
            count, written = write_rows(rows, folder, self._format)
        else:
            from millpond.sinks.file_writers import write_files

            count, written = write_files(rows, folder, self._format)
        return count, [(file, "", 0) for file in written]

    def publish(self, staged: dict[str, StoredJson]) -> None:
        folder = self._staging / staged["staged"]
        if not folder.exists():
            # Already published; a reader may have moved or removed the files since.
            return
        self._recover()
        with self._lock, self._disk():
            for name, final, *growing in staged["files"]:
                if not (folder / name).exists():
                    continue
                if self._grows and growing:
                    self._open.add(folder / name, growing[0], final, growing[1])
                else:
                    self._destination.show(folder / name, final)
                reach("sink.renamed")
            self._open.show_closing()
            self._destination.settle()
            shutil.rmtree(folder)
        self._rows += staged["rows"]

    def discard(self) -> None:
        with self._disk():
            for leftover in self._staging.iterdir():
                # What belongs to the growing files of another sink of this folder is that sink's.
                if not leftover.name.startswith(("open-", "closing-")):
                    shutil.rmtree(leftover, ignore_errors=True)

    def rows_written(self) -> int:
        return self._rows

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Translate errors of the disk; errors of the query are not changed."""
        try:
            yield
        except MillpondError:
            raise
        except OSError as error:
            raise self._refused(error.errno in DISK_FULL, error.strerror or str(error)) from error
        except Exception as error:
            text = str(error)
            if "No space left on device" in text:
                raise self._refused(True, "No space left on device") from error
            if "Permission denied" in text or "Mkdirs failed to create" in text:
                raise self._refused(False, "Permission denied") from error
            raise

    def _refused(self, full: bool, why: str) -> MillpondError:
        message = f"'{self._shown}' cannot be written: {why}."
        if full:
            return StateError("MP805", message, hint="Free some space and restart; nothing was lost.")
        return SinkError("MP601", message, hint="Make the folder writable.")


def open_sink(spec: SinkSpec) -> Sink:
    return FileSink(spec)


def validate(spec: SinkSpec) -> str | None:
    """The error of a URI as a sentence, or None."""
    if not spec.uri.path:
        return "A file sink requires a folder, such as file://./out."
    if set("*?[") & set(spec.uri.path):
        return "A file sink is one folder, not a pattern."
    return None


def fits(spec: SinkSpec, columns: tuple[str, ...]) -> None:
    """MP601 if the rows cannot be divided by the columns of 'partition.by'."""
    wrong = wrong_partition(spec.values["partition.by"] or (), columns)
    if wrong is not None:
        raise SinkError("MP601", wrong, hint=f"Columns: {', '.join(columns)}.")


PLUGIN = SinkPlugin(
    name="file", options=OPTIONS, guarantee="exactly once", open=open_sink, validate=validate, fits=fits
)


def write_rows(rows: pa.Table, folder: Path, format_: str, part: int = 0) -> tuple[int, list[Path]]:
    """Write rows to a new folder; returns their number and the file, if there is one."""
    if not rows.num_rows:
        return 0, []
    folder.mkdir(parents=True, exist_ok=bool(part))
    file = folder / f"part-{part:05d}.{format_}"
    if format_ == "parquet":
        # Imported here, because it is slow and most sinks write text.
        import pyarrow.parquet as pq

        pq.write_table(rows, file)
    else:
        with file.open("wb") as data:
            data.writelines(csv_blocks(rows) if format_ == "csv" else json_blocks(rows))
    return rows.num_rows, [file]
