"""The HTTP source: the response of a server to GET, as a table that is compared, or as a stream of new records.

Guarantee: exactly once for the content of responses. A table is equal to the last complete response; a stream has each
record that was not in the previous one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from millpond.contracts.feeder import Feeder, TableReader
from millpond.contracts.source import (
    BULK_LIMITS,
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    Found,
    Mode,
    Patience,
    SourcePlugin,
    SourceSpec,
)
from millpond.errors import SourceError
from millpond.options import (
    DURATION,
    FILE,
    INTERVAL,
    MULTIPLIER,
    NAMES,
    POSITIVE,
    SIZE,
    SPAN,
    TEXT,
    Beside,
    Option,
    choice,
)
from millpond.sources.files.source import CSV_OPTIONS, wrong_text_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADER = "http.header."
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


JSON = (Beside("format", "json"),)

OPTIONS = (
    Option(
        "format",
        choice("json", "jsonl", "csv"),
        None,
        "The format of the answer; by default by the ending of the path, else by its Content-Type, else json.",
    ),
    *CSV_OPTIONS,
    Option("encoding", TEXT, None, "The encoding of the text; by default that of the response, else UTF-8."),
    Option("rows", TEXT, None, "The path of the list of rows in a JSON answer, such as data.rates.", only_with=JSON),
    Option("key", NAMES, None, "For a stream: a record is new if its values in these columns did not occur before."),
    Option("poll.interval", INTERVAL, "30s", "How often to request again; never: only at each start."),
    Option("http.header.*", TEXT, None, "A header to send, such as http.header.Authorization.", secret=True),
    Option("http.timeout", SPAN, "30s", "How long to wait for a connection, and for each part of an answer."),
    Option("http.ca", FILE, None, "The file with the certificates by which that of the server is verified."),
    Option("http.proxy", TEXT, None, "The proxy to use; by default that of the environment.", secret=True),
    Option(
        "http.redirect.to", NAMES, None, "Other hosts, such as https://cdn.example.com, to which redirects may lead."
    ),
    Option(
        "http.page",
        choice("none", "link", "next", "number"),
        "none",
        "How pages follow each other: by the Link header, by a value of the body, or by number.",
    ),
    Option(
        "http.page.next",
        TEXT,
        None,
        "The path of the address of the next page in the body, or of the value of 'http.page.parameter'.",
        only_with=(Beside("http.page", "next"),),
    ),
    Option(
        "http.page.parameter",
        TEXT,
        None,
        "The parameter of the address that is set to that value, or to the number of the page.",
        only_with=(Beside("http.page", "next"), Beside("http.page", "number")),
    ),
    Option("http.page.max", POSITIVE, "1000", "The most pages of one answer; more are an error."),
    Option("max.bytes", SIZE, "100MB", "The largest body of a page, decompressed; a larger one is an error."),
    Option("connect.wait.timeout", DURATION, "0s", "How long to wait at the start for a server that does not respond."),
    Option("retry.interval", SPAN, "2s", "How long to wait before the first retry."),
    Option("retry.multiplier", MULTIPLIER, "1.5", "The factor by which the wait grows with each retry."),
    Option("retry.max.delay", SPAN, "120s", "The longest wait between two retries."),
    Option("sample.rows", POSITIVE, "1000", "Records that are read to discover the columns."),
    Option("max.rows.per.batch", POSITIVE, "1000000", "The maximal number of rows of a batch."),
    *BULK_LIMITS,
)


def validate(spec: SourceSpec) -> str | None:
    """The error of a URI or its options as a sentence, or None."""
    try:
        parts = urlsplit(spec.uri.text)
        sound = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        return "An HTTP URI requires a host, such as https://api.example.com/v1/rates."
    if spec.values["http.page"] == "next" and not spec.values["http.page.next"]:
        return "'http.page' = 'next' requires 'http.page.next', the path of the next address in the body."
    if spec.values["http.ca"] and not (spec.base / spec.values["http.ca"]).is_file():
        return f"There is no file '{spec.base / spec.values['http.ca']}' with certificates."
    return _wrong_key(spec) or _wrong_headers(spec) or wrong_text_options(spec)


def _wrong_key(spec: SourceSpec) -> str | None:
    if spec.columns is None:
        return None
    known = {name.lower() for name in spec.columns.names}
    wrong = [name for name in spec.values["key"] or () if name.lower() not in known]
    return f"There is no column '{wrong[0]}', which 'key' names." if wrong else None


def _wrong_headers(spec: SourceSpec) -> str | None:
    for name, value in spec.values.items():
        if not name.startswith(HEADER):
            continue
        if not HEADER_NAME.fullmatch(name.removeprefix(HEADER)):
            return f"'{name.removeprefix(HEADER)}' is not the name of a header."
        if not HEADER_VALUE.fullmatch(value):
            return f"The value of '{name}' contains characters that a header cannot have."
    return None


def open_feeder(spec: SourceSpec) -> Feeder:
    from millpond.sources.http.feeder import HttpFeeder

    wrong = _wrong_key(spec)
    if wrong is not None:
        # The columns were discovered, so that it was not an error of the text.
        raise SourceError("MP508", wrong, hint=f"Columns: {', '.join(spec.columns.names) if spec.columns else ''}.")
    return HttpFeeder(spec)


def open_table(spec: SourceSpec) -> TableReader:
    from millpond.sources.http.table import HttpTable

    return HttpTable(spec)


def sample(spec: SourceSpec, spark: Callable[[], SparkSession]) -> Found:
    from millpond.sources.http.page_records import discovered

    return discovered(spec)


PLUGIN = SourcePlugin(
    name="http",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.SNAPSHOT,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET),
    sends_parameters=True,
    sample=sample,
    open_feeder=open_feeder,
    open_table=open_table,
    watched=lambda values: values["poll.interval"] is not None,
    patience=Patience.with_a_server,
    validate=validate,
    pace=(
        "poll.interval",
        "http.timeout",
        "http.ca",
        "http.redirect.to",
        "http.page.max",
        "max.bytes",
        "connect.*",
        "retry.*",
        "bulk.*",
        "sample.rows",
        "max.rows.per.batch",
    ),
)
