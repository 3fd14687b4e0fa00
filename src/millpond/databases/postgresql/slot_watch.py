"""Whether others have changed a table of PostgreSQL: the stream of a temporary replication slot."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.databases.address import address_of
from millpond.databases.postgresql.connection import PORT, SCHEME, connect
from millpond.databases.postgresql.replication import ReplicationConnection, SlotStream, number_of
from millpond.databases.postgresql.slots import IDENTITY_QUERY, Slots, not_possible

# The messages of pgoutput about rows: insert, update, delete and truncate.
ROWS = b"IUDT"


class PostgresWatch:
    """The changes of one table since now. The slot is the connection's: nothing is left on the server but the
    publication."""

    def __init__(self, values: Mapping[str, Any], table: str) -> None:
        address = address_of(SCHEME, values, PORT)
        connection = connect(values, Path())
        try:
            slots = Slots(connection, address, {"slot.name": None, "publication.name": None}, f"watch {table}")
            slots.require()
            with connection.cursor() as cursor:
                ((_, identity, schema, name, key),) = cursor.execute(IDENTITY_QUERY, [table]).fetchall()
            if identity == "n" or (identity == "d" and not key):
                # The server would reject the updates of everybody else.
                message = f"Changes of the table {name} in {address.shown} cannot be captured: it has no primary key."
                raise not_possible(message, f"Run: ALTER TABLE \"{name}\" REPLICA IDENTITY FULL; or remove 'cdc'.")
            slots.publish([(schema, name)])
        finally:
            connection.close()
        replication = ReplicationConnection(values, Path())
        try:
            slot = f"millpond_watch_{uuid.uuid4().hex[:12]}"
            ((_, at, _, _),) = replication.execute(
                f"CREATE_REPLICATION_SLOT \"{slot}\" TEMPORARY LOGICAL pgoutput (SNAPSHOT 'nothing')"
            )
            assert at is not None
            self._stream = SlotStream(replication, slot, slots.publication, number_of(at))
        except BaseException:
            replication.close()
            raise

    def has_changes(self) -> bool:
        found = False
        while (message := self._stream.next(0.0)) is not None:
            found = found or bytes(message[:1]) in ROWS
        read = max(self._stream.end, self._stream.sent)
        if read > self._stream.flushed:
            self._stream.acknowledge(read)
        return found

    def close(self) -> None:
        self._stream.close()
