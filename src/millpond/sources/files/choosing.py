"""Which contents a source's files have: the format told, the one of the endings, or the one it had before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from millpond.contracts.source import SourceSpec
from millpond.errors import SourceError
from millpond.sources.files.contents import Contents, TextContents
from millpond.sources.files.formats import FileFormat, ending_format, file_format
from millpond.sources.files.looking import Where
from millpond.sources.files.parquet import ParquetContents

# The format of a folder that is empty and does not say: text, until its first file tells which.
UNTOLD = "text"


def contents_of(spec: SourceSpec, where: Where, known: str | None = None) -> Contents:
    """The contents of a source; `known` is the format it had before, which counts when its files are gone."""
    assert spec.columns is not None, "columns must be known before a source is opened"
    form = form_of(spec, where, known)
    return ParquetContents(spec.columns) if form.name == "parquet" else TextContents(form, spec.columns)


def form_of(spec: SourceSpec, where: Where, known: str | None = None) -> FileFormat:
    """The format of a source, UNTOLD where nothing tells it yet."""
    files = [Path(seen.path) for seen in where.look()]
    told = spec.values.get("format") or ending_format(where.path)
    if told or any(map(ending_format, files)):
        return file_format(spec.values, where.path, files, spec.shown)
    if files and known in (None, UNTOLD):
        return file_format(spec.values, where.path, files, spec.shown)
    return file_format({**spec.values, "format": known or UNTOLD}, where.path, [], spec.shown)


def settled(contents: Contents, spec: SourceSpec, where: Where) -> Contents:
    """The contents once there are files to tell their format by."""
    if contents.format != UNTOLD or not isinstance(contents, TextContents):
        return contents
    form = form_of(spec, where)
    if form.name == "parquet":
        message = f"The first file of '{spec.shown}' is Parquet, which could not be known at the start."
        raise SourceError("MP508", message, hint="Say it: WITH ('format' = 'parquet').")
    contents.form = replace(form)
    return contents
