"""MariaDB measured: a table loaded and its changes followed, beside the plain client library in the same run.

Used by bench/databases.py.
"""

from __future__ import annotations

import time

import pyarrow as pa
from database_apps import changes_s, loaded_s
from tests.databases.servers import Database, MariaDB

from millpond.sources.databases.mysql.changes import MysqlChanges

FETCHED = 50_000
TABLE = (
    "CREATE TABLE trades (id BIGINT PRIMARY KEY, symbol VARCHAR(12), price DECIMAL(18, 6), quantity INT, side CHAR(1),"
    " fee DECIMAL(12, 4), at DATETIME(6), note VARCHAR(40))"
)
FILL = (
    "INSERT INTO trades SELECT seq, concat('S', seq % 5000), seq / 7, seq % 1000, if(seq % 2, 'B', 'S'), seq / 900,"
    " '2024-01-01' + INTERVAL seq SECOND, concat('note ', seq) FROM seq_1_to_{}"
)
TYPES = (
    *(pa.int64(), pa.string(), pa.decimal128(18, 6), pa.int32(), pa.string(), pa.decimal128(12, 4)),
    *(pa.timestamp("us"), pa.string()),
)


def mysql_figures(rows: int) -> dict[str, float]:
    """A ratio is a rate of Millpond over that of the client alone."""
    server = MariaDB()
    try:
        server.start()
        database = server.database()
        fill = FILL.format(rows)
        database.execute(TABLE, fill)
        plain_s, taken_s = _plain_s(database), loaded_s(database)
        changed_s, decoded_s, delay_ms = changes_s(database, fill, rows, MysqlChanges)
        return {
            "mysql_plain_rows_s": rows / plain_s,
            "mysql_load_rows_s": rows / taken_s,
            "mysql_load_ratio": plain_s / taken_s,
            "mysql_cdc_rows_s": rows / changed_s,
            "mysql_decoded_rows_s": rows / decoded_s,
            "mysql_cdc_delay_ms": delay_ms,
        }
    finally:
        server.remove()


def _plain_s(database: Database) -> float:
    """The rows read by the client library and made into Arrow."""
    from pymysql.cursors import SSCursor

    connection = database.connect()
    started = time.perf_counter()
    with connection.cursor(SSCursor) as cursor:
        cursor.execute("SELECT * FROM trades")
        while rows := cursor.fetchmany(FETCHED):
            columns = zip(*rows, strict=True)
            _ = [pa.array(values, type_) for values, type_ in zip(columns, TYPES, strict=True)]
    seconds = time.perf_counter() - started
    connection.close()
    return seconds
