"""Random transactions on random tables: captured tables equal those of the server, also after kills."""

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.databases.servers import Database, drop_slots, until
from tests.seeds import FRESH, replayed_by

import millpond as mp
from millpond.engine.feeds import change_spool

App = Callable[..., mp.App]
Draw = Callable[[random.Random], Any]
SOAK = bool(os.environ.get("MILLPOND_SOAK"))
KILLS, LARGE = (20, 1_000_000) if SOAK else (2, 20_000)
KINDS = ("postgresql", "mysql")
TEXTS = ("", "a", "Größe", "o'clock", 'say "x"', "\\", "日本", "line\nline", "%s", "NULL")


def text(random_: random.Random) -> str:
    """Sometimes one that PostgreSQL stores apart, and does not send where it is unchanged."""
    return random_.choice(TEXTS) if random_.random() < 0.8 else random_.randbytes(4000).hex()


def moment(random_: random.Random) -> dt.datetime:
    return dt.datetime(2000 + random_.randrange(60), 1, 1, tzinfo=dt.UTC) + dt.timedelta(
        microseconds=random_.randrange(10**12)
    )


def few(make: Draw, count: int) -> Draw:
    """A few values of a key, so that statements meet the same rows."""
    return lambda random_: make(random.Random(random_.randrange(count)))


# Types of both servers, each with values.
TYPES: tuple[tuple[str, str, Draw], ...] = (
    ("SMALLINT", "SMALLINT", lambda r: r.randrange(-(2**15), 2**15)),
    ("INT", "INT", lambda r: r.randrange(-(2**31), 2**31)),
    ("BIGINT", "BIGINT", lambda r: r.randrange(-(2**63), 2**63)),
    ("NUMERIC(12, 3)", "DECIMAL(12, 3)", lambda r: Decimal(r.randrange(-(10**12) + 1, 10**12)) / 1000),
    ("NUMERIC(38, 10)", "DECIMAL(38, 10)", lambda r: Decimal(r.randrange(10**30)).scaleb(-10)),
    ("FLOAT8", "DOUBLE", lambda r: r.uniform(-1e9, 1e9)),
    ("TEXT", "TEXT", text),
    ("VARCHAR(20)", "VARCHAR(20)", lambda r: r.choice(TEXTS)),
    ("DATE", "DATE", lambda r: moment(r).date()),
    ("TIMESTAMP", "DATETIME(6)", lambda r: moment(r).replace(tzinfo=None)),
    ("BYTEA", "VARBINARY(100)", lambda r: r.randbytes(r.randrange(20))),
)


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    found: Database = request.getfixturevalue(request.param)
    yield found
    if request.param == "postgresql":
        drop_slots(found)


