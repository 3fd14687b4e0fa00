"""Finding a source's files: a single file, a folder or a pattern, made empty where the options say so."""

from __future__ import annotations

import errno
import glob
import gzip
import os
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from millpond.contracts.source import Patience, SourceSpec
from millpond.errors import SourceError
from millpond.sources.files.formats import ending_format
from millpond.sources.files.positions import Seen

WILDCARDS = frozenset("*?[")
# Names that start so are not data: files being written, markers of other tools.
HIDDEN = (".", "_")
# Gone between listing and looking, or a link to nothing or to itself.
LEADS_NOWHERE = (errno.ENOENT, errno.ELOOP)


@dataclass(frozen=True)
class Where:
    """The files that a URI names: `path` is a file or folder, or a pattern when `pattern` is set."""

    path: Path
    pattern: bool
    format: str | None

    @classmethod
    def of(cls, spec: SourceSpec) -> Where:
        """Where a spec points; a relative path starts at the SQL file's folder."""
        path = Path(spec.uri.path).expanduser()
        absolute = Path(os.path.normpath(spec.base / path))
        pattern = is_pattern(spec.uri.path) and not absolute.exists()
        return cls(absolute, pattern, spec.values.get("format"))

    def look(self) -> list[Seen]:
        """The files there are now, by modification time, then name; none when nothing is there. MP502 when a folder
        cannot be read."""
        try:
            found = [seen for path in self._paths() if (seen := _seen(path))]
        except OSError as error:
            raise unreadable(str(self.path), error) from error
        return sorted(found, key=lambda seen: (seen.mtime_ns, seen.path))

    def there(self) -> bool:
        """Whether the source is there: the file or folder exists, or the pattern matches something."""
        return bool(self._paths()) if self.pattern else self.path.exists()

    def _paths(self) -> list[str]:
        if self.pattern:
            return [path for path in glob.glob(str(self.path), recursive=True) if self._is_data(path)]
        if not self.path.is_dir():
            return [str(self.path)]
        return [entry.path for entry in os.scandir(self.path) if self._is_data(entry.path)]

    def _is_data(self, path: str) -> bool:
        """In a folder or pattern, files of the wanted format, or of any known one; with a format told, a file with an
        unknown ending such as `app.log.1` is of that format."""
        name = os.path.basename(path)
        if name.startswith(HIDDEN):
            return False
        ending = ending_format(Path(name))
        if self.format is None:
            return ending is not None or self.pattern
        return ending is None or {ending, self.format} <= {"json", "jsonl"} or ending == self.format


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards in it."""
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
    """MP501 unless the source is there; it is made, empty, if `file.create.empty` is set."""
    if where.there():
        return
    if not spec.values["file.create.empty"]:
        raise missing(where, spec)
    _create_empty(where, spec)


def patience(spec: SourceSpec) -> Patience:
    """How long files that are not there are looked for."""
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
    """MP501 with the line that makes Millpond wait."""
    what = "No file matches" if where.pattern else "There is no file or folder"
    hint = f"Check the path ({where.path}), or wait for it: WITH ('file.wait.timeout' = '60s')."
    return SourceError("MP501", f"{what} '{spec.shown}'.", hint=hint)


def unreadable(shown: str, error: OSError | UnicodeError) -> SourceError:
    """MP502 with what the system says, or with what is wrong with the text."""
    if isinstance(error, UnicodeError):
        hint = "Say how it is written, such as WITH ('encoding' = 'latin-1')."
        return SourceError("MP502", f"'{shown}' is not text in the encoding expected: {error}.", hint=hint)
    if isinstance(error, gzip.BadGzipFile):
        hint = "Compress it again, or take .gz off its name."
        return SourceError("MP502", f"'{shown}' is not a gzip file: {error}.", hint=hint)
    hint = "Check the permissions of the file and of the folders above it."
    return SourceError("MP502", f"'{shown}' cannot be read: {error.strerror or error}.", hint=hint)
