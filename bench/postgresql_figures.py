"""PostgreSQL measured: a table loaded, its changes followed, rows looked up and rows written, beside the plain clients
in the same run.

Used by bench/databases.py.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from database_apps import app_of, changes_s, loaded_s
from tests.databases.servers import PASSWORD, USER, Database, PostgreSQL

from millpond.sources.databases.postgresql.changes import PostgresChanges

EVENTS = 200_000
TABLE = (
    "CREATE TABLE trades (id BIGINT PRIMARY KEY, symbol TEXT, price NUMERIC(18, 6), quantity INT, side CHAR(1),"
    " fee NUMERIC(12, 4), at TIMESTAMP, note TEXT)"
)
FILL = (
    "INSERT INTO trades SELECT n, 'S' || n % 5000, n / 7.0, n % 1000, CASE n % 2 WHEN 1 THEN 'B' ELSE 'S' END,"
    " n / 900.0, TIMESTAMP '2024-01-01' + n * INTERVAL '1 second', 'note ' || n FROM generate_series(1, {}) AS n"
)
# Numbers as texts, which are exact in Arrow.
PLAIN = "SELECT id, symbol, price::text, quantity, side, fee::text, at, note FROM trades"
NUMBERS = {"price": pa.decimal128(18, 6), "fee": pa.decimal128(12, 4)}


def postgresql_figures(rows: int) -> dict[str, float]:
    """A ratio is a rate of Millpond over that of the client alone."""
    server = PostgreSQL()
    try:
        server.start()
        database = server.database()
        fill = FILL.format(rows)
        database.execute(TABLE, fill, "ANALYZE trades")
        plain_s, taken_s = _plain_s(database), loaded_s(database)
        found = {
            "pg_plain_rows_s": rows / plain_s,
            "pg_load_rows_s": rows / taken_s,
            "pg_load_ratio": plain_s / taken_s,
            **_lookups(database, rows),
            **_written(database, rows),
        }
        changed_s, decoded_s, delay_ms = changes_s(database, fill, rows, PostgresChanges)
        return {
            **found,
            "pg_cdc_rows_s": rows / changed_s,
            "pg_decoded_rows_s": rows / decoded_s,
            "cdc_delay_ms": delay_ms,
        }
    finally:
        server.remove()


def _plain_s(database: Database) -> float:
    """The rows read by ADBC, their numbers made exact."""
    from adbc_driver_postgresql import dbapi

    server = database.server
    place = f"host=127.0.0.1 port={server.port} dbname={database.name} user={USER} password={PASSWORD}"
    connection = dbapi.connect(place)
    started = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute(PLAIN)
        for batch in cursor.fetch_record_batch():
            _ = [batch.column(name).cast(type_) for name, type_ in NUMBERS.items()]
    seconds = time.perf_counter() - started
    connection.close()
    return seconds


def _events(folder: Path, rows: int) -> int:
    """Events with keys of the table, in a file."""
    count = min(EVENTS, rows)
    numbers = pa.array(range(count))
    keys = pa.array([number * 7919 % rows + 1 for number in range(count)])
    pyarrow.csv.write_csv(pa.table({"n": numbers, "id": keys}), folder / "events.csv")
    return count


def _lookups(database: Database, rows: int) -> dict[str, float]:
    """Events joined with the table by lookup; with a cache that has all keys, and without one."""
    found = {}
    for name, size in (("lookup_cached_rows_s", rows), ("lookup_rows_s", 0)):
        with tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder:
            count = _events(Path(folder), rows)
            options = f"'load' = 'lookup', 'cache.max_size' = '{size}'"
            text = (
                "CREATE STREAM events (n BIGINT, id BIGINT) FROM 'file://./events.csv';\n"
                "CREATE TABLE joined (n BIGINT PRIMARY KEY, symbol STRING, price DECIMAL(18, 6));\n"
                "INSERT INTO joined SELECT e.n, t.symbol, t.price FROM events e"
                f" JOIN {database.uri}?table=trades t WITH ({options}) ON t.id = e.id;"
            )
            with app_of(text, Path(folder)) as app:
                app.table("joined")
                started = time.perf_counter()
                app.run_once()
                found[name] = count / (time.perf_counter() - started)
                assert app.table("joined").stats().rows == count
    return found


def _written(database: Database, rows: int) -> dict[str, float]:
    """Events written to a table, exactly once, beside a COPY of the same rows."""
    database.execute("CREATE TABLE written (n BIGINT, id BIGINT)", "CREATE TABLE copied (n BIGINT, id BIGINT)")
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder:
        count = _events(Path(folder), rows)
        text = (
            "CREATE STREAM events (n BIGINT, id BIGINT) FROM 'file://./events.csv';\n"
            f"INSERT INTO {database.uri}?table=written SELECT n, id FROM events;"
        )
        with app_of(text, Path(folder)) as app:
            started = time.perf_counter()
            app.run_once()
            written_s = time.perf_counter() - started
        lines = (Path(folder) / "events.csv").read_bytes()
    assert database.rows("SELECT count(*) FROM written") == [(count,)]
    connection = database.connect()
    started = time.perf_counter()
    with connection.cursor() as cursor, cursor.copy("COPY copied FROM STDIN (FORMAT csv, HEADER)") as copy:
        copy.write(lines)
    copied_s = time.perf_counter() - started
    connection.close()
    return {"pg_sink_rows_s": count / written_s, "pg_copy_rows_s": count / copied_s}
