"""The options of databases, each declared once."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millpond.contracts.source import BULK_LIMITS
from millpond.options import (
    BOOLEAN,
    DURATION,
    INTEGER,
    INTERVAL,
    MULTIPLIER,
    NAMES,
    POSITIVE,
    SPAN,
    TEXT,
    Beside,
    Kind,
    Option,
    choice,
    whole,
)

# What the URI may give by its parameters: parameter -> option.
PARAMETERS = {"table": "table", "schema": "schema", "where": "where", "query": "query"}
# Where the server is and who logs in: in the URI, in WITH, or under a named connection.
PLACE = ("host", "port", "database", "username", "password")


def _zone(text: str) -> str:
    try:
        return ZoneInfo(text.strip()).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(text) from error


ZONE = Kind("zone", "a time zone such as UTC or Europe/Berlin", _zone)
WORD = Kind("text", "a text", lambda text: text.strip().lower())
PORT = whole(1, 65_535, "a port, 1 to 65535")
ISOLATION = choice("read committed", "repeatable read", "serializable")
TLS = choice("disable", "prefer", "require", "verify-ca", "verify-full")

CONNECTION = (
    Option("host", TEXT, None, "The host of the database."),
    Option("port", PORT, None, "The port of the database; by default that of its kind."),
    Option("database", TEXT, None, "The database on that host."),
    Option("username", TEXT, None, "The user that logs in."),
    Option("password", TEXT, None, "The password of that user.", secret=True),
    Option(
        "ssl.mode", TLS, "prefer", "Whether the connection is encrypted, and how the server's certificate is verified."
    ),
    Option("ssl.root.cert", TEXT, None, "The file with the certificates by which the server's is verified."),
    Option("ssl.cert", TEXT, None, "The file with the certificate of the client."),
    Option("ssl.key", TEXT, None, "The file with the key of that certificate."),
    Option("connect.timeout", SPAN, "10s", "How long to wait for a connection."),
    Option("socket.timeout", SPAN, None, "How long to wait for a response of the server."),
    Option("query.timeout", SPAN, None, "How long a query may take."),
    Option(
        "pool.size",
        POSITIVE,
        None,
        "The most connections that are open at a time; by default 4, or what 'parallel.readers' needs.",
    ),
    Option("pool.max.idle", SPAN, "10m", "How long an unused connection stays open."),
    Option("pool.validation.query", TEXT, None, "A query that is sent to a connection before it is used again."),
    Option("connect.wait.timeout", DURATION, "0s", "How long to wait at the start for a server that does not respond."),
    Option("retry.interval", SPAN, "2s", "How long to wait before the first retry."),
    Option("retry.multiplier", MULTIPLIER, "1.5", "The factor by which the wait grows with each retry."),
    Option("retry.max.delay", SPAN, "120s", "The longest wait between two retries."),
)


def loaded(name: str, kind: Kind, default: str | None, help_: str) -> Option:
    """An option that applies to tables that are loaded."""
    return Option(name, kind, default, help_, only_with=(Beside("load", "full"),))


def looked_up(name: str, kind: Kind, default: str | None, help_: str) -> Option:
    """An option that applies to tables whose rows are looked up."""
    return Option(name, kind, default, help_, only_with=(Beside("load", "lookup"),))


READING = (
    Option("table", TEXT, None, "The table or view to read."),
    Option("schema", TEXT, None, "The schema of the table."),
    Option("where", TEXT, None, "A condition on the rows to read, in the SQL of the database."),
    Option("query", TEXT, None, "A query to read in place of a table."),
    Option("query.params", TEXT, None, "The values of the query's `?`: one value, or a JSON list."),
    loaded("order.by", TEXT, None, "The order in which rows are read, in the SQL of the database."),
    loaded("limit", INTEGER, None, "The most rows to read."),
    Option("key", NAMES, None, "The column(s) by which rows are identified; by default the primary key."),
    loaded("poll.interval", INTERVAL, "30s", "How often to read again; never: only at each start."),
    loaded("poll.query", TEXT, None, "A query for new rows, with one `?` for the last value of 'incremental.column'."),
    loaded(
        "incremental.column", TEXT, None, "A column that only grows: only rows at or above its last value are read."
    ),
    Option("batch.size", POSITIVE, None, "The most rows of one commit while a table is loaded."),
    Option("fetch.size", POSITIVE, "50000", "Rows that are read from the server at a time."),
    loaded("prefetch.count", INTEGER, "2", "How many such parts are read ahead."),
    loaded("parallel.readers", POSITIVE, "1", "How many connections read a table, each a range of its key."),
    Option("transaction.isolation", ISOLATION, "repeatable read", "The isolation in which a load reads."),
    Option("time.zone", ZONE, "UTC", "The zone of timestamps that have none."),
    Option("max.rows.per.batch", POSITIVE, "1000000", "The most rows that one batch of a stream takes."),
    *BULK_LIMITS,
)

# How rows are had: loaded and stored here, or looked up by key.
LOOKUP = (
    Option(
        "load", choice("full", "lookup"), "full", "Whether the rows are loaded, or looked up by key for each batch."
    ),
    looked_up("cache.max_size", INTEGER, "10000", "The most keys whose rows are cached; 0: none."),
    looked_up("cache.ttl", SPAN, "1m", "How long a row that was looked up is cached."),
    looked_up("cache.negative.ttl", SPAN, "10s", "How long it is cached that there is no row of a key."),
)


def captured(name: str, kind: Kind, default: str | None, help_: str) -> Option:
    """An option that applies to captured changes only."""
    return Option(name, kind, default, help_, only_with=(Beside("cdc"),))


CAPTURE = (
    Option("cdc", BOOLEAN, "false", "Whether every change is captured as it happens."),
    captured("cdc.start", WORD, "initial", "Where capture starts: initial (after a snapshot), latest, or a position."),
    captured("cdc.format", choice("native", "debezium"), "native", "The columns of a stream of changes."),
    captured(
        "cdc.lost",
        choice("resnapshot", "fail"),
        "resnapshot",
        "What happens when the server no longer has the changes.",
    ),
    captured("cdc.fallback", choice("fail", "poll"), "fail", "What happens when changes cannot be captured."),
    captured(
        "initial.load",
        choice("full", "none"),
        None,
        "Whether the rows are loaded before their changes; by default full if 'cdc.start' is initial, else none.",
    ),
)

# How a sink connects and writes; the flow that writes tries again as its source is set.
WRITING = (
    *(option for option in CONNECTION if not option.name.startswith(("pool.", "retry.", "connect.wait"))),
    Option("table", TEXT, None, "The table to write."),
    Option("schema", TEXT, None, "The schema of the table."),
    Option("key", NAMES, None, "The column(s) by which rows are upserted; by default the primary key of the table."),
    Option("create", BOOLEAN, "false", "Whether a table that is missing is created."),
    Option("batch.size", POSITIVE, "50000", "The most rows that are sent at a time."),
)

# Options that determine when and how fast rows are read, and what happens if they cannot be, not which.
PACE = (
    "cdc.lost",
    "cdc.fallback",
    "ssl.*",
    "connect.*",
    "socket.timeout",
    "query.timeout",
    "pool.*",
    "retry.*",
    "poll.interval",
    "cache.*",
    "batch.size",
    "fetch.size",
    "prefetch.count",
    "parallel.readers",
    "transaction.isolation",
    "max.rows.per.batch",
    "bulk.*",
)