class RandomTable:
    """A table with a random key and random columns."""

    def __init__(self, name: str, database: Database, random_: random.Random) -> None:
        self.name, self._random = name, random_
        self._quote = '"' if database.server.name == "postgresql" else "`"
        which = 0 if self._quote == '"' else 1
        chosen = [random_.choice(TYPES) for _ in range(random_.randrange(1, 8))]
        keys = random_.choice(([TYPES[1]], [TYPES[2]], [TYPES[7]], [TYPES[1], TYPES[7]]))
        count = random_.choice((3, 30))
        self._keys = [(f"k{n}", few(make, count)) for n, (_, _, make) in enumerate(keys)]
        self._columns = [(f"C {n}", make) for n, (_, _, make) in enumerate(chosen)]
        types = [type_[which] for type_ in (*keys, *chosen)]
        names = [self._name(name) for name, _ in (*self._keys, *self._columns)]
        key = ", ".join(names[: len(keys)])
        defined = ", ".join(f"{n} {type_}" for n, type_ in zip(names, types, strict=True))
        database.execute(f"CREATE TABLE {name} ({defined}, PRIMARY KEY ({key}))")

    def _name(self, name: str) -> str:
        return f"{self._quote}{name}{self._quote}"

    def _values(self, columns: Sequence[tuple[str, Draw]], nulls: float) -> list[Any]:
        return [None if self._random.random() < nulls else make(self._random) for _, make in columns]

    def statement(self) -> tuple[str, list[Any]]:
        """A statement that changes some of its rows."""
        where = " AND ".join(f"{self._name(name)} = %s" for name, _ in self._keys)
        key, kind = self._values(self._keys, 0), self._random.random()
        if kind < 0.45:
            names = ", ".join(self._name(name) for name, _ in (*self._keys, *self._columns))
            marks = ", ".join(["%s"] * (len(self._keys) + len(self._columns)))
            return f"INSERT INTO {self.name} ({names}) VALUES ({marks})", [*key, *self._values(self._columns, 0.2)]
        if kind < 0.7:
            some = self._random.sample(self._columns, self._random.randrange(1, len(self._columns) + 1))
            changed = ", ".join(f"{self._name(name)} = %s" for name, _ in some)
            return f"UPDATE {self.name} SET {changed} WHERE {where}", [*self._values(some, 0.2), *key]
        if kind < 0.85:
            changed = ", ".join(f"{self._name(name)} = %s" for name, _ in self._keys)
            return f"UPDATE {self.name} SET {changed} WHERE {where}", [*self._values(self._keys, 0), *key]
        if kind < 0.98:
            return f"DELETE FROM {self.name} WHERE {where}", key
        return f"DELETE FROM {self.name}", []


def transact(database: Database, tables: list[RandomTable], random_: random.Random, count: int) -> None:
    """Random transactions, some of which are rolled back; a statement that violates a key is undone by itself."""
    connection = database.connect()
    with connection.cursor() as cursor:
        for _ in range(count):
            cursor.execute("BEGIN")
            for _ in range(random_.choice((1, 1, 2, 5, 30))):
                cursor.execute("SAVEPOINT one")
                statement, values = random_.choice(tables).statement()
                try:
                    cursor.execute(statement, values or None)
                except Exception as error:
                    if "uplicate" not in str(error):
                        raise
                    cursor.execute("ROLLBACK TO SAVEPOINT one")
            cursor.execute("ROLLBACK" if random_.random() < 0.2 else "COMMIT")
            if random_.random() < 0.03 and database.server.name == "postgresql":
                cursor.execute(f"TRUNCATE {', '.join(table.name for table in tables)}")
    connection.close()


def captured(database: Database, tables: list[RandomTable]) -> list[str]:
    options = "'cdc' = 'true', 'fetch.size' = '7', 'retry.interval' = '50ms', 'retry.max.delay' = '200ms'"
    return [f"CREATE TABLE {t.name} AS SELECT * FROM {database.uri}?table={t.name} WITH ({options});" for t in tables]


