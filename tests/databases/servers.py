"""Real database servers for the tests, from the system's packages, each in a folder of its own.

A server runs as an unprivileged user, on a free port, and is stopped by its process id.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.ports import free_ports

START_S = 120.0
STOP_S = 60.0
USER, PASSWORD = "ann", "hunter2/@:?#"
NUMBERS = itertools.count(1)
# Not all programs of servers are on the path.
FOLDERS = ("/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)))
INSTALL = "run scripts/system.sh databases"


def program(name: str) -> str | None:
    """Where a program of a server is."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(FOLDERS))


class Server:
    """One server; `start` and `stop` may follow each other: port and data stay the same."""

    name = ""
    # The programs that it takes, and the users that it may run as, the first that there is.
    programs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    @classmethod
    def missing(cls) -> list[str]:
        """The programs that are not installed."""
        return [name for name in cls.programs if program(name) is None]

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"millpond-{self.name}-"))
        (self.port,) = free_ports(1)
        self._user = self._unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self.certificate = self.folder / "server.crt"
        self._make_certificate()
        if self._user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, *self._user)
        self.create()

    def _unprivileged(self) -> tuple[int, int] | None:
        """Who runs it: no server runs as root."""
        if os.getuid() != 0:
            return None
        known = {entry.pw_name: (entry.pw_uid, entry.pw_gid) for entry in pwd.getpwall()}
        return next(known[name] for name in (*self.users, "nobody") if name in known)

    def _as_user(self) -> dict[str, Any]:
        # Away from the terminal: whoever reads it in the background is stopped.
        apart: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
        if self._user is None:
            return apart
        return {**apart, "user": self._user[0], "group": self._user[1], "extra_groups": []}

    def _make_certificate(self) -> None:
        """A key and a certificate that it signs itself, for the name localhost."""
        wanted = ["-newkey", "rsa:2048", "-nodes", "-x509", "-days", "30", "-subj", "/CN=localhost"]
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        files = ["-keyout", str(self.folder / "server.key"), "-out", str(self.certificate)]
        subprocess.run(["openssl", "req", *wanted, *names, *files], check=True, capture_output=True)
        (self.folder / "server.key").chmod(0o600)

    def create(self) -> None:
        """Make the data folder."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """What runs the server in the foreground."""
        raise NotImplementedError

    def is_up(self) -> bool:
        raise NotImplementedError

    def prepare(self) -> None:
        """What is made at the first start."""

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(self.command(), cwd=self.folder, stdout=log, stderr=log, **self._as_user())
        deadline = time.monotonic() + START_S
        while not self.is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not start:\n{(self.folder / 'log.txt').read_text()[-3000:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run_to_end(self, *command: str) -> None:
        how: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": START_S}
        done = subprocess.run(command, cwd=self.folder, **how, **self._as_user())
        assert done.returncode == 0, done.stdout + done.stderr

    def database(self) -> Database:
        """A new, empty database."""
        found = Database(self, f"t{next(NUMBERS)}")
        self.execute("", f"CREATE DATABASE {found.name}")
        return found

    def connect(self, database: str) -> Any:
        """A connection of a driver, whose statements are committed at once."""
        raise NotImplementedError

    def execute(self, database: str, *statements: str) -> None:
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()


class Database:
    """A database of a server, as tests use it."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        self.server.execute(self.name, *statements)

    def connect(self) -> Any:
        return self.server.connect(self.name)

    def transaction(self, *statements: str) -> None:
        self.execute("BEGIN", *statements, "COMMIT")

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(query, values or None)
                return [tuple(row) for row in cursor.fetchall()]
        finally:
            connection.close()

    @property
    def uri(self) -> str:
        """`scheme://user:password@host:port/database`, to which a test adds what it reads."""
        from urllib.parse import quote

        if self.server.name == "mongodb":
            return f"mongodb://localhost:{self.server.port}/{self.name}"
        user = "" if self.server.name == "redis" else USER
        return f"{self.server.name}://{user}:{quote(PASSWORD, safe='')}@localhost:{self.server.port}/{self.name}"


