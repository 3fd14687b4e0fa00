"""What the figures of all databases share: apps over one table, loads, changes, and their decoding alone."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.databases.servers import Database

import millpond as mp
from millpond.contracts.changes import Capture, Changes, ChangeSource, Committed

PATIENCE_S = 600.0
COMMITS = 40


@contextmanager
def app_of(text: str, folder: Path | None = None) -> Iterator[mp.App]:
    """An app with a state of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        file = (folder or Path(name)) / "app.sql"
        file.write_text(text)
        app = mp.App(file, state=Path(name) / "state")
        try:
            yield app
        finally:
            app.stop()


def table_of(database: Database, options: str) -> str:
    return f"CREATE TABLE trades AS SELECT * FROM {database.uri}?table=trades WITH ({options});"


def loaded_s(database: Database) -> float:
    """From the start of the load until its last commit, as the app measures it."""
    with app_of(table_of(database, "'poll.interval' = 'never'")) as app:
        app.start()
        app.wait_ready("600s")
        (table,) = (table for table in app.progress().tables if table.name == "trades")
        assert table.load is not None
        return table.load.rows / table.load.rows_per_s


def changes_s(
    database: Database, fill: str, rows: int, open_: Callable[[Capture], ChangeSource]
) -> tuple[float, float, float]:
    """The rows written again, in one transaction: from its commit until they are in the table; the changes only
    decoded; and the median milliseconds from a small commit until it is visible."""
    database.execute("TRUNCATE TABLE trades")
    with app_of(table_of(database, "'cdc' = 'true'")) as app:
        app.start()
        app.wait_ready("600s")
        (source,) = app.plan.sources
        capture = Capture("bench", {source.id: source.spec})
        alone = open_(capture)
        position = alone.start()
        database.execute(fill)
        started = time.perf_counter()
        _wait(lambda: app.table("trades").stats().rows >= rows)
        taken_s = time.perf_counter() - started
        delay_ms = statistics.median(_delays_ms(database, app))
    try:
        return taken_s, _decoded_s(alone, position, rows), delay_ms
    finally:
        alone.close()


def _delays_ms(database: Database, app: mp.App) -> Iterator[float]:
    connection = database.connect()
    table = app.table("trades")
    for number in range(COMMITS):
        key = -1 - number
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO trades (id, symbol) VALUES ({key}, 'x')")
        started = time.perf_counter()
        _wait(lambda: table.contains(key))  # noqa: B023
        yield (time.perf_counter() - started) * 1000
    connection.close()


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError("the rows did not arrive")
        time.sleep(0.002)


def _decoded_s(source: ChangeSource, position: object, rows: int) -> float:
    """The changes after a position, decoded into Arrow and dropped."""
    started = time.perf_counter()
    following = source.follow(position)
    found = 0
    while found < rows:
        event = following.next(1.0)
        if isinstance(event, Changes):
            found += event.rows.num_rows
        elif isinstance(event, Committed):
            following.acknowledge(event.position)
    seconds = time.perf_counter() - started
    following.close()
    return seconds
