"""Sources whose options are checked but that are not implemented yet: databases."""

from __future__ import annotations

from millpond.contracts.source import Mode, SourcePlugin
from millpond.options import BOOLEAN, DURATION, INTEGER, NAMES, POSITIVE, TEXT, Option, choice

CONNECTION = (
    Option("driver", TEXT, None, "The driver that connects to the database."),
    Option("host", TEXT, None, "The database's host."),
    Option("port", INTEGER, None, "The database's port."),
    Option("database", TEXT, None, "The database on that host."),
    Option("username", TEXT, None, "Who logs in."),
    Option("password", TEXT, None, "The password of the user.", secret=True),
    Option("ssl.mode", choice("disable", "prefer", "require", "verify-ca", "verify-full"), None, "How TLS is used."),
    Option("connect.timeout", DURATION, "10s", "How long to wait for a connection."),
    Option("socket.timeout", DURATION, None, "How long to wait for an answer on a connection."),
    Option("query.timeout", DURATION, None, "How long a query may take."),
    Option("pool.size", INTEGER, "4", "How many connections are kept open."),
    Option("pool.max.idle", DURATION, "10m", "How long a connection may be idle."),
    Option("pool.validation.query", TEXT, None, "A query that verifies that a connection still works."),
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
    Option("incremental.column", TEXT, None, "A column that only grows, by which new rows are recognized."),
    Option("batch.size", INTEGER, "10000", "Rows that are processed together."),
    Option("fetch.size", INTEGER, "10000", "Rows fetched in one round trip."),
    Option("prefetch.count", INTEGER, "1", "Fetches made ahead."),
    Option("parallel.readers", INTEGER, "1", "How many connections read one table."),
    Option("max.rows.per.batch", POSITIVE, "1000000", "The maximal number of rows of a batch."),
    Option("bulk.max.rows", INTEGER, None, "The most rows that loading may take."),
    Option("bulk.timeout", DURATION, None, "The longest that loading may take."),
    Option("key", NAMES, None, "The column(s) that identify a row."),
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

CLICKHOUSE = SourcePlugin(
    name="clickhouse",
    options=(
        *DATABASE,
        Option("protocol", choice("http", "native"), "http", "Which of ClickHouse's protocols is used."),
        Option("compression", BOOLEAN, "true", "Whether answers are compressed."),
    ),
    stream_mode=Mode.SNAPSHOT,
    table_mode=Mode.SNAPSHOT,
    runnable=False,
    parameters={**PARAMETERS, "protocol": "protocol"},
)
