"""Replication slots and publications: made when missing, named after the app, and what must hold for capture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millpond.contracts.changes import NOT_POSSIBLE, POSITION_GONE
from millpond.contracts.source import SourceSpec
from millpond.databases.address import Address
from millpond.databases.postgresql.connection import translated
from millpond.databases.postgresql.replication import ReplicationConnection, number_of
from millpond.errors import SourceError
from millpond.plan.source_catalog import short_hash
from millpond.schema import Schema

if TYPE_CHECKING:
    import psycopg

# What default names of slots and publications begin with.
PREFIX = "millpond_"
# The kind of a partitioned table.
PARTITIONED = "p"
# What pg_replication_slots.wal_status says, with the size of the log.
STATUSES = {
    "extended": "it keeps {} of the log, more than max_wal_size",
    "unreserved": "it keeps {} of the log, more than max_slot_wal_keep_size, and is invalidated soon",
    "lost": "it was invalidated, and its changes are lost",
}
IDENTITY_QUERY = """
SELECT c.relkind::text, c.relreplident::text, n.nspname, c.relname,
       ARRAY(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a
             ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
             WHERE i.indrelid = c.oid AND (CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""


def not_possible(message: str, hint: str) -> SourceError:
    """MP514: changes cannot be captured."""
    return SourceError(NOT_POSSIBLE, message, hint=hint)


def default_name(owner: str, address: Address) -> str:
    """The name of the slot and the publication of an app in a database."""
    readable = re.sub(r"[^a-z0-9]+", "_", owner.lower()).strip("_")[:30]
    return f"{PREFIX}{readable}_{short_hash(f'{owner} {address.identity}')}"


class Slots:
    """The slot and the publication of one capture."""

    def __init__(
        self, connection: psycopg.Connection[Any], address: Address, values: Mapping[str, Any], owner: str
    ) -> None:
        self._connection, self._address = connection, address
        own = default_name(owner, address)
        self.slot: str = values["slot.name"] or own
        self.publication: str = values["publication.name"] or own

    def _rows(self, query: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with translated(self._address), self._connection.cursor() as cursor:
            cursor.execute(query, given or None)
            return cursor.fetchall() if cursor.description is not None else []

    def require(self) -> None:
        """MP514 unless the server and the user can capture changes."""
        ((level,),) = self._rows("SHOW wal_level")
        if level != "logical":
            message = f"Changes of {self._address.shown} cannot be captured: its wal_level is '{level}'."
            raise not_possible(message, "Set wal_level = logical in postgresql.conf, and restart the server.")
        query = "SELECT rolsuper OR rolreplication, current_user FROM pg_roles WHERE rolname = current_user"
        ((may, user),) = self._rows(query)
        if not may:
            message = f"Changes of {self._address.shown} cannot be captured: the user '{user}' may not replicate."
            raise not_possible(message, f'As a superuser: ALTER ROLE "{user}" REPLICATION;')
        if not re.fullmatch(r"[a-z0-9_]{1,63}", self.slot):
            message = f"'{self.slot}' cannot be the name of a replication slot."
            raise not_possible(message, "Use lower-case letters, digits and underscores, at most 63.")

    def captured_name(self, spec: SourceSpec) -> tuple[str, str]:
        """The schema and the name of a table, as its changes name it."""
        found = self._rows(IDENTITY_QUERY, [_regclass(spec)])
        return found[0][2], found[0][3]

    def require_identity(self, spec: SourceSpec, columns: Schema, *, keyed: bool) -> str:
        """MP514 unless the server sends enough of a changed row to find it here. Changes that are events need no key,
        but the server rejects updates and deletes of a published table without an identity. Returns the kind of the
        table."""
        ((kind, identity, _, name, known),) = self._rows(IDENTITY_QUERY, [_regclass(spec)])
        if kind not in ("r", PARTITIONED):
            raise not_possible(f"Changes of '{spec.shown}' cannot be captured: it is not a table.", "Name a table.")
        full = f'ALTER TABLE "{name}" REPLICA IDENTITY FULL;'
        if not keyed:
            if identity == "n" or (identity != "f" and not known):
                message = f"Changes of '{spec.shown}' cannot be captured: the table has no primary key."
                raise not_possible(message, f"Run: {full}")
            return str(kind)
        if not columns.key:
            message = f"Changes of '{spec.shown}' cannot be captured: the table has no primary key."
            raise not_possible(message, f"Name its key WITH ('key' = ...), and run: {full}")
        missing = identity != "f" and (identity == "n" or not set(columns.key) <= set(known))
        if missing:
            key = ", ".join(columns.key)
            message = f"Changes of '{spec.shown}' cannot be captured: the server does not send its key ({key})."
            raise not_possible(message, f"Run: {full}")
        return str(kind)

    def publish(self, tables: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Make the publication, or add the tables that it lacks, which are returned."""
        name = _quoted(self.publication)
        there = self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", [self.publication])
        lacking = self.unpublished(tables) if there else tables
        listed = ", ".join(f"{_quoted(schema)}.{_quoted(table)}" for schema, table in lacking)
        if not there:
            options = "WITH (publish_via_partition_root)"
            self._make_publication(f"CREATE PUBLICATION {name} FOR TABLE {listed} {options}")
        elif lacking:
            self._make_publication(f"ALTER PUBLICATION {name} ADD TABLE {listed}")
        return lacking

    def unpublished(self, tables: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The tables that the publication does not have."""
        query = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s"
        known = {(schema, table) for schema, table in self._rows(query, [self.publication])}
        return [table for table in tables if table not in known]

    def kept(self) -> int | None:
        """The bytes of the log that the server keeps for the slot."""
        query = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots"
        found = self._rows(f"{query} WHERE slot_name = %s", [self.slot])
        return found[0][0] if found else None

    def _make_publication(self, text: str) -> None:
        try:
            self._rows(text)
        except SourceError as error:
            if error.code != "MP507":
                raise
            message = f"Changes of {self._address.shown} cannot be captured: {error.problems[0].message}"
            hint = f"As the owner of the tables: {text}; and name it WITH ('publication.name' = ...)."
            raise not_possible(message, hint) from error

    def _state(self) -> tuple[str, str | None] | None:
        """The status of the slot's log, and up to where it is confirmed; None where there is no slot."""
        query = "SELECT coalesce(wal_status, 'lost'), confirmed_flush_lsn::text FROM pg_replication_slots"
        found = self._rows(f"{query} WHERE slot_name = %s", [self.slot])
        return (found[0][0], found[0][1]) if found else None

    def require_position(self, position: int) -> None:
        """MP513 unless the slot still has what comes behind a position."""
        state = self._state()
        if state is None:
            raise self._gone(f"its replication slot '{self.slot}' is gone")
        if state[0] == "lost":
            raise self._gone(f"its replication slot '{self.slot}' was invalidated, because it fell too far behind")
        if state[1] is not None and number_of(state[1]) > position:
            # What the app has not stored is never confirmed.
            why = "another app has read it, or the state directory is an older copy"
            raise self._gone(f"its replication slot '{self.slot}' is further, at {state[1]}: {why}")
        ((end,),) = self._rows("SELECT pg_current_wal_flush_lsn()::text")
        if number_of(end) < position:
            raise self._gone(f"its log ends before, at {end}: another server has taken its place, or an older copy")

    def _gone(self, why: str) -> SourceError:
        return SourceError(POSITION_GONE, f"The changes of {self._address.shown} since the last one are lost: {why}.")

    def make(self) -> None:
        """Create the slot unless it exists."""
        if self._usable() is None:
            self._rows("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.slot])

    def _usable(self) -> str | None:
        """Up to where the slot is confirmed; one that has lost its log is dropped."""
        state = self._state()
        if state is not None and state[0] == "lost":
            self.drop()
            return None
        return None if state is None else state[1]

    def exported(self, connection: ReplicationConnection) -> tuple[int, str]:
        """A position and the snapshot that has everything up to it. Where the slot exists already, a temporary one
        exports the snapshot: that of a slot is exported only when it is made."""
        confirmed = self._usable()
        made = f'"{self.slot}"' if confirmed is None else f'"{_temporary(self.slot)}" TEMPORARY'
        try:
            ((_, at, name, _),) = connection.execute(
                f"CREATE_REPLICATION_SLOT {made} LOGICAL pgoutput (SNAPSHOT 'export')"
            )
        except SourceError as error:
            if connection.state != "53400":
                raise
            hint = "Raise max_replication_slots, or drop a slot that is not used: millpond doctor --drop-slots."
            raise not_possible(error.problems[0].message, hint) from error
        assert at is not None
        assert name is not None
        return number_of(at), name

    def left_behind(self, *, drop: bool) -> list[str]:
        """The slot and the publication, as far as they exist; `drop` removes them."""
        found = []
        query = (
            "SELECT active, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), wal_status"
            " FROM pg_replication_slots WHERE slot_name = %s"
        )
        for active, size, status in self._rows(query, [self.slot]):
            use = "is in use" if active else "is not in use"
            kept = STATUSES.get(status, "it keeps {} of the log").format(size)
            line = f"replication slot {self.slot} of {self._address.shown} {use}; {kept}"
            if drop and not active:
                self.drop()
                line = f"replication slot {self.slot} of {self._address.shown}: dropped"
            found.append(line)
        if self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", [self.publication]):
            line = f"publication {self.publication} of {self._address.shown}"
            is_own = self.publication.startswith(PREFIX)
            if drop and is_own:
                self._rows(f"DROP PUBLICATION {_quoted(self.publication)}")
            found += [f"{line}: dropped" if drop else line] if is_own else []
        return found

    def drop(self) -> None:
        self._rows("SELECT pg_drop_replication_slot(%s)", [self.slot])


def _temporary(slot: str) -> str:
    return f"{slot[:55]}_export"


def _regclass(spec: SourceSpec) -> str:
    schema = spec.values.get("schema")
    table = _quoted(spec.values["table"])
    return f"{_quoted(schema)}.{table}" if schema else table


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