class PostgreSQL(Server):
    name = "postgresql"
    # Settings that a test wants otherwise.
    settings: dict[str, str] = {}
    programs = ("initdb", "postgres", "openssl")
    users = ("postgres",)

    def create(self) -> None:
        initdb = program("initdb")
        assert initdb is not None
        word = self.folder / "password.txt"
        word.write_text(PASSWORD)
        if self._user is not None:
            os.chown(word, *self._user)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", f"--pwfile={word}"]
        self.run_to_end(initdb, "-D", str(self.folder / "data"), "-U", USER, *options)

    def command(self) -> list[str]:
        postgres = program("postgres")
        assert postgres is not None
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "wal_level": "logical",
            "max_wal_senders": 40,
            "max_replication_slots": 40,
            "max_connections": 200,
            "ssl": "on",
            "ssl_cert_file": self.certificate,
            "ssl_key_file": self.folder / "server.key",
        }
        settings |= self.settings
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [postgres, "-D", str(self.folder / "data"), *given]

    def is_up(self) -> bool:
        import psycopg

        try:
            self.connect("").close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """At once: connections are closed by the server."""
        super().stop(how)

    def connect(self, database: str) -> Any:
        import psycopg

        login = {"user": USER, "password": PASSWORD, "dbname": database or "postgres"}
        return psycopg.connect(host="127.0.0.1", port=self.port, autocommit=True, connect_timeout=10, **login)


class MariaDB(Server):
    name = "mysql"
    # Settings that a test wants otherwise.
    settings: dict[str, str] = {}
    programs = ("mariadb-install-db", "mariadbd", "openssl")
    users = ("mysql",)

    def create(self) -> None:
        install = program("mariadb-install-db")
        assert install is not None
        login = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        self.run_to_end(install, "--no-defaults", f"--datadir={self.folder / 'data'}", *login)
        word = PASSWORD.replace("'", "''")
        script = self.folder / "users.sql"
        script.write_text(
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{word}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )
        if self._user is not None:
            os.chown(script, *self._user)

    def command(self) -> list[str]:
        mariadbd = program("mariadbd")
        assert mariadbd is not None
        settings = {
            "datadir": self.folder / "data",
            "port": self.port,
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
            "bind-address": "127.0.0.1",
            "init-file": self.folder / "users.sql",
            "character-set-server": "utf8mb4",
            "server-id": 1,
            "log-bin": self.folder / "data" / "binlog",
            "binlog-format": "ROW",
            "binlog-row-metadata": "FULL",
            "innodb-flush-log-at-trx-commit": 0,
            "innodb-buffer-pool-size": "64M",
            "ssl-cert": self.certificate,
            "ssl-key": self.folder / "server.key",
            "skip-name-resolve": "1",
        }
        settings |= self.settings
        return [mariadbd, "--no-defaults", *(f"--{name}={value}" for name, value in settings.items())]

    def is_up(self) -> bool:
        import pymysql

        try:
            self.connect("").close()
        except pymysql.err.OperationalError:
            return False
        return True

    def connect(self, database: str) -> Any:
        import pymysql

        login = {"user": USER, "password": PASSWORD, "database": database or None}
        return pymysql.connect(
            host="127.0.0.1", port=self.port, autocommit=True, connect_timeout=10, charset="utf8mb4", **login
        )


class Redis(Server):
    name = "redis"
    programs = ("redis-server", "openssl")
    users = ("redis",)

    def create(self) -> None:
        """Nothing to do: an empty folder is enough."""

    def command(self) -> list[str]:
        redis = program("redis-server")
        assert redis is not None
        settings = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.folder,
            "requirepass": PASSWORD,
            "databases": 1000,
            "appendonly": "yes",
            "appendfsync": "no",
        }
        return [redis, *(part for name, value in settings.items() for part in (f"--{name}", str(value)))]

    def is_up(self) -> bool:
        import redis

        try:
            self.connect("0").ping()
        except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
            return False
        return True

    def connect(self, database: str) -> Any:
        import redis

        login = {"password": PASSWORD, "db": int(database), "decode_responses": True}
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=60, **login)

    def database(self) -> Database:
        return Database(self, str(next(NUMBERS)))


class ClickHouse(Server):
    """The server of the system's packages, an old one, by its own protocol."""

    name = "clickhouse"
    programs = ("clickhouse-server", "openssl")
    users = ("clickhouse",)

    def create(self) -> None:
        (self.encrypted_port,) = free_ports(1)
        places = "".join(
            f"<{name}>{self.folder}/{name}/</{name}>"
            for name in ("path", "tmp_path", "format_schema_path", "user_files_path")
        )
        config = (
            "<logger><level>warning</level><console>1</console></logger><listen_host>127.0.0.1</listen_host>"
            f"<tcp_port>{self.port}</tcp_port><tcp_port_secure>{self.encrypted_port}</tcp_port_secure>"
            f"<openSSL><server><certificateFile>{self.certificate}</certificateFile><privateKeyFile>{self.folder}/server.key"
            "</privateKeyFile><verificationMode>none</verificationMode><loadDefaultCAFile>true</loadDefaultCAFile>"
            f"</server></openSSL>{places}<users_config>users.xml</users_config>"
            "<default_profile>default</default_profile><default_database>default</default_database>"
            "<mark_cache_size>67108864</mark_cache_size>"
        )
        users = (
            f"<profiles><default/></profiles><users><{USER}><password>{PASSWORD}</password><networks><ip>::/0</ip>"
            f"</networks><profile>default</profile><quota>default</quota></{USER}></users><quotas><default/></quotas>"
        )
        for name, text in (("config.xml", config), ("users.xml", users)):
            (self.folder / name).write_text(f"<yandex>{text}</yandex>")

    def command(self) -> list[str]:
        found = program("clickhouse-server")
        assert found is not None
        return [found, f"--config-file={self.folder / 'config.xml'}"]

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """At once: it waits long for connections that are open."""
        super().stop(how)

    def is_up(self) -> bool:
        from clickhouse_driver.dbapi.errors import Error

        try:
            self.execute("", "SELECT 1")
        except (Error, OSError, EOFError):
            return False
        return True

    def connect(self, database: str) -> Any:
        from clickhouse_driver.dbapi import connect

        return connect(host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, database=database or "default")


