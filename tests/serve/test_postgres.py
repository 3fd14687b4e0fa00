"""PostgreSQL's protocol, as psql, psycopg 2 and 3, SQLAlchemy and the queries of dashboards use it."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import psycopg2
import pyarrow as pa
import pytest
import sqlalchemy as sa
from psycopg import sql as names
from tests.ports import free_ports
from tests.serve.answering import AnsweringApp, serving

import millpond as mp
from millpond.app.queries import Cancellation
from millpond.errors import OptionError
from millpond.serve.postgres.wire_values import from_numeric, numeric

PATIENCE_S = 60
TABLES = """
CREATE TABLE users (user_id STRING PRIMARY KEY, name STRING, tier STRING NOT NULL, paid DECIMAL(12,2), n INT, b BIGINT,
                    at TIMESTAMP, day DATE, ok BOOLEAN, score DOUBLE, raw BINARY);
INSERT INTO users VALUES
  ('u1', 'Ann', 'GOLD', 10.50, 1, 9000000000, TIMESTAMP '2026-03-01 10:00:00.25', DATE '2026-03-01', TRUE, 1.5,
   X'00ff'),
  ('u2', NULL, 'BASIC', -0.10, -2, NULL, NULL, NULL, FALSE, NULL, NULL);
CREATE VIEW gold AS SELECT user_id, name FROM users WHERE tier = 'GOLD';
CREATE TABLE per_tier AS SELECT tier, COUNT(*) AS n FROM users GROUP BY tier;
"""
MOMENT = datetime(2026, 3, 1, 10, 0, 0, 250_000, tzinfo=UTC)
FIRST = ("u1", "Ann", "GOLD", Decimal("10.50"), 1, 9_000_000_000, MOMENT, date(2026, 3, 1), True, 1.5, b"\x00\xff")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., int]]:
    """Starts an app with settings, and returns its port."""
    apps: list[mp.App] = []

    def start(text: str = TABLES, host: str = "127.0.0.1", **settings: str) -> int:
        port = free_ports(1)[0]
        given = {"pg": f"{host}:{port}", **{name.replace("_", "."): value for name, value in settings.items()}}
        app = mp.App(sql=text, state=tmp_path_factory.mktemp("pg") / "state", settings=given)
        apps.append(app)
        app.start()
        return port

    yield start
    for app in apps:
        app.stop()


@pytest.fixture(scope="module")
def port(started: Callable[..., int]) -> int:
    return started()


@pytest.fixture(scope="module")
def writable(started: Callable[..., int]) -> int:
    return started(pg_write="true")


def connect(port: int, **more: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(host="127.0.0.1", port=port, user="me", dbname="shop", connect_timeout=PATIENCE_S, **more)


def psql(port: int, *commands: str, fails: bool = False) -> str:
    program = shutil.which("psql")
    if program is None:
        pytest.skip("there is no psql: apt-get install postgresql-client")
    words = [program, "-X", "-h", "127.0.0.1", "-p", str(port), "-U", "me", "-v", "ON_ERROR_STOP=1", "shop"]
    given = [word for command in commands for word in ("-c", command)]
    done = subprocess.run([*words, *given], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert bool(done.returncode) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_psql_lists_describes_and_queries(port: int) -> None:
    out = psql(
        port, "\\dt", "\\d users", "\\d", "\\dv", "\\l", "\\dn", "SELECT name, paid, ok FROM public.users ORDER BY n"
    )
    assert " public | users        | table | me" in out
    assert " public | gold | view | me" in out
    assert " paid    | numeric(12,2)            |           |          | " in out
    assert '"users_pkey" PRIMARY KEY, btree (user_id)' in out
    assert " shop | me    | UTF8 " in out
    assert out.endswith(" name | paid  | ok \n------+-------+----\n      | -0.10 | f\n Ann  | 10.50 | t\n(2 rows)\n\n")


def test_psql_points_at_mistakes(port: int) -> None:
    out = psql(port, "SELECT 1;\nSELECT nmae\nFROM users", fails=True)
    assert "LINE 2: SELECT nmae" in out
    assert "HINT:  Did you mean 'name'?" in out
    assert "read-only" in psql(port, "DELETE FROM users", fails=True)


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_reads_every_type_in_both_formats(port: int, binary: bool) -> None:
    with connect(port) as connection, connection.cursor(binary=binary) as cursor:
        cursor.execute("SELECT * FROM users WHERE user_id = %s", ["u1"])
        assert cursor.fetchone() == FIRST
        cursor.execute("SELECT n, paid, raw FROM users WHERE n = %s OR paid = %s", [-2, Decimal("7.25")])
        assert cursor.fetchall() == [(-2, Decimal("-0.10"), None)]
        cursor.execute("SELECT user_id FROM users WHERE day = %s AND ok = %s", [date(2026, 3, 1), True])
        assert cursor.fetchall() == [("u1",)]


def test_parameters_are_values_wherever_they_stand(port: int) -> None:
    with connect(port) as connection:
        query = "SELECT user_id, '$1' AS text FROM users WHERE name = %(a)s AND tier = %(b)s AND name <> %(c)s"
        hostile = "x' OR '1' = '1"
        assert connection.execute(query, {"a": "Ann", "b": "GOLD", "c": hostile}, prepare=True).fetchall() == [
            ("u1", "$1")
        ]
        assert connection.execute(query, {"a": hostile, "b": "GOLD", "c": ""}).fetchall() == []
        rows = connection.execute(
            names.SQL("SELECT {} FROM {}").format(names.Identifier("n"), names.Identifier("users"))
        )
        assert sorted(rows.fetchall()) == [(-2,), (1,)]


def test_errors_have_their_states_and_the_session_goes_on(port: int) -> None:
    with connect(port, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable, match="MP201") as raised:
            connection.execute("SELECT * FROM usres")
        assert raised.value.diag.statement_position == "15"
        assert "Did you mean 'users'?" in str(raised.value.diag.message_hint)
        with pytest.raises(psycopg.errors.UndefinedColumn):
            connection.execute("SELECT nmae FROM users WHERE user_id = %s", ["u1"])
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("SELEC 1")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="read-only"):
            connection.execute("DELETE FROM users")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM 'file:///etc/passwd'")
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT '${HOME}'")
        assert connection.execute("SELECT COUNT(*) FROM users").fetchone() == (2,)


def test_a_failed_transaction_rejects_statements_until_its_end(port: int) -> None:
    with connect(port) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM nothing")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_changes_and_transactions_where_they_are_allowed(writable: int) -> None:
    with connect(writable) as connection, connect(writable, autocommit=True) as other:
        count = "SELECT COUNT(*) FROM users"
        inserted = connection.execute(
            "INSERT INTO users (user_id, name, tier) VALUES (%s, %s, %s)", ["u3", "O'Hara\\", "GOLD"]
        )
        assert inserted.rowcount == 1
        assert connection.execute("UPDATE users SET n = %s WHERE user_id = 'u3'", [7]).rowcount == 1
        assert other.execute(count).fetchone() == (2,)
        connection.commit()
        assert other.execute("SELECT name, n FROM users WHERE user_id = 'u3'").fetchone() == ("O'Hara\\", 7)
        connection.execute("DELETE FROM users")
        connection.rollback()
        assert other.execute(count).fetchone() == (3,)
        other.execute("CREATE TABLE notes (id INT PRIMARY KEY)")
        with pytest.raises(psycopg.errors.NotNullViolation):
            other.execute("INSERT INTO users (user_id, tier) VALUES ('u9', NULL)")
        assert other.execute("DELETE FROM users WHERE user_id = 'u3'").rowcount == 1
        assert other.execute("SELECT COUNT(*) FROM notes").fetchone() == (0,)
        other.execute("DROP TABLE notes")


def test_psycopg2_and_sqlalchemy_read(port: int) -> None:
    with psycopg2.connect(host="127.0.0.1", port=port, user="me", dbname="shop") as old, old.cursor() as cursor:
        cursor.execute("SELECT * FROM users WHERE user_id = %s", ["u1"])
        assert tuple(bytes(v) if isinstance(v, memoryview) else v for v in cursor.fetchone() or ()) == FIRST
    engine = sa.create_engine(f"postgresql+psycopg://me@127.0.0.1:{port}/shop")
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT n FROM users WHERE user_id = :id"), {"id": "u1"}).scalar() == 1
        assert connection.dialect.server_version_info == (15, 0)
    engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_reflects_tables_with_their_keys(started: Callable[..., int], driver: str) -> None:
    text = "CREATE TABLE sizes (day DATE, symbol STRING, size DECIMAL(9,3) NOT NULL, PRIMARY KEY (symbol, day));"
    engine = sa.create_engine(f"postgresql+{driver}://me@127.0.0.1:{started(TABLES + text)}/shop")
    found = sa.MetaData()
    found.reflect(engine)
    assert set(found.tables) == {"users", "per_tier", "sizes", "dead_letters"}
    users, sizes = found.tables["users"], found.tables["sizes"]
    assert [column.name for column in sizes.primary_key] == ["symbol", "day"]
    assert [(c.name, str(c.type), c.nullable) for c in sizes.columns] == [
        ("day", "DATE", False),
        ("symbol", "TEXT", False),
        ("size", "NUMERIC(9, 3)", False),
    ]
    with engine.connect() as connection:
        assert connection.execute(sa.select(users.c.n).where(users.c.user_id == "u1")).scalar() == 1
    assert sa.inspect(engine).get_view_names() == ["gold"]
    engine.dispose()


@pytest.mark.parametrize(
    "value", ["\\' OR 1=1 --", "a\\nb\\", "O'Neil", "''", "$$a$$ $1", "E'x", '"`--/*', b"\x00\xff\\'", ""]
)
def test_a_value_that_a_driver_writes_into_the_text_stays_a_value(writable: int, value: str | bytes) -> None:
    column = "raw" if isinstance(value, bytes) else "name"
    old = psycopg2.connect(host="127.0.0.1", port=writable, user="me", dbname="shop")
    old.autocommit = True
    with closing(old), old.cursor() as cursor:
        cursor.execute(f"UPSERT INTO users (user_id, tier, {column}) VALUES ('written', 'NONE', %s)", [value])
        cursor.execute(f"SELECT {column} FROM users WHERE user_id = 'written' AND {column} = %s", [value])
        found = cursor.fetchall()
        assert [bytes(v) if isinstance(v, memoryview) else v for (v,) in found] == [value]
        cursor.execute("DELETE FROM users WHERE user_id = 'written'")
        if isinstance(value, str):
            cursor.execute("SELECT relname FROM pg_catalog.pg_class WHERE relname = %s", [value])
            assert cursor.fetchall() == []


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        (r"'a\b\'", "a\\b\\"),
        (r"E'a\tb\\c\'d'", "a\tb\\c'd"),
        ("$$it's \\n$$ || $x$y$x$", "it's \\ny"),
        (r"'\xfF'::bytea", b"\xff"),
        ("'a' || /* 'b\\ */ 'c' -- 'd\\", "ac"),
    ],
)
def test_strings_are_read_as_postgresql_does(port: int, sql: str, value: object) -> None:
    with connect(port) as connection:
        assert connection.execute(f"SELECT {sql}").fetchone() == (value,)


@pytest.mark.parametrize("sql", ["SELECT 'x", 'SELECT "x', "SELECT 1 /* x", "SELECT E'x\\'"])
def test_what_has_no_end_is_a_syntax_error_and_the_session_goes_on(port: int, sql: str) -> None:
    with connect(port, autocommit=True) as connection:
        for cursor in (psycopg.ClientCursor(connection), connection.cursor()):
            with pytest.raises(psycopg.errors.SyntaxError):
                cursor.execute(sql, [])
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_values_of_sqlalchemy_keep_their_digits(port: int, driver: str) -> None:
    engine = sa.create_engine(f"postgresql+{driver}://me@127.0.0.1:{port}/shop")
    users = sa.table("users", *map(sa.column, ("user_id", "paid", "score", "at", "day", "ok", "b")))
    found = [
        (users.c.paid, sa.Numeric(), Decimal("10.50")),
        (users.c.score, sa.Float(), 1.5),
        (users.c.score * 1.1, sa.Double(), 1.5 * 1.1),
        (users.c.at, sa.DateTime(timezone=True), MOMENT),
        (users.c.day, sa.Date(), date(2026, 3, 1)),
        (users.c.ok, sa.Boolean(), True),
        (users.c.b, sa.BigInteger(), 9_000_000_000),
        (users.c.user_id, sa.Text(), "u1"),
    ]
    with engine.connect() as connection:
        for column, kind, value in found:
            query = sa.select(users.c.user_id).where(column == sa.bindparam("given", value, kind))
            assert connection.execute(query).scalars().all() == ["u1"], (str(query), value)
    engine.dispose()


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("'x'::text || 'b::text'", "xb::text"),
        ("'1.50'::numeric", Decimal("1.50")),
        ("1.25::numeric(9,1)", Decimal("1.3")),
        ("'7'::int8 + '1'::pg_catalog.int4", 8),
        ("0.1::float", 0.1),
        ("'t'::bool", True),
        ("'2026-03-01 10:00:00'::timestamp with time zone", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("extract(epoch FROM TIMESTAMP '2026-03-01 10:00:00')::bigint", 1_772_359_200),
    ],
)
def test_types_of_postgresql_are_understood_in_casts(port: int, sql: str, value: object) -> None:
    with connect(port) as connection:
        assert connection.execute(f"SELECT {sql}").fetchone() == (value,)


DASHBOARDS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "grafana tables": (
        """
        SELECT CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE
        trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1),
        array_upper(string_to_array(current_setting('search_path'),','),1)) as i,
        string_to_array(current_setting('search_path'),',') s) THEN quote_ident(table_name) ELSE
        quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table" FROM information_schema.tables
        WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog') ORDER BY 1 ASC
        """,
        [("dead_letters",), ("gold",), ("per_tier",), ("users",)],
    ),
    "grafana columns": (
        """
        SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE CASE
        WHEN array_length(parse_ident('public.per_tier'),1) = 2 THEN quote_ident(table_schema) =
        (parse_ident('public.per_tier'))[1] AND quote_ident(table_name) = (parse_ident('public.per_tier'))[2] ELSE
        quote_ident(table_name) = 'per_tier' END
        """,
        [("tier", "text"), ("n", "bigint")],
    ),
    "dbeaver schemas": (
        """
        SELECT n.oid,n.nspname,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN
        pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass WHERE
        nspname = 'public'
        """,
        [(2200, "public", None)],
    ),
    "dbeaver tables": (
        """
        SELECT c.relname,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr,
        pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN
        pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE
        c.relnamespace=2200 AND c.relkind not in ('i','I','c') AND c.relname = 'users'
        """,
        [("users", None, None, None)],
    ),
    "dbeaver columns": (
        """
        SELECT a.attname, a.attnotnull FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON
        (a.attrelid=c.oid) WHERE NOT a.attisdropped AND c.relname='per_tier' ORDER BY a.attnum
        """,
        [("tier", True), ("n", False)],
    ),
    "metabase keys": (
        """
        SELECT kcu.table_name, kcu.column_name FROM information_schema.table_constraints tc JOIN
        information_schema.key_column_usage kcu ON tc.constraint_name = kcu.constraint_name WHERE tc.constraint_type
        = 'PRIMARY KEY' AND kcu.table_name = 'users'
        """,
        [("users", "user_id")],
    ),
    "keys by SQLAlchemy's words": (
        """
        SELECT k.conrelid::regclass IS NOT NULL AS known, array_agg(a.attname ORDER BY k.ord) FROM pg_attribute a JOIN
        (SELECT c.conrelid, unnest(i.indkey) AS attnum, generate_subscripts(i.indkey, 1) AS ord FROM pg_constraint c
        JOIN pg_index i ON c.conindid = i.indexrelid WHERE c.contype = 'p') k
        ON a.attnum = k.attnum AND a.attrelid = k.conrelid GROUP BY k.conrelid ORDER BY 2
        """,
        [(True, ["tier"]), (True, ["user_id"])],
    ),
    "session": (
        """
        SELECT current_schema(), session_user, current_database()
        """,
        [("public", "me", "shop")],
    ),
    "something unknown": (
        """
        SELECT pg_something(c.oid) FROM pg_catalog.pg_class c WHERE xmin(c) > 7
        """,
        [],
    ),
}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_queries_of_dashboards_are_answered(port: int, name: str) -> None:
    query, rows = DASHBOARDS[name]
    with connect(port) as connection:
        assert connection.execute(query).fetchall() == rows


class SlowApp(AnsweringApp):
    """Answers when its query is cancelled."""

    def __init__(self, port: int) -> None:
        super().__init__(settings={"pg": f"127.0.0.1:{port}"})
        self.begun, self.cancelled = threading.Event(), threading.Event()

    def answer(self, sql: str, *given: Any, limit: Any = None, cancellation: Cancellation | None = None) -> pa.Table:
        assert cancellation is not None
        with cancellation.stopping(self.cancelled.set):
            self.begun.set()
            assert self.cancelled.wait(PATIENCE_S)
        cancellation.require()
        raise AssertionError("nobody has cancelled it")


def test_a_request_cancels_the_query_and_leaving_does_too(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    app = SlowApp(port)
    with serving(app, tmp_path / "socket"), connect(port, autocommit=True) as connection:
        raised: list[BaseException] = []

        def ask() -> None:
            try:
                connection.execute("SELECT slow")
            except psycopg.Error as error:
                raised.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        assert app.begun.wait(PATIENCE_S)
        # Not `cancel`, which keeps Python from serving it in the same process.
        connection.cancel_safe(timeout=PATIENCE_S)
        asking.join(PATIENCE_S)
        assert isinstance(raised[0], psycopg.errors.QueryCanceled)
        app.begun.clear()
        app.cancelled.clear()
        leaving = connect(port, autocommit=True)
        leaving.pgconn.send_query(b"SELECT slow")
        leaving.pgconn.flush()
        assert app.begun.wait(PATIENCE_S)
        leaving.close()
        assert app.cancelled.wait(PATIENCE_S)


def test_a_password_is_needed_where_one_is_set(started: Callable[..., int]) -> None:
    port = started(pg_password="sésame")
    with connect(port, password="sésame") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="password is wrong"):
        connect(port, password="other")
    with pytest.raises(psycopg.OperationalError):
        connect(port)


def test_an_address_that_is_not_local_needs_a_password(started: Callable[..., int]) -> None:
    with pytest.raises(OptionError, match="needs a password"):
        started(host="0.0.0.0")
    with pytest.raises(OptionError, match="HOST:PORT"):
        started(host="somewhere:else")
    with pytest.raises(OptionError, match="cannot be used"):
        started(pg_tls_cert="/no/such/file.pem")


def test_connections_are_encrypted_with_a_certificate(started: Callable[..., int], tmp_path: Path) -> None:
    program = shutil.which("openssl")
    assert program is not None, "apt-get install openssl"
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run(
        [program, *words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True, timeout=60
    )
    port = started(pg_tls_cert=str(certificate), pg_tls_key=str(key), pg_password="secret")
    with connect(port, password="secret", sslmode="require") as connection:
        assert connection.pgconn.ssl_in_use
        assert connection.execute("SELECT COUNT(*) FROM users").fetchone() == (2,)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        struct.pack(">ii", 8, 196_608),
        struct.pack(">ii", 2**31 - 1, 196_608),
        struct.pack(">ii", 16, 80_877_102) + struct.pack(">ii", 1, 2),
        struct.pack(">ii", 9, 131_072) + b"\0",
        struct.pack(">ii", 16, 196_608) + b"user\0me\0"[:8],
    ],
)
def test_what_is_not_the_protocol_is_disconnected(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
    with connect(port) as works:
        assert works.execute("SELECT 1").fetchone() == (1,)


def test_a_bug_is_reported_to_the_client_without_secrets(
    port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("postgresql://me:sesame@db/shop")

    with connect(port, autocommit=True) as connection:
        with monkeypatch.context() as patched:
            patched.setattr(mp.App, "answer", broken)
            with pytest.raises(psycopg.InternalError, match="MP999") as raised:
                connection.execute("SELECT 1")
        assert "sesame" not in str(raised.value)
    with connect(port) as works:
        assert works.execute("SELECT 1").fetchone() == (1,)
    assert "Traceback" not in capfd.readouterr().err


def test_a_large_answer_comes_in_parts_with_a_cursor_of_the_server(port: int) -> None:
    with connect(port) as connection:
        numbers = " UNION ALL ".join("SELECT user_id, n FROM users" for _ in range(50))
        assert len(connection.execute(numbers).fetchall()) == 100
        got = list(connection.cursor().stream("SELECT n FROM users ORDER BY n"))
        assert got == [(-2,), (1,)]


def test_an_app_stops_although_clients_stay_connected(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    app = mp.App(sql=TABLES, state=tmp_path / "state", settings={"pg": f"127.0.0.1:{port}", "pg.write": "true"})
    app.start()
    with connect(port, autocommit=True) as idle, connect(port) as changing:
        assert idle.execute("SELECT COUNT(*) FROM users").fetchone() == (2,)
        changing.execute("DELETE FROM users WHERE n = 1")
        app.stop()
        for thread in threading.enumerate():
            if thread.name.startswith(("serve", "millpond-pg")):
                thread.join(PATIENCE_S)
                assert not thread.is_alive(), thread.name
        for client in (idle, changing):
            with pytest.raises(psycopg.OperationalError):
                client.execute("SELECT 1")
    with mp.App(sql=TABLES, state=tmp_path / "state") as again:
        assert len(again.table("users")) == 2, "the open transaction was rolled back"


@pytest.mark.parametrize(
    "text", ["0", "0.00", "1", "-1", "10000", "0.0001", "123456789.123456789", "-99999999.99", "1e5"]
)
def test_the_binary_form_of_a_decimal_is_read_back(text: str) -> None:
    value = Decimal(text)
    assert from_numeric(numeric(value)) == value
