"""The names that a file gives its columns, beside the declared ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millpond.errors import SourceError
from millpond.schema import Schema
from millpond.sources.files.formats import ending_format


def check_header(names: Sequence[str], columns: Schema, path: Path, *, declared: bool = True) -> None:
    """MP503 when a declared column is not in a file, or is there twice. Of columns that were found in other files some
    may be absent, but not all."""
    lowered = [name.lower() for name in names]
    absent = [c.name for c in columns if c.name.lower() not in lowered]
    if absent and (declared or len(absent) == len(columns)):
        columns_are = ", ".join(repr(name) for name in absent)
        message = f"'{path}' has no column {columns_are}."
        hint = f"It has: {', '.join(names)}. Correct the declared columns"
        hint += "." if ending_format(path) == "parquet" else ", or write WITH ('header' = 'false')."
        raise SourceError("MP503", message, hint=hint)
    twice = [c.name for c in columns if lowered.count(c.name.lower()) > 1 and list(names).count(c.name) != 1]
    if twice:
        message = f"'{path}' has the column '{twice[0]}' twice."
        raise SourceError("MP503", message, hint="Name each column of the header once.")


def column_place(name: str, names: Sequence[str]) -> int | None:
    """Where a column stands in a header: by its exact name, else without regard to case; None when it is absent."""
    if name in names:
        return names.index(name)
    lowered = [other.lower() for other in names]
    return lowered.index(name.lower()) if name.lower() in lowered else None
