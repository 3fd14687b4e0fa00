"""What the database tests share: servers, databases with names of their own, and apps over them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.databases.servers import (
    INSTALL,
    ChDB,
    ClickHouse,
    Database,
    FerretDB,
    MariaDB,
    PostgreSQL,
    Redis,
    Server,
)

import millpond as mp


def _served(kind: type[Server]) -> Iterator[Server]:
    """A server for all tests of this process; skipped, loudly, where it cannot be had."""
    missing = kind.missing()
    if missing:
        pytest.skip(f"{', '.join(missing)} not found: {INSTALL}")
    server = kind()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    yield from _served(PostgreSQL)


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    yield from _served(MariaDB)


@pytest.fixture
def postgresql(postgresql_server: Server) -> Database:
    """An empty database of PostgreSQL."""
    return postgresql_server.database()


@pytest.fixture
def mysql(mysql_server: Server) -> Database:
    """An empty database of MariaDB."""
    return mysql_server.database()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    yield from _served(Redis)


@pytest.fixture
def redis(redis_server: Server) -> Database:
    """An empty database of Redis."""
    return redis_server.database()


@pytest.fixture(scope="session")
def clickhouse_server() -> Iterator[Server]:
    yield from _served(ClickHouse)


@pytest.fixture(scope="session")
def chdb_server() -> Iterator[Server]:
    yield from _served(ChDB)


@pytest.fixture
def own_chdb() -> Iterator[Server]:
    yield from _served(ChDB)


@pytest.fixture(scope="session")
def mongodb_server() -> Iterator[Server]:
    yield from _served(FerretDB)


@pytest.fixture
def mongodb(mongodb_server: Server) -> Database:
    """An empty database of FerretDB."""
    return mongodb_server.database()


@pytest.fixture
def own_mongodb() -> Iterator[Server]:
    yield from _served(FerretDB)


@pytest.fixture
def own_redis() -> Iterator[Server]:
    yield from _served(Redis)


@pytest.fixture
def own_postgresql() -> Iterator[Server]:
    """A server that a test may stop and start."""
    yield from _served(PostgreSQL)


@pytest.fixture
def own_mysql() -> Iterator[Server]:
    yield from _served(MariaDB)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., mp.App]]:
    """run("CREATE TABLE ...", ..., once=True): an app over some statements, with the same state directory each time;
    without `once` it runs until the test ends."""
    apps: list[mp.App] = []

    def start(*statements: str, once: bool = False, **options: object) -> mp.App:
        for app in apps:
            app.stop()
        file = tmp_path / "app.sql"
        file.write_text("\n".join(statements))
        app = mp.App(file, state=tmp_path / "state", **options)  # type: ignore[arg-type]
        apps.append(app)
        if once:
            app.run_once()
        else:
            app.start()
            app.wait_ready("60s")
        return app

    yield start
    for app in apps:
        app.stop()
