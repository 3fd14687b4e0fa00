"""The files of a source, which is a single file, a folder or a pattern, and their format."""

from __future__ import annotations

import errno
import glob
import gzip
import os
from itertools import repeat
from pathlib import Path

from millpond.contracts.source import Patience, SourceSpec
from millpond.errors import SourceError
from millpond.sources.files.file_positions import Seen
from millpond.sources.records.formats import FileFormat, ending_format, file_format

WILDCARDS = frozenset("*?[")
# Prefixes of names that are not data: files being written, and markers of other tools.
HIDDEN = (".", "_")
# The file disappeared after it was listed, or is a link to nothing or to itself.
LEADS_NOWHERE = (errno.ENOENT, errno.ELOOP)


class Where:
    """The files that a URI names: `path` is a file or folder, or a pattern if `pattern` is set. For remote files,
    `fetch` makes a copy under the path of a listed file."""

    # Whether files are remote: each is complete when it is listed, and is fetched before it is read.
    is_remote = False

    def __init__(self, path: Path, pattern: bool, format_: str | None) -> None:
        self.path, self.pattern, self.format = path, pattern, format_

    @classmethod
    def of(cls, spec: SourceSpec) -> Where:
        """The location of a spec; a relative path starts at the folder of the SQL file."""
        path = Path(spec.uri.path).expanduser()
        absolute = Path(os.path.normpath(spec.base / path))
        pattern = is_pattern(spec.uri.path) and not absolute.exists()
        return cls(absolute, pattern, spec.values.get("format"))

    def look(self) -> list[Seen]:
        """The existing files, by modification time, then name. MP502 if a folder cannot be read."""
        try:
            found = [seen for path in self._paths() if (seen := _seen(path))]
        except OSError as error:
            raise unreadable(str(self.path), error) from error
        return sorted(found, key=lambda seen: (seen.mtime_ns, seen.path))

    def exists(self) -> bool:
        """Whether the file or folder exists, or the pattern matches something."""
        return bool(self._paths()) if self.pattern else self.path.exists()

    def use(self, folder: Path | None) -> None:
        """Set the folder of the state directory for copies of files."""

    def close(self) -> None:
        """Remove the copies."""

    def fetch(self, seen: Seen) -> None:
        """Called before a file is read; FileNotFoundError if it has changed since it was listed."""

    def release(self, seen: Seen) -> None:
        """Called when a file was read."""

    def confirm(self) -> None:
        """Called when the records of all files that were seen before are durable."""

    def shown(self, path: str) -> str:
        """The name of a file in messages."""
        return path

    def named_text(self, text: str) -> str:
        """A message with the names of files for users."""
        return text

    def named(self, error: SourceError) -> SourceError:
        """The same for an error."""
        problem = error.problems[0]
        return SourceError(problem.code, self.named_text(problem.message), hint=problem.hint)

    def _paths(self) -> list[str]:
        if self.pattern:
            return [path for path in glob.glob(str(self.path), recursive=True) if self._is_data(path)]
        if not self.path.is_dir():
            return [str(self.path)]
        return [entry.path for entry in os.scandir(self.path) if self._is_data(entry.path)]

    def _is_data(self, path: str) -> bool:
        """Whether a file of a folder or pattern belongs to the source: it has the given format, or any known one; with
        a given format, a file with an unknown ending such as `app.log.1` has that format."""
        name = os.path.basename(path)
        if name.startswith(HIDDEN):
            return False
        ending = ending_format(Path(name))
        if self.format is None:
            return ending is not None or self.pattern
        return ending is None or {ending, self.format} <= {"json", "jsonl"} or ending == self.format


def is_pattern(path: str) -> bool:
    """Whether a path contains wildcards."""
    return bool(WILDCARDS & set(path))


def _seen(path: str) -> Seen | None:
    try:
        stat = os.stat(path)
    except OSError as error:
        if error.errno not in LEADS_NOWHERE:
            raise
        return None
    return None if os.path.isdir(path) else Seen.of(path, stat)


def require(where: Where, spec: SourceSpec) -> None:
    """MP501 unless the source exists; it is created, empty, if `file.create.empty` is set."""
    if where.exists():
        return
    if not spec.values.get("file.create.empty"):
        raise missing(where, spec)
    _create_empty(where, spec)


def patience(spec: SourceSpec) -> Patience:
    """How long missing files are polled."""
    return Patience(spec.values["file.wait.timeout"] / 1e6, repeat(spec.values["file.retry.interval"] / 1e6))


def _create_empty(where: Where, spec: SourceSpec) -> None:
    try:
        where.path.parent.mkdir(parents=True, exist_ok=True)
        if ending_format(where.path) is None:
            where.path.mkdir(exist_ok=True)
        else:
            where.path.touch()
    except OSError as error:
        raise unreadable(spec.shown, error) from error


def missing(where: Where, spec: SourceSpec) -> SourceError:
    """MP501, with the option to wait for the source as a hint."""
    what = "No file matches" if where.pattern else "There is no file or folder"
    hint = f"Check the path ({where.path}), or wait for it WITH ('file.wait.timeout' = '60s')."
    return SourceError("MP501", f"{what} '{spec.shown}'.", hint=hint)


def unreadable(shown: str, error: OSError | UnicodeError) -> SourceError:
    """MP502 with the error of the operating system or of decoding."""
    if isinstance(error, UnicodeError):
        hint = "Set the encoding, such as WITH ('encoding' = 'latin-1')."
        return SourceError("MP502", f"'{shown}' is not text in the expected encoding: {error}.", hint=hint)
    if isinstance(error, gzip.BadGzipFile):
        hint = "Compress it again, or remove .gz from its name."
        return SourceError("MP502", f"'{shown}' is not a gzip file: {error}.", hint=hint)
    hint = "Check the permissions of the file and of the folders above it."
    return SourceError("MP502", f"'{shown}' cannot be read: {error.strerror or error}.", hint=hint)


# The format of an empty folder without 'format': text, until its first file determines the format.
UNDETERMINED = "text"


def form_of(spec: SourceSpec, where: Where, known: str | None = None) -> FileFormat:
    """The format of a source, UNDETERMINED if neither option nor file determines it yet."""
    files = [Path(seen.path) for seen in where.look()]
    given = spec.values.get("format") or ending_format(where.path)
    if given or any(map(ending_format, files)):
        return file_format(spec.values, where.path, files, spec.shown)
    if files and known in (None, UNDETERMINED):
        return file_format(spec.values, where.path, files, spec.shown)
    return file_format({**spec.values, "format": known or UNDETERMINED}, where.path, [], spec.shown)
