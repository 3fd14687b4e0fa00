"""Tables of databases with transactions: rows, and the mark of the output that they belong to, are written together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from millpond.contracts.sink import SinkPlugin, SinkSpec
from millpond.databases.address import located_sink, set_by_sink, wrong_sink
from millpond.databases.options import WRITING
from millpond.errors import SinkError, SourceError
from millpond.sinks.databases.sink import COMMITS, DatabaseSink, Rejected, Target, Write, written_by_halves
from millpond.sinks.outbox import Parcel


class TransactionalTarget(Target):
    """What the targets of these databases share. `product` is the name of the database in messages."""

    product = ""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec

    def driver_errors(self) -> AbstractContextManager[None]:
        """Errors of the driver as those of a source."""
        raise NotImplementedError

    def run(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        raise NotImplementedError

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; inside of one a part that can be undone."""
        raise NotImplementedError

    def make_commits(self) -> None:
        """Create the table of marks unless it exists."""
        raise NotImplementedError

    def add_owner(self, owner: str) -> None:
        """Add a row with an empty mark unless the owner has one."""
        raise NotImplementedError

    def prepared(self, schema: pa.Schema, key: tuple[str, ...]) -> Write:
        """Prepare to write rows of this form; called at the begin of a transaction."""
        raise NotImplementedError

    def rejection(self, error: Exception) -> str | None:
        """The message of the server for a row that it rejects; None for another error."""
        raise NotImplementedError

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of the server as those of a sink."""
        try:
            with self.driver_errors():
                yield
        except SourceError as error:
            problem = error.problems[0]
            code = "MP602" if problem.code == "MP506" else "MP601"
            message = problem.message.replace("cannot be read", "cannot be written")
            raise SinkError(code, message, hint=problem.hint) from error

    def apply(self, parcel: Parcel, key: tuple[str, ...], owner: str, reject: Callable[[Rejected], None]) -> int:
        rejected: Rejected = []
        written = 0
        with self.translated():
            self.make_commits()
            with self.transaction():
                if self._was_applied(owner, parcel.mark):
                    return 0
                write = self.prepared(parcel.schema, key)
                for batch in parcel.rows():
                    written += self._apply(pa.Table.from_batches([batch]), write, rejected)
                text = f"UPDATE {COMMITS} SET mark = %s, committed_at = now() WHERE flow = %s"
                self.run(text, [parcel.mark, owner])
                reject(rejected)
        return written

    def _was_applied(self, owner: str, mark: str) -> bool:
        """Whether this is the last output that was applied; the row is locked until the end of the transaction."""
        self.add_owner(owner)
        found = self.run(f"SELECT mark FROM {COMMITS} WHERE flow = %s FOR UPDATE", [owner])
        return bool(found) and found[0][0] == mark

    def _apply(self, rows: pa.Table, write: Write, rejected: Rejected) -> int:
        def part(rows: pa.Table) -> None:
            with self.transaction():
                write(rows)

        return written_by_halves(rows, part, self._reported, rejected)

    def _reported(self, error: Exception) -> str | None:
        reported = self.rejection(error)
        return None if reported is None else f"{self.product} rejects the row: {reported}"


def transactional_sink(scheme: str, open_target: Callable[[SinkSpec], TransactionalTarget]) -> SinkPlugin:
    """The plug-in of a database with transactions."""
    return SinkPlugin(
        name=scheme,
        options=WRITING,
        guarantee="exactly once",
        open=lambda spec: DatabaseSink(spec, open_target),
        validate=lambda spec: wrong_sink(spec.uri, spec.values),
        set_by=set_by_sink,
        located=lambda uri, given, named: located_sink(scheme, uri, given, named),
    )