class ChDB(Server):
    """A current engine of ClickHouse behind a small HTTP server of the tests."""

    name = "clickhouse"
    programs = ("openssl",)

    def create(self) -> None:
        """The engine makes its folder."""
        (self.encrypted_port,) = free_ports(1)

    def _as_user(self) -> dict[str, Any]:
        # This Python may be readable by its own user only.
        return {"stdin": subprocess.DEVNULL, "start_new_session": True}

    def command(self) -> list[str]:
        front = Path(__file__).parent / "clickhouse_http.py"
        return [sys.executable, str(front), str(self.port), str(self.encrypted_port), str(self.folder / "data")]

    def is_up(self) -> bool:
        from clickhouse_connect.driver.exceptions import Error

        try:
            self.execute("", "SELECT 1")
        except Error:
            return False
        return True

    def connect(self, database: str) -> Any:
        from clickhouse_connect.dbapi import connect

        return connect(
            host="127.0.0.1", port=self.port, username=USER, password=PASSWORD, database=database or "default"
        )


class FerretDB(Server):
    """MongoDB's protocol over SQLite: without transactions, and slow with many documents. A database of it is made by
    its first document."""

    name = "mongodb"
    programs = ("openssl",)

    @classmethod
    def program(cls) -> Path:
        """Where scripts/system.sh puts what it builds."""
        source = Path(__file__).with_name("ferretdb")
        content = b"".join((source / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
        number = hashlib.sha256(content).hexdigest()[:16]
        return Path(f"~/.cache/millpond/ferretdb/ferretdb-{number}").expanduser()

    @classmethod
    def missing(cls) -> list[str]:
        return [*super().missing(), *([] if cls.program().exists() else ["FerretDB (scripts/system.sh mongodb)"])]

    def create(self) -> None:
        """Its own copy, which an unprivileged user may run."""
        shutil.copy(self.program(), self.folder / "ferretdb")
        (self.folder / "data").mkdir()
        for path in (self.folder / "ferretdb", self.folder / "data"):
            if self._user is not None:
                os.chown(path, *self._user)

    def command(self) -> list[str]:
        return [str(self.folder / "ferretdb"), f"127.0.0.1:{self.port}", str(self.folder / "data")]

    def is_up(self) -> bool:
        import pymongo

        client: Any = pymongo.MongoClient("127.0.0.1", self.port, serverSelectionTimeoutMS=200)
        try:
            client.admin.command("ping")
        except pymongo.errors.PyMongoError:
            return False
        finally:
            client.close()
        return True

    def connect(self, database: str) -> Any:
        """The database, with the methods of a client of MongoDB."""
        import pymongo

        return pymongo.MongoClient("127.0.0.1", self.port)[database]

    def database(self) -> Database:
        return Database(self, f"t{next(NUMBERS)}")


def until(condition: Callable[[], Any], what: Callable[[], object] = str, limit_s: float = 60.0) -> None:
    """Wait for a condition; `what` describes what there was instead."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"it never came: {what()}"
        time.sleep(0.01)


def drop_slots(database: Database) -> None:
    """The replication slots of a database of PostgreSQL."""
    query = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = current_database()"
    for slot, pid in database.rows(query):
        if pid is not None:
            database.rows("SELECT pg_terminate_backend(%s)", [pid])
        until(lambda slot=slot: _dropped(database, slot))  # type: ignore[misc]


def _dropped(database: Database, slot: str) -> bool:
    if not database.rows("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND NOT active", [slot]):
        return not database.rows("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [slot])
    database.rows("SELECT pg_drop_replication_slot(%s)", [slot])
    return True
