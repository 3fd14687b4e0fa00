"""Which format a source's files have: the one told, the one of their endings, or the one they had before."""

from __future__ import annotations

from pathlib import Path

from millpond.contracts.source import SourceSpec
from millpond.sources.files.formats import FileFormat, ending_format, file_format
from millpond.sources.files.looking import Where

# The format of a folder that is empty and does not say: text, until its first file tells which.
UNTOLD = "text"


def form_of(spec: SourceSpec, where: Where, known: str | None = None) -> FileFormat:
    """The format of a source, UNTOLD where nothing tells it yet."""
    files = [Path(seen.path) for seen in where.look()]
    told = spec.values.get("format") or ending_format(where.path)
    if told or any(map(ending_format, files)):
        return file_format(spec.values, where.path, files, spec.shown)
    if files and known in (None, UNTOLD):
        return file_format(spec.values, where.path, files, spec.shown)
    return file_format({**spec.values, "format": known or UNTOLD}, where.path, [], spec.shown)
