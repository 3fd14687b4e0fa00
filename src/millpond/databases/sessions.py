"""Sessions of a database, in which its tables and queries are described and read; each kind of database has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from millpond.databases.sql_text import MARK, Selection, Statement
from millpond.schema import Schema

# Keys of one query.
KEYS_MAX = 20_000


class Session:
    """One consistent state of a database, read by one thread. Errors are SourceError: MP506 for a connection that is
    lost, MP502 for a query that fails."""

    def read(self, selection: Selection, statement: Statement) -> Iterator[pa.RecordBatch]:
        """The rows of a statement that `selection` has made, or that has its columns: `Server.schema`'s columns, those
        that are not sent left out. Portions have about 'fetch.size' rows."""
        raise NotImplementedError

    def value(self, statement: Statement) -> Any:
        """The first column of the first row, None where there is none."""
        raise NotImplementedError

    def sibling(self) -> Session:
        """Another session of the same state, for another thread."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Server:
    """One database and what is read of it. Opening it connects; SourceError MP506 when the server cannot be reached,
    MP507 for a wrong login, MP508 for a database, table or column that does not exist."""

    # Whether sessions have siblings.
    is_parallel: bool = False

    def columns(self) -> Schema:
        """The columns of what is read, with its key where there is one."""
        raise NotImplementedError

    def selection(self) -> Selection:
        """What is read, in this database's words."""
        raise NotImplementedError

    def among(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> list[Selection]:
        """Selections of at least the rows where these columns have one of the values, none of which is NULL; one
        selection, unless there are very many values."""
        names = [self.selection().dialect.name(name) for name in columns]
        found = []
        for first in range(0, len(keys[0]), KEYS_MAX):
            values = list(zip(*(key.slice(first, KEYS_MAX).to_pylist() for key in keys), strict=True))
            row = MARK if len(names) == 1 else f"({', '.join(MARK * len(names))})"
            subject = names[0] if len(names) == 1 else f"({', '.join(names)})"
            condition = f"{subject} IN ({', '.join([row] * len(values))})"
            found.append(self.selection().where(condition, *(value for key in values for value in key)))
        return found

    def session(self) -> Session:
        """A new session, of the state that the database has now."""
        raise NotImplementedError

    def estimate(self) -> int | None:
        """About how many rows there are, if the database has an estimate."""
        return None

    def close(self) -> None:
        raise NotImplementedError
