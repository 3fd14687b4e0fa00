"""Files as a sink: a folder to which each batch adds finished files.

Guarantee: exactly once. Rows are staged in a hidden folder before the commit and renamed into place after it; the
rename is redone at recovery, and the same batch always gives the same names. Names and the staging folder carry the id
of the state directory, so that several apps can write into one folder.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.contracts.sink import Mark, Sink, SinkPlugin, SinkSpec
from millpond.disk import PRIVATE_FILE, make_folder, sync_file, sync_folder
from millpond.errors import MillpondError, SinkError, StateError
from millpond.faults import reach
from millpond.options import Option, choice
from millpond.sinks.rows import write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = ".staging"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
OPTIONS = (Option("format", choice("jsonl", "json", "csv", "parquet"), "jsonl", "How the files are written."),)
_NOT_FOR_NAMES = re.compile(r"[^\w.\-]")


class FileSink:
    """A Sink that is a folder; see the contract."""

    def __init__(self, spec: SinkSpec) -> None:
        self._folder = Path(os.path.normpath(spec.base / Path(spec.uri.path).expanduser()))
        self._writer, self._private = spec.writer, spec.private
        self._staging = self._folder / STAGING / (spec.writer or "app")
        self._format: str = spec.values["format"]
        self._shown = spec.shown
        self._rows = 0
        if self._folder.exists() and not self._folder.is_dir():
            hint = "A file sink is a folder: name one that does not exist yet, or an existing folder."
            raise SinkError("MP601", f"'{self._shown}' is a file and not a folder.", hint=hint)
        with self._disk():
            if self._private:
                make_folder(self._staging)
            self._staging.mkdir(parents=True, exist_ok=True)

    takes_arrow, marks_rows = True, False

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Its folder was made when it was opened."""

    def prepare(self, rows: pa.Table) -> pa.Table:
        return rows

    def stage(self, rows: DataFrame | pa.Table, mark: Mark) -> dict[str, Any] | None:
        folder = self._staging / _NOT_FOR_NAMES.sub("_", str(mark))
        with self._disk():
            shutil.rmtree(folder, ignore_errors=True)
            count, files = self._write(rows, folder)
            for file in files:
                file.chmod(self._mode())
                sync_file(file)
            if not files:
                shutil.rmtree(folder, ignore_errors=True)
                return None
            sync_folder(folder)
            sync_folder(self._staging)
        name = f"{self._writer}-{folder.name}" if self._writer else folder.name
        names = [[file.name, f"{name}-{part:05d}.{self._format}"] for part, file in enumerate(files)]
        return {"staged": folder.name, "files": names, "rows": count}

    def _mode(self) -> int:
        """What files may be read by: Spark's are private, and a folder shows what the user lets others read."""
        return PRIVATE_FILE if self._private else self._staging.stat().st_mode & 0o666

    def _write(self, rows: DataFrame | pa.Table, folder: Path) -> tuple[int, list[Path]]:
        if isinstance(rows, pa.Table):
            return write_rows(rows, folder, self._format)
        from millpond.sinks.writing import write_files

        return write_files(rows, folder, self._format)

    def publish(self, staged: dict[str, Any]) -> None:
        folder = self._staging / staged["staged"]
        if not folder.exists():
            # Published before; what a reader did with the files since is none of our business.
            return
        with self._disk():
            for name, final in staged["files"]:
                if (folder / name).exists():
                    self._show(folder / name, self._folder / final)
                    reach("sink.renamed")
            sync_folder(self._folder)
            shutil.rmtree(folder)
        self._rows += staged["rows"]

    def _show(self, file: Path, final: Path) -> None:
        """Move a file to its place; what we had moved there would not be staged any more."""
        if final.exists():
            message = f"{final} is there already: a copy of this state directory has written it."
            hint = "Give each app a state directory of its own, not a copy, or write into another folder."
            raise SinkError("MP601", message, hint=hint)
        file.replace(final)

    def discard(self) -> None:
        with self._disk():
            for leftover in self._staging.iterdir():
                shutil.rmtree(leftover, ignore_errors=True)

    def rows_written(self) -> int:
        return self._rows

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Turns what the disk refuses into a coded error; errors of the query pass."""
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
            return StateError("MP805", message, hint="Make room on the disk and start again; nothing was lost.")
        return SinkError("MP601", message, hint=f"Make the folder {self._folder} writable.")


def open_sink(spec: SinkSpec) -> Sink:
    return FileSink(spec)


def validate(spec: SinkSpec) -> str | None:
    """What is wrong with a URI, as a sentence."""
    if not spec.uri.path:
        return "A file sink needs a folder, such as file://./out."
    if set("*?[") & set(spec.uri.path):
        return "A file sink is one folder; a pattern names several."
    return None


PLUGIN = SinkPlugin(name="file", options=OPTIONS, guarantee="exactly once", open=open_sink, validate=validate)
