"""Tables loaded from PostgreSQL: columns, values, consistency, and how they keep up."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.databases.servers import PASSWORD, Database, Server, drop_slots, until

import millpond as mp

App = Callable[..., mp.App]
USERS = (
    "CREATE TABLE users (id INT PRIMARY KEY, name TEXT, credit NUMERIC(12, 2))",
    "INSERT INTO users VALUES (1, 'Ann', 1.50), (2, 'Bo', NULL)",
)


def rows(app: mp.App, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in app.query(query).rows())


def test_columns_key_and_values_are_those_of_the_server(postgresql: Database, run: App) -> None:
    postgresql.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE every (s SMALLINT, i INT, b BIGINT, r REAL, f FLOAT8, n NUMERIC(30, 10), u NUMERIC, t TEXT,"
        " v VARCHAR(9), ok BOOL, d DATE, at TIMESTAMP, az TIMESTAMPTZ, y BYTEA, g UUID, j JSONB, m MOOD, ip INET,"
        " l TEXT[], nums NUMERIC(5, 2)[], PRIMARY KEY (i, t))",
        "INSERT INTO every VALUES (-5, 1, 9223372036854775807, 1.5, 0.1, 12345678901234567890.0123456789, 0.5, 'a',"
        " 'v', true, '2024-02-29', '2024-01-01 10:00:00.123456', '2024-01-01 10:00+02', '\\x00ff',"
        " '11111111-1111-1111-1111-111111111111', '{\"a\": 1}', 'ok', '10.0.0.1', '{a,\"b,\\\"c\",NULL}', '{1.5,2}')",
        "INSERT INTO every (i, t) VALUES (2, '')",
    )
    app = run(f"CREATE TABLE every AS SELECT * FROM {postgresql.uri}?table=every;", once=True)
    described = {row["column"]: row["type"] for row in app.query("DESCRIBE every").rows()}
    assert list(described.values()) == [
        *("SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(30,10)", "DECIMAL(38,18)", "STRING", "STRING"),
        *("BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP", "BINARY", "STRING", "STRING", "STRING", "STRING"),
        *("ARRAY<STRING>", "ARRAY<DECIMAL(5,2)>"),
    ]
    assert app.query("SHOW TABLES").rows()[1]["key"] == "i, t"
    first = app.query("SELECT * FROM every WHERE i = 1").rows()[0]
    assert first["n"] == Decimal("12345678901234567890.0123456789")
    assert (first["b"], first["u"], first["y"]) == (2**63 - 1, Decimal("0.5"), b"\x00\xff")
    assert first["at"] == dt.datetime(2024, 1, 1, 10, 0, 0, 123456, dt.UTC)
    assert first["az"] == dt.datetime(2024, 1, 1, 8, tzinfo=dt.UTC)
    assert (first["g"], first["j"], first["m"], first["ip"]) == (
        "1" * 8 + "-1111" * 3 + "-" + "1" * 12,
        '{"a": 1}',
        "ok",
        "10.0.0.1",
    )
    assert (first["l"], first["nums"]) == (["a", 'b,"c', None], [Decimal("1.50"), Decimal("2.00")])
    empty = app.query("SELECT * FROM every WHERE i = 2").rows()[0]
    assert {name for name, value in empty.items() if value is not None} == {"i", "t"}


def test_a_value_that_does_not_fit_is_a_dead_letter(postgresql: Database, run: App) -> None:
    postgresql.execute(
        "CREATE TABLE odd (id INT PRIMARY KEY, u NUMERIC, d DATE, at TIMESTAMPTZ)",
        "INSERT INTO odd VALUES (1, 1, '2024-01-01', NULL), (2, 'NaN', NULL, NULL), (3, NULL, 'infinity', NULL),"
        " (4, NULL, NULL, '-infinity'), (5, 1e30, NULL, NULL)",
    )
    app = run(f"CREATE TABLE odd AS SELECT * FROM {postgresql.uri}?table=odd;", once=True)
    assert rows(app, "SELECT id FROM odd") == [(1,)]
    letters = app.query("SELECT code, reason FROM dead_letters").rows()
    assert [row["code"] for row in letters] == ["MP504"] * 4
    assert sum("infinity" in row["reason"] for row in letters) == 2


def test_names_with_quotes_spaces_and_capitals(postgresql: Database, run: App) -> None:
    postgresql.execute(
        'CREATE TABLE "My ""T" ("Id x" INT PRIMARY KEY, "sélect" TEXT)', """INSERT INTO "My ""T" VALUES (1, 'a')"""
    )
    app = run(f"""CREATE TABLE t AS SELECT * FROM '{postgresql.uri}' WITH ('table' = 'My "T');""", once=True)
    assert app.query("SELECT * FROM t").rows() == [{"Id x": 1, "sélect": "a"}]


def test_many_columns(postgresql: Database, run: App) -> None:
    names = [f"c{n}" for n in range(1600)]
    postgresql.execute(
        f"CREATE TABLE wide ({', '.join(f'{name} BOOL' for name in names)})", "INSERT INTO wide (c7) VALUES (true)"
    )
    app = run(f"CREATE TABLE wide AS SELECT c7, c1599 FROM {postgresql.uri}?table=wide;", once=True)
    assert rows(app, "SELECT * FROM wide") == [(True, None)]


def test_conditions_on_types_that_are_texts_only_here(postgresql: Database, run: App) -> None:
    postgresql.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE odd (id INT PRIMARY KEY, g UUID, m MOOD, j JSON, c CHAR(4))",
        "INSERT INTO odd VALUES (1, '11111111-1111-1111-1111-111111111111', 'ok', '{}', 'ab')",
    )
    for condition, found in (
        ("g = 'none'", []),
        ("m IN ('other', 'none')", []),
        ("j = '{}' AND m = 'ok' AND g = '11111111-1111-1111-1111-111111111111' AND c = 'ab  '", [(1,)]),
    ):
        app = run(f"CREATE TABLE t AS SELECT id FROM {postgresql.uri}?table=odd WHERE {condition};", once=True)
        assert rows(app, "SELECT * FROM t") == found, condition


def test_rows_of_which_no_column_is_needed_are_counted(postgresql: Database, run: App) -> None:
    postgresql.execute(*USERS, "CREATE TABLE nothing ()")
    app = run(f"CREATE TABLE t AS SELECT 7 AS seven FROM {postgresql.uri}?table=users;", once=True)
    assert rows(app, "SELECT * FROM t") == [(7,), (7,)]
    with pytest.raises(mp.MillpondError, match=r"MP508(.|\n)*'nothing'(.|\n)*has no columns"):
        run(f"CREATE TABLE u AS SELECT * FROM {postgresql.uri}?table=nothing;", once=True)


def test_a_poll_finds_inserts_updates_and_deletes(postgresql: Database, run: App) -> None:
    postgresql.execute(*USERS)
    app = run(f"CREATE TABLE users AS SELECT * FROM {postgresql.uri}?table=users WITH ('poll.interval' = '50ms');")
    assert rows(app, "SELECT id, name, credit FROM users") == [(1, "Ann", Decimal("1.50")), (2, "Bo", None)]
    postgresql.transaction(
        "DELETE FROM users WHERE id = 1", "UPDATE users SET name = 'Bob'", "INSERT INTO users VALUES (3, 'Cy', 0)"
    )
    until(lambda: rows(app, "SELECT id, name FROM users") == [(2, "Bob"), (3, "Cy")])


def test_never_reads_again_at_the_next_start_only(postgresql: Database, run: App) -> None:
    postgresql.execute(*USERS)
    text = f"CREATE TABLE users AS SELECT * FROM {postgresql.uri}?table=users WITH ('poll.interval' = 'never');"
    app = run(text)
    postgresql.execute("DELETE FROM users WHERE id = 1")
    assert len(rows(app, "SELECT id FROM users")) == 2
    assert rows(run(text, once=True), "SELECT id FROM users") == [(2,)]


def test_rows_at_the_edge_of_the_incremental_column_are_neither_lost_nor_doubled(
    postgresql: Database, run: App
) -> None:
    postgresql.execute(
        "CREATE TABLE log (id INT PRIMARY KEY, at TIMESTAMP, v TEXT)",
        "INSERT INTO log VALUES (1, '2024-01-01', 'a'), (2, '2024-01-02', 'b')",
    )
    text = f"CREATE TABLE log AS SELECT * FROM {postgresql.uri}?table=log WITH ('incremental.column' = 'at');"
    run(text, once=True)
    postgresql.execute(
        "INSERT INTO log VALUES (3, '2024-01-02', 'c'), (4, '2024-01-03', 'd')",
        "UPDATE log SET v = 'B', at = '2024-01-03' WHERE id = 2",
        "DELETE FROM log WHERE id = 1",
    )
    app = run(text, once=True)
    assert rows(app, "SELECT id, v FROM log") == [(1, "a"), (2, "B"), (3, "c"), (4, "d")]


def test_a_poll_query_is_sent_the_last_value(postgresql: Database, run: App) -> None:
    postgresql.execute("CREATE TABLE log (id INT PRIMARY KEY, v TEXT)", "INSERT INTO log VALUES (1, 'a'), (2, 'b')")
    query = "SELECT * FROM log WHERE id > ? AND v <> 'skipped'"
    options = f"""'incremental.column' = 'id', 'poll.query' = "{query}", 'poll.interval' = '50ms'"""
    app = run(f"CREATE TABLE log AS SELECT * FROM {postgresql.uri}?table=log WITH ({options});")
    postgresql.execute("INSERT INTO log VALUES (3, 'skipped'), (4, 'd')")
    until(lambda: len(rows(app, "SELECT id FROM log")) == 3)
    assert rows(app, "SELECT id, v FROM log") == [(1, "a"), (2, "b"), (4, "d")]


def test_queries_with_parameters_and_conditions(postgresql: Database, run: App) -> None:
    postgresql.execute(*USERS)
    app = run(
        f"""SET connection.crm = '{postgresql.uri}';
        CREATE TABLE one PRIMARY KEY (id) AS SELECT * FROM {postgresql.uri}?query="SELECT * FROM users WHERE name = ?"
          WITH ('query.params' = 'Ann');
        CREATE TABLE two AS SELECT * FROM {postgresql.uri}?query="SELECT id, '?' AS q FROM users WHERE id = ? OR id = ?"
          WITH ('query.params' = '[1, 2]', 'order.by' = 'id DESC', 'limit' = '1');
        CREATE TABLE three AS SELECT id FROM postgres://crm/users WITH ('where' = 'credit IS NULL');
        CREATE TABLE four AS SELECT upper(name) AS name FROM postgres://crm/users WHERE credit > 1 AND name = 'Ann';""",
        once=True,
    )
    assert rows(app, "SELECT id FROM one") == [(1,)]
    assert rows(app, "SELECT * FROM two") == [(2, "?")]
    assert rows(app, "SELECT * FROM three") == [(2,)]
    assert rows(app, "SELECT * FROM four") == [("ANN",)]


