"""File formats: which one a file has, and how its text is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.errors import SourceError

# The ending of a file name says its format; each ending may be followed by .gz.
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
FORMATS = ("jsonl", "json", "csv", "parquet")
COMPRESSED = ".gz"

# Two names of one format.
_OTHER_NAMES = {"ndjson": "jsonl"}
# A tab or newline cannot be typed into SQL text, so their usual spellings are understood.
_SPELLED = {"\\t": "\t", "\\n": "\n", "\\\\": "\\", "tab": "\t"}


@dataclass(frozen=True)
class FileFormat:
    """How the records of a source's files are written; all but `name` is about text."""

    name: str
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str | None = None
    encoding: str = "utf-8"

    @property
    def whole(self) -> bool:
        """Whether a file only makes sense as a whole, so that one that changed is read again."""
        return self.name == "parquet" or not self.byte_wise

    @property
    def byte_wise(self) -> bool:
        """Whether a newline is one byte that means nothing else, so that a file can be cut without decoding it."""
        return not self.encoding.replace("_", "-").lower().startswith(("utf-16", "utf-32", "utf16", "utf32"))

    def encoded(self, text: str) -> bytes:
        """A delimiter or quote as it stands in the bytes that are split."""
        return text.encode(self.encoding if self.byte_wise else "utf-8", "ignore")

    @property
    def is_utf8(self) -> bool:
        return self.encoding.replace("_", "-").lower() in ("utf-8", "utf8", "utf-8-sig", "ascii", "us-ascii")


def is_compressed(path: Path) -> bool:
    return path.name.lower().endswith(COMPRESSED)


def ending_format(path: Path) -> str | None:
    """The format that a file name's ending says, or None."""
    name = path.name.lower().removesuffix(COMPRESSED)
    return next((format_ for ending, format_ in ENDINGS.items() if name.endswith(ending)), None)


def file_format(values: Mapping[str, Any], named: Path, files: Iterable[Path], shown: str) -> FileFormat:
    """The format of a source: as its options say, else as the endings of its files agree; MP508 when they do not."""
    told = values.get("format")
    name = _OTHER_NAMES.get(told or "", told) or ending_format(named)
    if name is None:
        endings = sorted({found for found in map(ending_format, files) if found})
        if len(endings) > 1:
            message = f"'{shown}' holds files of several formats: {', '.join(endings)}."
            hint = f"Say which to read, WITH ('format' = '{endings[0]}'), or name a pattern such as *.{endings[0]}."
            raise SourceError("MP508", message, hint=hint)
        if not endings:
            message = f"The format of '{shown}' cannot be told from its name."
            raise SourceError("MP508", message, hint=f"Say it: WITH ('format' = '{' | '.join(FORMATS)}').")
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
    """A character that may be written by its usual name."""
    return _SPELLED.get(text.lower(), text)
