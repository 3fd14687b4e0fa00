"""Whether others have changed a table of MySQL or MariaDB: its binary log is read from now on, and not stored."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.contracts.source import SourceSpec
from millpond.databases.mysql.binlog import TABLE_MAP, BinlogStream, not_possible
from millpond.databases.mysql.binlog_rows import table_map
from millpond.databases.mysql.log_server import LogServer
from millpond.uris import parse_uri


class MysqlWatch:
    """The changes of one table since now."""

    def __init__(self, values: Mapping[str, Any], table: str) -> None:
        self._table = (values["database"], table)
        server = LogServer(SourceSpec("watch", parse_uri(values["url"]), values, None, Path()))
        try:
            server.require()
            if server.silent_changes(self._table):
                message = f"Changes of the table {table} cannot be captured: foreign keys change rows without a log."
                raise not_possible(message, "Remove 'cdc': then views are refreshed every 'poll.interval'.")
            position = server.end()
        finally:
            server.close()
        # A number that no other client of the server has.
        self._stream = BinlogStream(values, Path(), position, random.randrange(2**31, 2**32))

    def has_changes(self) -> bool:
        found = False
        while (event := self._stream.next(0.0)) is not None:
            if event.kind == TABLE_MAP and not found:
                _, described = table_map(event.body)
                found = (described.database, described.table) == self._table
        return found

    def close(self) -> None:
        self._stream.close()