def test_connections_of_millpond_toml(
    postgresql: Database, run: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgresql.execute(*USERS)
    monkeypatch.setenv("DB_URI", postgresql.uri)
    (tmp_path / "millpond.toml").write_text('[connection]\ncrm = "${DB_URI}"\n')
    app = run("CREATE TABLE users AS SELECT * FROM postgres://crm/users;", once=True)
    assert len(rows(app, "SELECT id FROM users")) == 2


def test_events_are_joined_with_a_table_of_the_server(postgresql: Database, run: App, tmp_path: Path) -> None:
    postgresql.execute(*USERS)
    (tmp_path / "trades.csv").write_text("trade,user_id\n1,1\n2,2\n3,9\n")
    app = run(
        f"""SET connection.crm = '{postgresql.uri}';
        CREATE STREAM trades FROM 'file:trades.csv';
        CREATE TABLE out (trade BIGINT PRIMARY KEY, name STRING);
        INSERT INTO out SELECT t.trade, u.name FROM trades t LEFT JOIN postgres://crm/users u ON u.id = t.user_id;""",
        once=True,
    )
    assert [row["name"] for row in app.query("SELECT * FROM out ORDER BY trade").rows()] == ["Ann", "Bo", None]


def test_parallel_readers_read_one_state_in_small_portions(postgresql: Database, run: App) -> None:
    postgresql.execute(
        "CREATE TABLE n (id BIGINT PRIMARY KEY, v INT)",
        "INSERT INTO n SELECT i, i % 7 FROM generate_series(-500, 4500) i",
    )
    options = "'parallel.readers' = '3', 'fetch.size' = '100', 'batch.size' = '700', 'prefetch.count' = '0'"
    app = run(f"CREATE TABLE n AS SELECT * FROM {postgresql.uri}?table=n WITH ({options});", once=True)
    assert rows(app, "SELECT count(*), sum(id), min(id), max(id) FROM n") == [(5001, 10002000, -500, 4500)]


def test_readers_without_effect_are_warned_of(postgresql: Database, run: App) -> None:
    tables = {"empty": "INT PRIMARY KEY", "words": "TEXT PRIMARY KEY", "more": "TEXT PRIMARY KEY"}
    postgresql.execute(*(f"CREATE TABLE {name} (id {type_})" for name, type_ in tables.items()))
    options = {"empty": "'parallel.readers' = '2'", "words": "'parallel.readers' = '2'"}
    options["more"] = "'parallel.readers' = '2', 'cdc' = 'true'"
    read = (
        f"CREATE TABLE {name} AS SELECT * FROM {postgresql.uri}?table={name} WITH ({with_});"
        for name, with_ in options.items()
    )
    app = run(*read)
    shown = [p.message for p in app.progress().problems if p.code == "MP303"]
    assert [name for name in tables if any(f"table={name}'" in message for message in shown)] == ["words", "more"]
    app.stop()
    drop_slots(postgresql)


def test_columns_that_come_and_go(postgresql: Database, run: App) -> None:
    postgresql.execute(*USERS)
    text = f"CREATE TABLE users AS SELECT * FROM {postgresql.uri}?table=users WITH ('poll.interval' = '50ms');"
    app = run(text)
    postgresql.transaction(
        "ALTER TABLE users ADD COLUMN age INT DEFAULT 7",
        "ALTER TABLE users DROP COLUMN credit",
        "INSERT INTO users VALUES (3, 'Cy')",
    )
    until(lambda: len(rows(app, "SELECT id FROM users")) == 3)
    assert rows(app, "SELECT * FROM users WHERE id < 3") == [(1, "Ann", None), (2, "Bo", None)]
    app = run(text, once=True)
    assert app.query("SELECT * FROM users WHERE id = 1").rows() == [{"id": 1, "name": "Ann", "age": 7}]


def test_a_server_that_goes_away_leaves_the_table_usable(own_postgresql: Server, run: App) -> None:
    database = own_postgresql.database()
    database.execute(*USERS)
    options = "'poll.interval' = '50ms', 'retry.interval' = '50ms', 'retry.max.delay' = '200ms'"
    app = run(f"CREATE TABLE users AS SELECT * FROM {database.uri}?table=users WITH ({options});")
    own_postgresql.stop()
    until(lambda: app.query("SHOW SOURCES").rows()[0]["health"] == "disconnected")
    assert app.query("SHOW TABLES").rows()[1]["state"] == "stale"
    assert len(rows(app, "SELECT id FROM users")) == 2
    own_postgresql.start()
    database.execute("DELETE FROM users WHERE id = 1")
    until(lambda: rows(app, "SELECT id FROM users") == [(2,)])
    assert app.query("SHOW SOURCES").rows()[0]["health"] == "healthy"


def test_a_certificate_is_verified(postgresql: Database, postgresql_server: Server, run: App) -> None:
    postgresql.execute(*USERS)
    options = f"'ssl.mode' = 'verify-full', 'ssl.root.cert' = '{postgresql_server.certificate}'"
    text = "CREATE TABLE users AS SELECT * FROM {}?table=users WITH ({});"
    captured = run(text.format(postgresql.uri, f"'cdc' = 'true', {options}"), once=True)
    assert len(rows(captured, "SELECT id FROM users")) == 2
    drop_slots(postgresql)
    app = run(text.format(postgresql.uri, options), once=True, accept=True)
    assert len(rows(app, "SELECT id FROM users")) == 2
    with pytest.raises(mp.MillpondError, match=r"MP508.*cannot be made.*certificate"):
        run(text.format(postgresql.uri, "'ssl.mode' = 'verify-full'"), once=True)


@pytest.mark.parametrize(
    ("what", "options", "expected"),
    [
        ("?table=userz", "", r"MP508.*no table or view 'userz'.*\n?(.*\n)*.*Did you mean 'users'"),
        ("?table=users&schema=other", "", r"MP508(.*\n)*.*It is in the schema public"),
        ("x?table=users", "", r"MP508.*database \"t\d+x\" does not exist"),
        ('?query="SELECT nope FROM users"', "", r'MP508.*column "nope" does not exist'),
        ('?query="SELECT 1/0 AS a"', "", r"MP502.*division by zero"),
        ('?query="SELECT pg_sleep(100)"', "'query.timeout' = '100ms'", r"MP502.*statement timeout"),
        ('?query="SELECT 1 AS a, 2 AS a"', "", r"MP508.*yields 'a' twice"),
        ('?query="SELECT 1 AS a"&table=users', "", r"MP508.*a table or a query, not both"),
        ('?query="SELECT ? AS a"', "", r"MP508.*has 1 `\?`, but 'query.params' has 0 values"),
        ("?table=users", "'host' = 'x'", r"MP306.*'host' is given twice"),
        ("?table=users", "'poll.interval' = '0s'", r"MP302.*longer than 0s, or never"),
        ("?table=users", "'incremental.column' = 'nope'", r"MP508.*refers to 'nope', which is not a column"),
        ("?table=users", "'key' = 'nope'", r"MP508.*refers to 'nope', which is not a column"),
        ("?table=users", "'poll.query' = 'SELECT 1'", r"MP508.*'poll.query' needs 'incremental.column'"),
    ],
)
def test_mistakes_are_errors_that_name_them(
    postgresql: Database, run: App, what: str, options: str, expected: str
) -> None:
    postgresql.execute(*USERS)
    with_ = f" WITH ({options})" if options else ""
    with pytest.raises(mp.MillpondError, match=expected.replace(".*", r"(.|\n)*")) as caught:
        run(f"CREATE TABLE t AS SELECT * FROM {postgresql.uri}{what}{with_};", once=True)
    assert PASSWORD not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_wrong_login_and_a_server_that_is_not_there(postgresql: Database, run: App) -> None:
    uri = postgresql.uri.replace("hunter2", "wrong")
    with pytest.raises(mp.MillpondError, match=r"MP507.*rejects the login"):
        run(f"CREATE TABLE t AS SELECT * FROM {uri}?table=users;", once=True)
    with pytest.raises(mp.MillpondError, match=r"MP506.*cannot be reached"):
        run("CREATE TABLE t AS SELECT * FROM postgresql://ann:secret@localhost:1/db?table=users;", once=True)


def test_a_missing_privilege_is_an_error_that_names_it(postgresql: Database, run: App) -> None:
    user = f"reader_of_{postgresql.name}"
    postgresql.execute(*USERS, f"CREATE ROLE {user} LOGIN REPLICATION PASSWORD 'pw'")
    uri = f"postgresql://{user}:pw@localhost:{postgresql.server.port}/{postgresql.name}?table=users"
    with pytest.raises(mp.MillpondError, match=rf"MP507.*denies access: permission denied for table(.|\n)*'{user}'"):
        run(f"CREATE TABLE t AS SELECT * FROM {uri};", once=True)
    postgresql.execute(f"GRANT SELECT ON users TO {user}")
    with pytest.raises(mp.MillpondError, match=r"MP514(.|\n)*As the owner of the tables: CREATE PUBLICATION"):
        run(f"CREATE TABLE t AS SELECT * FROM {uri} WITH ('cdc' = 'true');", once=True)
    assert len(rows(run(f"CREATE TABLE t AS SELECT * FROM {uri};", once=True), "SELECT id FROM t")) == 2


def test_a_query_of_a_running_app_reads_tables_only(postgresql: Database, run: App) -> None:
    postgresql.execute(*USERS)
    app = run("CREATE TABLE t (id INT PRIMARY KEY);")
    with pytest.raises(mp.MillpondError, match=r"MP101.*is not one(.|\n)*CREATE TABLE users AS SELECT"):
        app.query(f"SELECT * FROM {postgresql.uri}?table=users")


def test_no_password_is_stored(postgresql: Database, run: App, tmp_path: Path) -> None:
    postgresql.execute(*USERS)
    run(f"CREATE TABLE users AS SELECT * FROM {postgresql.uri}?table=users;", once=True)
    for path in (tmp_path / "state").rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path


def test_explain_shows_what_is_sent_and_what_is_not_seen(run: App) -> None:
    from millpond.app.planning import plan_text
    from millpond.plan.explain import explain_text

    plan = plan_text(
        """CREATE TABLE a PRIMARY KEY (id) AS SELECT id, upper(name) AS n FROM postgresql://h/db?table=users
             WHERE id > 5 AND name = 'it''s' AND length(name) > 3 WITH ('incremental.column' = 'at');
           CREATE TABLE b AS SELECT * FROM postgresql://u:secret@h/db?query="SELECT * FROM t WHERE d >= ?"
             WITH ('query.params' = '2024-01-01', 'poll.interval' = '5s');"""
    )
    shown = explain_text(plan)
    assert """sends SELECT "id", "name" FROM "users" WHERE "id" > 5 AND "name" = 'it''s'""" in shown
    assert "deletes are not seen" in shown
    assert "sends SELECT * FROM (SELECT * FROM t WHERE d >= '2024-01-01' ) AS q" in shown
    assert "read again and compared every 5 s" in shown
    assert "secret" not in shown
    assert [p.message for p in plan.problems if p.code == "MP515"] == [
        "Deleted rows of 'postgresql://h/db?table=users' are not noticed: only rows at or above the last 'at' are read."
    ]
