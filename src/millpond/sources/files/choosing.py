"""Which contents a source's files have: text or Parquet."""

from __future__ import annotations

from millpond.contracts.source import SourceSpec
from millpond.errors import SourceError
from millpond.schema import Schema
from millpond.sources.files.contents import Contents, TextContents
from millpond.sources.files.looking import Where
from millpond.sources.files.parquet import ParquetContents
from millpond.sources.files.telling import UNTOLD, form_of


def contents_of(spec: SourceSpec, where: Where, known: str | None = None) -> Contents:
    """The contents of a source; `known` is the format it had before, which counts when its files are gone. A source
    whose columns nobody knows yet may be opened, to see whether it is there, but not read."""
    form, columns = form_of(spec, where, known), spec.columns or Schema(())
    kind = {"declared": spec.declared}
    return ParquetContents(columns, **kind) if form.name == "parquet" else TextContents(form, columns, **kind)


def settled(contents: Contents, spec: SourceSpec, where: Where) -> Contents:
    """The contents once there are files to tell their format by."""
    if contents.format != UNTOLD or not isinstance(contents, TextContents):
        return contents
    form = form_of(spec, where)
    if form.name == "parquet":
        message = f"The first file of '{spec.shown}' is Parquet, which could not be known at the start."
        raise SourceError("MP508", message, hint="Say it: WITH ('format' = 'parquet').")
    contents.form = form
    return contents
