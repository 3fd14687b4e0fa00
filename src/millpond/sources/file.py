"""Files: CSV, JSON, JSON lines and Parquet; followed as a stream, read whole as a table.

Guarantee: exactly once. As a stream every record is read once, in the order of arrival; as a table the whole content.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from millpond.contracts.source import (
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    Found,
    Mode,
    Past,
    Patience,
    SourcePlugin,
    SourceSpec,
    StreamReader,
    TableReader,
)
from millpond.options import BOOLEAN, DURATION, INTEGER, TEXT, Beside, Option, choice
from millpond.sources.files.discovery import discover_columns
from millpond.sources.files.formats import ending_format, spelled
from millpond.sources.files.looking import is_pattern
from millpond.sources.limits import OPTIONS as BULK_LIMITS
from millpond.uris import Uri

CSV = (Beside("format", "csv"),)
OPTIONS = (
    Option(
        "format",
        choice("jsonl", "ndjson", "json", "csv", "parquet"),
        None,
        "How the files are written; by default their ending says it.",
    ),
    Option(
        "header",
        BOOLEAN,
        "true",
        "Whether the first row of a CSV file names its columns; without, they are matched by position.",
        only_with=CSV,
    ),
    Option("delimiter", TEXT, ",", "What stands between the fields of a CSV row; \\t is a tab.", only_with=CSV),
    Option("quote", TEXT, '"', "What stands around a CSV field that holds delimiters or newlines.", only_with=CSV),
    Option(
        "escape",
        TEXT,
        None,
        "What stands before a quote inside a CSV field; by default the quote itself, doubled.",
        only_with=CSV,
    ),
    Option("null", TEXT, None, "A CSV field of this text is NULL, as an empty one is.", only_with=CSV),
    Option("encoding", TEXT, "utf-8", "The encoding of the text."),
    Option("sample.rows", INTEGER, "1000", "How many records are looked at to find the columns that are not declared."),
    Option("watch", BOOLEAN, "false", "Whether a table follows its files while the app runs; a stream always does."),
    Option("watch.interval", DURATION, "100ms", "How often files are looked at."),
    Option("watch.debounce", DURATION, "500ms", "How long a rewritten file must be still before it is read again."),
    Option("file.wait.timeout", DURATION, "0s", "How long to wait for files that are not there."),
    Option("file.retry.interval", DURATION, "2s", "How often to look for files that are not there."),
    Option("file.create.empty", BOOLEAN, "false", "Whether to make an empty file or folder when there is none."),
    Option("max.rows.per.batch", INTEGER, "1000000", "The most rows that one batch takes."),
    *BULK_LIMITS,
)


def open_stream(spec: SourceSpec, folder: Path) -> StreamReader:
    from millpond.sources.files.following import FileStream

    return FileStream(spec, folder)


def open_table(spec: SourceSpec, folder: Path) -> TableReader:
    from millpond.sources.files.loading import FileTable

    return FileTable(spec, folder)


def past(wanted: Past) -> Iterator[pa.Table]:
    from millpond.sources.files.past import read_past

    return read_past(wanted)


def validate(spec: SourceSpec) -> str | None:
    """What is wrong with a URI or its options, as a sentence."""
    if not spec.uri.path:
        return "A file URI needs a path, such as file://./in.csv."
    if spec.uri.params:
        return f"A file URI has no parameter '{spec.uri.params[0][0]}'; options are written in WITH (...)."
    encoding = spec.values.get("encoding") or "utf-8"
    try:
        codecs.lookup(encoding)
    except LookupError:
        return f"There is no encoding '{encoding}'."
    if spec.values.get("file.create.empty") and is_pattern(spec.uri.path):
        return "'file.create.empty' makes one file or folder; a pattern does not say which."
    return _wrong_characters(spec)


def _wrong_characters(spec: SourceSpec) -> str | None:
    """What is wrong with the characters that CSV is written with."""
    for name, least in (("delimiter", 1), ("quote", 0), ("escape", 0)):
        text = spec.values.get(name)
        if text is not None and not least <= len(spelled(text)) <= 1:
            return f"'{name}' must be one character, not '{text}'."
    return None


def implied(uri: Uri) -> dict[str, str]:
    """The format that the ending of a file, or of a pattern of files, names."""
    found = ending_format(Path(uri.path))
    return {} if found is None else {"format": found}


def patience(spec: SourceSpec) -> Patience:
    from millpond.sources.files import looking

    return looking.patience(spec)


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
    open_stream=open_stream,
    open_table=open_table,
    past=past,
    pace=("watch.interval", "watch.debounce", "file.*", "bulk.*", "sample.rows", "max.rows.per.batch"),
    patience=patience,
    validate=validate,
    implied=implied,
)
