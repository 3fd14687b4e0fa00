"""File formats: which format a file has, its delimiter, quote and encoding, and the columns of its header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.errors import SourceError
from millpond.schema import Schema

# The format by the ending of a file name; each ending may be followed by .gz.
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
FORMATS = ("jsonl", "json", "csv", "parquet")
COMPRESSED = ".gz"

# Two names of one format.
_OTHER_NAMES = {"ndjson": "jsonl"}
# A tab or newline is hard to type in SQL text, so their usual spellings are accepted.
_SPELLED = {"\\t": "\t", "\\n": "\n", "\\\\": "\\", "tab": "\t"}


@dataclass(frozen=True)
class FileFormat:
    """The format of a source's files; all but `name` applies to text formats only."""

    name: str
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str | None = None
    encoding: str = "utf-8"

    @property
    def whole(self) -> bool:
        """Whether a file is only valid as a whole, so that a changed one is read again."""
        return self.name == "parquet" or not self.byte_wise

    @property
    def byte_wise(self) -> bool:
        """Whether a newline is one unambiguous byte, so that a file can be split without decoding it."""
        return not self.encoding.replace("_", "-").lower().startswith(("utf-16", "utf-32", "utf16", "utf32"))

    def encoded(self, text: str) -> bytes:
        """A delimiter or quote in the encoding of the bytes that are split."""
        return text.encode(self.encoding if self.byte_wise else "utf-8", "ignore")

    @property
    def is_utf8(self) -> bool:
        return self.encoding.replace("_", "-").lower() in ("utf-8", "utf8", "utf-8-sig", "ascii", "us-ascii")


def is_compressed(path: Path) -> bool:
    return path.name.lower().endswith(COMPRESSED)


def ending_format(path: Path) -> str | None:
    """The format by the ending of a file name, or None."""
    name = path.name.lower().removesuffix(COMPRESSED)
    return next((format_ for ending, format_ in ENDINGS.items() if name.endswith(ending)), None)


def file_format(values: Mapping[str, Any], named: Path, files: Iterable[Path], shown: str) -> FileFormat:
    """The format of a source by its options, else by the endings of its files; MP508 if these differ."""
    given = values.get("format")
    name = _OTHER_NAMES.get(given or "", given) or ending_format(named)
    if name is None:
        endings = sorted({found for found in map(ending_format, files) if found})
        if len(endings) > 1:
            message = f"'{shown}' contains files of several formats: {', '.join(endings)}."
            hint = f"Choose one WITH ('format' = '{endings[0]}'), or use a pattern such as *.{endings[0]}."
            raise SourceError("MP508", message, hint=hint)
        if not endings:
            message = f"The format of '{shown}' cannot be determined from its name."
            raise SourceError("MP508", message, hint=f"Set it: WITH ('format' = '{' | '.join(FORMATS)}').")
        name = endings[0]
    return FileFormat(
        name=name,
        header=values.get("header", True),
        delimiter=spelled(values.get("delimiter") or ","),
        quote=spelled(values.get("quote") or ""),
        escape=spelled(values.get("escape") or values.get("quote") or ""),
        null=values.get("null"),
        encoding=values.get("encoding") or "utf-8",
    )


def spelled(text: str) -> str:
    """A character that may be written as an escape such as \\t."""
    return _SPELLED.get(text.lower(), text)


def check_header(names: Sequence[str], columns: Schema, path: Path, *, declared: bool = True) -> None:
    """MP503 if a declared column is not in a file, or twice. Of columns that were discovered in other files, some may
    be absent, but not all."""
    lowered = [name.lower() for name in names]
    absent = [c.name for c in columns if c.name.lower() not in lowered]
    if absent and (declared or len(absent) == len(columns)):
        columns_are = ", ".join(repr(name) for name in absent)
        message = f"'{path}' has no column {columns_are}."
        hint = f"Its columns are: {', '.join(names)}. Correct the declared columns"
        hint += "." if ending_format(path) == "parquet" else ", or write WITH ('header' = 'false')."
        raise SourceError("MP503", message, hint=hint)
    twice = [c.name for c in columns if lowered.count(c.name.lower()) > 1 and list(names).count(c.name) != 1]
    if twice:
        message = f"'{path}' has the column '{twice[0]}' twice."
        raise SourceError("MP503", message, hint="Name each column of the header once.")


def column_place(name: str, names: Sequence[str]) -> int | None:
    """The position of a column in a header: by its exact name, else without regard to case; None if it is absent."""
    if name in names:
        return names.index(name)
    lowered = [other.lower() for other in names]
    return lowered.index(name.lower()) if name.lower() in lowered else None
