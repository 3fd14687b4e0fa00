"""A server whose binary log is read: whether changes can be captured, where its log is, and its catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from millpond.contracts.source import SourceSpec
from millpond.databases.address import Address, address_of
from millpond.databases.mysql.binlog import no_privilege, not_possible, require_privilege
from millpond.databases.mysql.binlog_positions import LogPosition
from millpond.databases.mysql.binlog_rows import CatalogColumn
from millpond.databases.mysql.connection import PORT, SCHEME, connect, translated
from millpond.databases.mysql.logged_statements import Name
from millpond.errors import SourceError
from millpond.schema import Schema

# What must hold of a server's settings, what is set instead of it, and the statement that changes it.
REQUIRED = (
    ("log_bin", ("ON", "1"), "Set log_bin and server_id in the server's configuration, and restart it."),
    ("binlog_format", ("ROW",), "SET GLOBAL binlog_format = 'ROW'; also in the server's configuration."),
    ("binlog_row_image", ("FULL",), "SET GLOBAL binlog_row_image = 'FULL'; also in the server's configuration."),
    ("binlog_transaction_compression", ("OFF", "0"), "SET GLOBAL binlog_transaction_compression = OFF;"),
    ("binlog_row_value_options", ("",), "SET GLOBAL binlog_row_value_options = '';"),
)
COLUMNS_QUERY = """
SELECT column_name, data_type, column_type, character_set_name FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
TABLE_QUERY = """
SELECT table_schema, table_name, table_type FROM information_schema.tables
WHERE table_schema = coalesce(%s, database()) AND table_name = %s
"""
CASCADES_QUERY = """
SELECT constraint_name, delete_rule, update_rule FROM information_schema.referential_constraints
WHERE constraint_schema = %s AND table_name = %s
"""
CHARSETS_QUERIES = (
    "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability WHERE id IS NOT NULL",
    "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL",
)
SILENT_RULES = ("CASCADE", "SET NULL", "SET DEFAULT")
NO_PRIVILEGE, UNKNOWN_SYNTAX, UNKNOWN_COLUMN = (1227, 1045), 1064, 1054


