"""The servers of the tests themselves: they run, start again with their data, and leave nothing behind."""

import pytest
from tests.databases.servers import Database, Server


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_server_starts_again_with_its_data(kind: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(f"own_{kind}")
    database = server.database()
    database.execute("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)")
    server.stop()
    assert not server.is_up()
    server.start()
    assert database.rows("SELECT a FROM t") == [(1,)]
    server.remove()
    assert not server.folder.exists()


def test_databases_are_apart(postgresql_server: Server) -> None:
    one, two = postgresql_server.database(), postgresql_server.database()
    one.execute("CREATE TABLE t (a INT)")
    assert isinstance(one, Database)
    assert two.rows("SELECT count(*) FROM pg_tables WHERE tablename = 't'") == [(0,)]
