"""Reads of MySQL tables that replicas answer: within the bound of their delay, and never those of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.databases.servers import PASSWORD, USER, Database, MariaDB, Server, until

import millpond as mp

App = Callable[..., mp.App]


class Replica(MariaDB):
    """A second server, with a number of its own."""

    def command(self) -> list[str]:
        return [*(part for part in super().command() if not part.startswith("--server-id")), "--server-id=2"]


@pytest.fixture
def replicated(mysql_server: Server) -> Iterator[tuple[Database, Database]]:
    """An empty database, and its replica."""
    replica = Replica()
    try:
        replica.start()
        file, position, *_ = Database(mysql_server, "").rows("SHOW MASTER STATUS")[0]
        place = f"MASTER_HOST = '127.0.0.1', MASTER_PORT = {mysql_server.port}, MASTER_LOG_FILE = '{file}'"
        login = f"MASTER_USER = '{USER}', MASTER_PASSWORD = '{PASSWORD}', MASTER_LOG_POS = {position}"
        replica.execute("", f"CHANGE MASTER TO {place}, {login}", "START SLAVE")
        database = mysql_server.database()
        yield database, Database(replica, database.name)
    finally:
        replica.remove()


def test_reads_are_answered_by_a_replica_that_is_not_too_far_behind(
    replicated: tuple[Database, Database], run: App
) -> None:
    database, replica = replicated
    options = f"'backend' = 'mysql', 'url' = '{database.uri}', 'read.url' = '{replica.uri}', 'read.max.delay' = '0s'"
    app = run(f"CREATE TABLE stock (sku STRING PRIMARY KEY, n BIGINT) WITH ({options});")
    stock = app.table("stock")
    stock.insert([{"sku": "a", "n": 1}])
    until(lambda: ("stock",) in replica.rows("SHOW TABLES") and replica.rows("SELECT n FROM stock") == [(1,)])
    # As only the replica has it.
    replica.execute("UPDATE stock SET n = 99")
    until(lambda: stock.get("a") == {"sku": "a", "n": 99})
    assert stock.values("n", "n > 5") == [99]
    # A change reads what it replaces from the server itself.
    assert stock.update("n = 1", {"n": 2}) == 1
    assert database.rows("SELECT n FROM stock") == [(2,)]
    until(lambda: stock.get("a") == {"sku": "a", "n": 2} and replica.rows("SELECT n FROM stock") == [(2,)])
    replica.execute("STOP SLAVE", "UPDATE stock SET n = 99")
    assert stock.get("a") == {"sku": "a", "n": 99}
    stock.update("n = 2", {"n": 3})
    # It lacks a commit now.
    assert stock.get("a") == {"sku": "a", "n": 3}
    replica.server.stop()
    assert stock.get("a") == {"sku": "a", "n": 3}


def test_a_wrong_replica_is_an_error_of_check(tmp_path: Path) -> None:
    options = "'backend' = 'mysql', 'url' = 'mysql://h/d', 'read.url' = 'mysql://r/d,redis://r'"
    (tmp_path / "app.sql").write_text(f"CREATE TABLE t (id INT PRIMARY KEY) WITH ({options});")
    with pytest.raises(mp.MillpondError, match=r"MP302(.|\n)*'read.url' is for redis"):
        mp.App(tmp_path / "app.sql", state=tmp_path / "state")
