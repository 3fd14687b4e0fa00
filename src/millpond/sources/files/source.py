"""The file source: CSV, JSON, JSON lines and Parquet; read as they grow as a stream, as a whole as a table.

Guarantee: exactly once. As a stream every record is read once, in the order of arrival; as a table the whole
content."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from pathlib import Path

from millpond.contracts.feeder import Feeder, Polled, RowForm, TableReader
from millpond.contracts.source import (
    BULK_LIMITS,
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    Found,
    Mode,
    Past,
    Patience,
    SourcePlugin,
    SourceSpec,
)
from millpond.options import BOOLEAN, DURATION, INTEGER, POSITIVE, TEXT, Beside, Option, choice
from millpond.sources.files.discovery import discover_columns
from millpond.sources.files.listing import is_pattern
from millpond.sources.records.formats import ending_format, spelled
from millpond.uris import Uri

CSV = (Beside("format", "csv"),)
CSV_OPTIONS = (
    Option(
        "header",
        BOOLEAN,
        "true",
        "Whether the first row of a CSV file names its columns; without, they are matched by position.",
        only_with=CSV,
    ),
    Option("delimiter", TEXT, ",", "The delimiter between the fields of a CSV row; \\t is a tab.", only_with=CSV),
    Option("quote", TEXT, '"', "The quote around a CSV field that contains delimiters or newlines.", only_with=CSV),
    Option(
        "escape",
        TEXT,
        None,
        "The escape before a quote inside a CSV field; by default the quote itself, doubled.",
        only_with=CSV,
    ),
    Option("null", TEXT, None, "A CSV field of this text is NULL, as an empty one is.", only_with=CSV),
)
OPTIONS = (
    Option(
        "format",
        choice("jsonl", "ndjson", "json", "csv", "parquet"),
        None,
        "The format of the files; by default it is determined by their names.",
    ),
    *CSV_OPTIONS,
    Option("encoding", TEXT, "utf-8", "The encoding of the text."),
    Option("sample.rows", INTEGER, "1000", "How many records are read to discover columns that are not declared."),
    Option("watch", BOOLEAN, "false", "Whether a table follows its files while the app runs; a stream always does."),
    Option("watch.interval", DURATION, "100ms", "How often to check files for changes."),
    Option(
        "watch.debounce", DURATION, "500ms", "How long a rewritten file must remain unchanged before it is read again."
    ),
    Option("file.wait.timeout", DURATION, "0s", "How long to wait for missing files."),
    Option("file.retry.interval", DURATION, "2s", "How often to check for missing files."),
    Option("file.create.empty", BOOLEAN, "false", "Whether to create a missing file or folder, empty."),
    Option("max.rows.per.batch", POSITIVE, "1000000", "The most rows that one batch takes."),
    *BULK_LIMITS,
)


def open_feeder(spec: SourceSpec) -> Feeder:
    from millpond.sources.files.feeder import FileFeeder

    return FileFeeder(spec)


def open_table(spec: SourceSpec) -> TableReader:
    from millpond.sources.files.table import FileTable

    return FileTable(spec)


def past(wanted: Past) -> tuple[RowForm, Iterable[Polled]]:
    from millpond.sources.files.past_files import read_past

    return read_past(wanted)


def validate(spec: SourceSpec) -> str | None:
    """The error of a URI or its options, as a sentence, or None."""
    if not spec.uri.path:
        return "A file URI needs a path, such as file://./in.csv."
    if spec.uri.params:
        return f"A file URI has no parameter '{spec.uri.params[0][0]}'; options are written in WITH (...)."
    if spec.values.get("file.create.empty") and is_pattern(spec.uri.path):
        return "'file.create.empty' requires the name of one file or folder, not a pattern."
    return wrong_text_options(spec)


def wrong_text_options(spec: SourceSpec) -> str | None:
    """The error of the encoding or of the characters of a CSV format, as a sentence, or None."""
    encoding = spec.values.get("encoding") or "utf-8"
    try:
        codecs.lookup(encoding)
    except LookupError:
        return f"There is no encoding '{encoding}'."
    for name, least in (("delimiter", 1), ("quote", 0), ("escape", 0)):
        text = spec.values.get(name)
        if text is not None and not least <= len(spelled(text)) <= 1:
            return f"'{name}' must be one character, not '{text}'."
    return None


def implied(uri: Uri) -> dict[str, str]:
    """The format that the ending of a file, or of a pattern, names."""
    found = ending_format(Path(uri.path))
    return {} if found is None else {"format": found}


def patience(spec: SourceSpec) -> Patience:
    from millpond.sources.files import listing

    return listing.patience(spec)


def discover(spec: SourceSpec) -> Found:
    return discover_columns(spec)


PLUGIN = SourcePlugin(
    name="file",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.SNAPSHOT,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET),
    local=True,
    discover=discover,
    open_feeder=open_feeder,
    open_table=open_table,
    watched=lambda values: bool(values["watch"]),
    past=past,
    pace=("watch.interval", "watch.debounce", "file.*", "bulk.*", "sample.rows", "max.rows.per.batch"),
    patience=patience,
    validate=validate,
    implied=implied,
)