class LogServer:
    """One server whose log is read, over one connection for questions."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self.address: Address = address_of(SCHEME, spec.values, PORT)
        self._connection = connect(spec.values, spec.base)

    @property
    def is_mariadb(self) -> bool:
        return "MariaDB" in self._connection.get_server_info()

    def _rows(self, query: str, given: Sequence[Any] = (), connection: Any = None) -> list[tuple[Any, ...]]:
        with translated(self.address), (connection or self._connection).cursor() as cursor:
            cursor.execute(query, given or None)
            return [tuple(map(_plain, row)) for row in cursor.fetchall() or ()]

    def require(self) -> None:
        """MP514 unless the server and the user can capture changes."""
        names = ", ".join(f"'{name}'" for name, _, _ in (*REQUIRED, ("gtid_mode", (), "")))
        found = dict(self._rows(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})"))
        self._has_gtids = self.is_mariadb or found.get("gtid_mode", "OFF") == "ON"
        for name, wanted, hint in REQUIRED:
            value = found.get(name, wanted[0])
            if value.upper() not in wanted:
                message = f"Changes of {self.address.shown} cannot be captured: its {name} is '{value}'."
                raise not_possible(message, hint)
        with self._without_privilege():
            require_privilege(self._spec.values, self._spec.base, LogPosition(self.end().file, 4))

    @contextmanager
    def _without_privilege(self) -> Iterator[None]:
        """What a privilege is missing for is not possible."""
        try:
            yield
        except SourceError as error:
            cause = error.__cause__
            if cause is not None and cause.args and cause.args[0] in NO_PRIVILEGE:
                raise no_privilege(self.address, self.address.username or "") from error
            raise

    def _status(self, connection: Any = None) -> dict[str, Any]:
        """Where the log ends; MySQL 8.4 has another name for the statement."""
        for text in ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"):
            try:
                with translated(self.address), (connection or self._connection).cursor() as cursor:
                    cursor.execute(text)
                    names = [part[0].lower() for part in cursor.description]
                    return dict(zip(names, map(_plain, cursor.fetchone() or ()), strict=False))
            except SourceError as error:
                if error.__cause__ is None or error.__cause__.args[0] != UNKNOWN_SYNTAX:
                    raise
        raise AssertionError

    def end(self) -> LogPosition:
        """The current end of the log."""
        status = self._status()
        if self.is_mariadb:
            ((gtids,),) = self._rows("SELECT @@global.gtid_binlog_pos")
        else:
            gtids = (status.get("executed_gtid_set") or "") if self._has_gtids else None
        return LogPosition(status["file"], int(status["position"]), gtids)

    def snapshot(self, connection: Any) -> LogPosition:
        """Begin a transaction that sees one state of the server; returns where its log was then. MariaDB reports it;
        MySQL is locked for this moment."""
        if self.is_mariadb:
            self._rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", (), connection)
            self._rows("START TRANSACTION WITH CONSISTENT SNAPSHOT", (), connection)
            status = dict(self._rows("SHOW STATUS LIKE 'binlog_snapshot_%'", (), connection))
            return self.at(status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"]))
        with self._without_privilege():
            self._rows("FLUSH TABLES WITH READ LOCK", (), connection)
        try:
            self._rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", (), connection)
            self._rows("START TRANSACTION WITH CONSISTENT SNAPSHOT", (), connection)
            status = self._status(connection)
        finally:
            self._rows("UNLOCK TABLES", (), connection)
        gtids = (status.get("executed_gtid_set") or "") if self._has_gtids else None
        return LogPosition(status["file"], int(status["position"]), gtids)

    def at(self, file: str, offset: int) -> LogPosition:
        """A place in a file, with the GTIDs up to it where the server can find them."""
        gtids = self._rows("SELECT BINLOG_GTID_POS(%s, %s)", [file, offset])[0][0] if self.is_mariadb else None
        return LogPosition(file, offset, gtids)

    def captured_name(self, spec: SourceSpec, columns: Schema) -> Name:
        """The database and the name of a table, as the log has them; MP514 for what cannot be captured."""
        place = spec.values.get("schema") or spec.values.get("database")
        ((database, table, kind),) = self._rows(TABLE_QUERY, [place, spec.values["table"]])
        shown = f"Changes of '{spec.shown}' cannot be captured"
        if kind != "BASE TABLE":
            raise not_possible(f"{shown}: it is not a table.", "Name a table.")
        if not columns.key:
            raise not_possible(f"{shown}: the table has no primary key.", "Name its key WITH ('key' = ...).")
        status = self._status()
        wanted = [part for part in (status.get("binlog_do_db") or "").split(",") if part]
        if database in (status.get("binlog_ignore_db") or "").split(",") or (wanted and database not in wanted):
            hint = "Change binlog_do_db or binlog_ignore_db in the server's configuration, and restart it."
            raise not_possible(f"{shown}: the log of the server does not have the database '{database}'.", hint)
        return database, table

    def silent_changes(self, name: Name) -> list[str]:
        """The foreign keys by which rows of a table are changed that the log does not have."""
        found = self._rows(CASCADES_QUERY, name)
        return [key for key, *rules in found if any(rule in SILENT_RULES for rule in rules)]

    def columns(self, name: Name) -> list[CatalogColumn]:
        return [CatalogColumn(*row) for row in self._rows(COLUMNS_QUERY, name)]

    def charsets(self) -> dict[int, str]:
        """The character set of each collation."""
        found: dict[int, str] = {}
        for query in CHARSETS_QUERIES:
            try:
                found |= {int(number): name for number, name in self._rows(query)}
            except SourceError as error:
                if error.__cause__ is None or error.__cause__.args[0] != UNKNOWN_COLUMN:
                    raise
        return found

    def close(self) -> None:
        self._connection.close()


def _plain(value: Any) -> Any:
    """Texts of a connection that does not decode."""
    return value.decode() if isinstance(value, bytes) else value
