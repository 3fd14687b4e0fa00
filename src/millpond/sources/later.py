"""Sources that are understood and checked, and will be read later: databases, HTTP and S3."""

from __future__ import annotations

from millpond.contracts.source import Mode, SourcePlugin
from millpond.options import BOOLEAN, DURATION, INTEGER, NAMES, TEXT, Option, choice
from millpond.sources.file import OPTIONS as FILE_OPTIONS

CONNECTION = (
    Option("driver", TEXT, None, "The driver that speaks to the database."),
    Option("host", TEXT, None, "The database's host."),
    Option("port", INTEGER, None, "The database's port."),
    Option("database", TEXT, None, "The database on that host."),
    Option("username", TEXT, None, "Who logs in."),
    Option("password", TEXT, None, "The password of who logs in.", secret=True),
    Option("ssl.mode", choice("disable", "prefer", "require", "verify-ca", "verify-full"), None, "How TLS is used."),
    Option("connect.timeout", DURATION, "10s", "How long to wait for a connection."),
    Option("socket.timeout", DURATION, None, "How long to wait for an answer on a connection."),
    Option("query.timeout", DURATION, None, "How long a query may take."),
    Option("pool.size", INTEGER, "4", "How many connections are kept open."),
    Option("pool.max.idle", DURATION, "10m", "How long a connection may lie idle."),
    Option("pool.validation.query", TEXT, None, "A query that shows that a connection still works."),
    Option("transaction.isolation", TEXT, None, "The isolation in which the database is read."),
    Option("character.set", TEXT, None, "The character set of the connection."),
    Option("time.zone", TEXT, "UTC", "The zone of times that have none."),
)

READING = (
    Option("table", TEXT, None, "The table or view to read."),
    Option("schema", TEXT, None, "The schema that the table is in."),
    Option("where", TEXT, None, "A condition on the rows to read."),
    Option("query", TEXT, None, "A query to read in place of a table."),
    Option("query.params", TEXT, None, "The parameters of the query."),
    Option("order.by", TEXT, None, "The order in which rows are read."),
    Option("limit", INTEGER, None, "The most rows to read."),
    Option("poll.interval", DURATION, "30s", "How often to ask for new rows."),
    Option("poll.query", TEXT, None, "The query that asks for new rows."),
    Option("incremental.column", TEXT, None, "A column that only grows, by which new rows are known."),
    Option("batch.size", INTEGER, "10000", "Rows that are handed on together."),
    Option("fetch.size", INTEGER, "10000", "Rows fetched in one round trip."),
    Option("prefetch.count", INTEGER, "1", "Fetches made ahead."),
    Option("parallel.readers", INTEGER, "1", "How many connections read one table."),
    Option("max.rows.per.batch", INTEGER, "1000000", "The most rows that one batch takes."),
    Option("bulk.max.rows", INTEGER, None, "The most rows that loading may take."),
    Option("bulk.timeout", DURATION, None, "The longest that loading may take."),
    Option("key", NAMES, None, "The column(s) that tell one row from another."),
)

CAPTURE = (
    Option("cdc", BOOLEAN, "false", "Whether changes are captured as they happen."),
    Option("cdc.start", TEXT, None, "Where capturing starts."),
    Option("cdc.format", choice("native", "debezium"), "native", "How captured changes are written."),
    Option("initial.load", BOOLEAN, "true", "Whether the whole content is read before its changes."),
)

DATABASE = (*CONNECTION, *READING)
# Options that the URI's own parameters may give.
PARAMETERS = {"table": "table", "schema": "schema", "where": "where", "query": "query"}

POSTGRESQL = SourcePlugin(
    name="postgresql",
    options=(*DATABASE, *CAPTURE, Option("slot.name", TEXT, None, "The replication slot that changes come from.")),
    stream_mode=Mode.CHANGES,
    table_mode=Mode.CHANGES,
    runnable=False,
    parameters=PARAMETERS,
)

MYSQL = SourcePlugin(
    name="mysql",
    options=(
        *DATABASE,
        *CAPTURE,
        Option("binlog.file", TEXT, None, "The binlog file in which capturing starts."),
        Option("binlog.position", INTEGER, None, "Where in that file capturing starts."),
    ),
    stream_mode=Mode.CHANGES,
    table_mode=Mode.CHANGES,
    runnable=False,
    parameters=PARAMETERS,
)

CLICKHOUSE = SourcePlugin(
    name="clickhouse",
    options=(
        *DATABASE,
        Option("protocol", choice("http", "native"), "http", "Which of ClickHouse's protocols is spoken."),
        Option("compression", BOOLEAN, "true", "Whether answers are compressed."),
    ),
    stream_mode=Mode.SNAPSHOT,
    table_mode=Mode.SNAPSHOT,
    runnable=False,
    parameters={**PARAMETERS, "protocol": "protocol"},
)

SQL = SourcePlugin(
    name="sql",
    options=DATABASE,
    stream_mode=Mode.SNAPSHOT,
    table_mode=Mode.SNAPSHOT,
    runnable=False,
    parameters=PARAMETERS,
)

HTTP = SourcePlugin(
    name="http",
    options=(
        Option(
            "format", choice("json", "jsonl", "csv"), None, "How the answer is written; by default it says so itself."
        ),
        Option("poll.interval", DURATION, "30s", "How often to ask again."),
        Option("connect.timeout", DURATION, "10s", "How long to wait for a connection."),
        Option("socket.timeout", DURATION, "30s", "How long to wait for an answer."),
        Option("auth.header", TEXT, None, "The Authorization header to send.", secret=True),
        Option("header.*", TEXT, None, "A header to send.", secret=True),
        Option("records", TEXT, None, "Where in a JSON answer the records are."),
        Option("page.parameter", TEXT, None, "The parameter that numbers pages."),
        Option("page.next", TEXT, None, "Where in a JSON answer the next page's address is."),
        Option("webhook", BOOLEAN, "false", "Whether records are pushed to this app instead of asked for."),
        Option("key", NAMES, None, "The column(s) that tell one record from another."),
        Option("sample.rows", INTEGER, "1000", "How many records are looked at to find columns that are not declared."),
        Option("max.rows.per.batch", INTEGER, "1000000", "The most rows that one batch takes."),
    ),
    stream_mode=Mode.APPEND,
    table_mode=Mode.SNAPSHOT,
    runnable=False,
)

_LOCAL_ONLY = ("file.wait.timeout", "file.retry.interval", "file.create.empty")

S3 = SourcePlugin(
    name="s3",
    options=(
        *(option for option in FILE_OPTIONS if option.name not in _LOCAL_ONLY),
        Option("region", TEXT, None, "The region of the bucket."),
        Option("endpoint", TEXT, None, "The address of a server that speaks S3."),
        Option("access.key", TEXT, None, "The access key.", secret=True),
        Option("secret.key", TEXT, None, "The secret key.", secret=True),
        Option("poll.interval", DURATION, "30s", "How often to list the bucket."),
        Option("notifications", TEXT, None, "The queue that announces new objects."),
    ),
    stream_mode=Mode.APPEND,
    table_mode=Mode.SNAPSHOT,
    runnable=False,
)