def shown(value: Any) -> str:
    """A value, the same from both sides and sortable."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=value.tzinfo or dt.UTC).astimezone(dt.UTC).isoformat()
    return repr(value)


def rows_of(app: mp.App, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in app.query(query).rows()]


def rows_here(app: mp.App, table: RandomTable) -> list[list[str]]:
    return sorted([shown(value) for value in row.values()] for row in app.query(f"SELECT * FROM {table.name}").rows())


def rows_there(database: Database, table: RandomTable) -> list[list[str]]:
    return sorted([shown(value) for value in row] for row in database.rows(f"SELECT * FROM {table.name}"))


def equal(app: mp.App, database: Database, table: RandomTable) -> None:
    until(
        lambda: rows_here(app, table) == rows_there(database, table),
        lambda: (replayed_by(), rows_here(app, table), rows_there(database, table)),
    )


@pytest.mark.parametrize("seed", [1, *range(2, 22 if SOAK else 2), FRESH])
def test_captured_tables_equal_those_of_the_server(database: Database, run: App, seed: int) -> None:
    """Before the snapshot, beside it, while the app follows, and while it is stopped."""
    random_ = random.Random(seed)
    tables = [RandomTable(f"t{n}", database, random_) for n in range(random_.randrange(1, 4))]
    transact(database, tables, random_, 30)
    writer = threading.Thread(target=transact, args=(database, tables, random.Random(seed + 1), 60))
    writer.start()
    app = run(*captured(database, tables))
    writer.join()
    for table in tables:
        equal(app, database, table)
    transact(database, tables, random_, 30)
    app.stop()
    transact(database, tables, random_, 30)
    app = run(*captured(database, tables))
    transact(database, tables, random_, 30)
    for table in tables:
        equal(app, database, table)


def test_a_large_batch_of_changes_is_one_commit(database: Database, run: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that waits for its end in a file."""
    monkeypatch.setattr(change_spool, "BYTES_MAX", 64 << 20 if SOAK else 100_000)
    database.execute("CREATE TABLE numbers (id INT PRIMARY KEY, n INT)", "INSERT INTO numbers VALUES (0, 0)")
    app = run(f"CREATE TABLE numbers AS SELECT * FROM {database.uri}?table=numbers WITH ('cdc' = 'true');")
    before = app.query("SHOW TABLES").rows()[1]["version"]
    is_mysql = database.server.name == "mysql"
    series = f"seq_1_to_{LARGE}" if is_mysql else f"generate_series(1, {LARGE}) AS q(seq)"
    database.transaction(
        f"INSERT INTO numbers SELECT seq, seq FROM {series}",
        "DELETE FROM numbers WHERE id % 3 = 0",
        "UPDATE numbers SET n = -n WHERE id % 3 = 1",
    )
    query = "SELECT count(*), sum(n) FROM numbers"
    until(lambda: rows_of(app, query) == database.rows(query), limit_s=240.0)
    assert app.query("SHOW TABLES").rows()[1]["version"] == before + 1


@pytest.mark.process
def test_kills_at_random_moments_change_nothing(database: Database, tmp_path: Path) -> None:
    """An app that captures, and writes what it has captured to another table, beside a writer."""
    random_, stopped = random.Random(FRESH), threading.Event()
    database.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, n INT)", "CREATE TABLE copies (id INT PRIMARY KEY, n INT)"
    )
    database.execute(f"INSERT INTO users VALUES {', '.join(f'({n}, 0)' for n in range(2000))}")
    (tmp_path / "app.sql").write_text(
        f"CREATE TABLE users AS SELECT * FROM {database.uri}?table=users WITH ('cdc' = 'true', 'fetch.size' = '100');\n"
        f"INSERT INTO {database.uri}?table=copies SELECT id, n, _op FROM CHANGES(users);\n"
    )

    def write() -> None:
        while not stopped.wait(0.002):
            low = random_.randrange(3000)
            values = ", ".join(f"({n}, 1)" for n in range(low, low + 20))
            database.transaction(
                f"DELETE FROM users WHERE id >= {low} AND id < {low + 30}",
                f"INSERT INTO users VALUES {values}",
                f"DELETE FROM users WHERE id = {low + 10003}",
                f"UPDATE users SET n = n + 1, id = id + 10000 WHERE id = {low + 3} AND id < 10000",
                f"DELETE FROM users WHERE id > 10000 AND id % 3 = {low % 3}",
            )

    command = [sys.executable, "-m", "millpond.cli.main", "run", "app.sql", "--state", "state"]
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(KILLS):
            process = subprocess.Popen(
                command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            # Somewhere between its start and a while after it has begun to follow.
            with suppress(subprocess.TimeoutExpired):
                process.wait(random_.uniform(1.0, 12.0 if SOAK else 5.0))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert writer.is_alive()
    finally:
        stopped.set()
        writer.join()
    done = subprocess.run([*command, "--once"], cwd=tmp_path, capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr.decode()
    app = mp.App(tmp_path / "app.sql", state=tmp_path / "state")
    there = sorted(database.rows("SELECT id, n FROM users"))
    assert sorted(tuple(row.values()) for row in app.query("SELECT id, n FROM users").rows()) == there, replayed_by()
    app.stop()
    assert sorted(database.rows("SELECT id, n FROM copies")) == there, replayed_by()
