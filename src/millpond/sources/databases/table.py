"""A database's table or query as a table: loaded in one consistent state, read again and compared, or read on.

Guarantee: the table equals what the database held at one moment. With 'incremental.column' it has every row that was
added or changed since, as far as that column grew; rows at the edge are read again and compared, so that none is lost
and none is doubled. Deletes are not seen then.
"""

from __future__ import annotations

import datetime as dt
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.feeder import Content, Polled, TableReader
from millpond.contracts.source import BAD, RAW, Found, Progress, SourceSpec
from millpond.databases.pool import Pool
from millpond.databases.sessions import Server, Session
from millpond.databases.sql_text import MARK, Selection, Statement, divided
from millpond.errors import Problem, Severity, SourceError
from millpond.schema import Schema, fitted

# The end of the parts of one reader.
_END = object()


# Connects to the server of a source.
OpenServer = Callable[[SourceSpec, Pool], Server]
# Reads rows in portions.
Reader = Callable[[], Iterator[pa.RecordBatch]]


def catalog_columns(spec: SourceSpec, open_server: OpenServer) -> Found:
    """The columns of a source, from the catalog of its server."""
    try:
        server = open_server(spec, Pool(spec.values))
    except SourceError as error:
        return Found(missing=True, detail=error.problems[0].message)
    try:
        return Found(server.columns())
    finally:
        server.close()


class DatabaseTable(TableReader):
    """One server, opened; connections come and go with each read."""

    may_be_bad = True

    def __init__(self, spec: SourceSpec, open_server: OpenServer) -> None:
        self._spec, self._open = spec, open_server
        self._pool = Pool(spec.values)
        interval_us = spec.values["poll.interval"]
        self.interval_s = None if interval_us is None else interval_us / 1e6
        self._progress = Progress()
        self._problems: list[Problem] = []
        self._known: Schema | None = None
        self._is_warned = False
        server = open_server(spec, self._pool)
        try:
            self.schema: pa.Schema = self._sent_schema(server)
            self._require_incremental(server.columns())
        finally:
            server.close()

    def _sent_schema(self, server: Server) -> pa.Schema:
        columns, names = server.columns(), server.selection().names
        sent = [pa.field(c.name, c.type) for c in columns if names is None or c.name in names]
        return pa.schema([*sent, pa.field(BAD, pa.string()), pa.field(RAW, pa.binary())])

    def _require_incremental(self, columns: Schema) -> None:
        """MP508 where rows cannot be read on from a value."""
        name = self._spec.values.get("incremental.column")
        if name is None:
            return
        if columns.get(name) is None:
            hint = f"Its columns are: {', '.join(columns.names)}."
            message = f"'incremental.column' of '{self._spec.shown}' refers to '{name}', which is not a column."
            raise SourceError("MP508", message, hint=hint)

    def read(self, mark: Any) -> Content:
        server = self._open(self._spec, self._pool)
        self._compare(server.columns())
        column = self._spec.values.get("incremental.column")
        seen = Edge(mark)
        selection = server.selection()
        if column is None or mark is None:
            parts = self._all(server, selection)
        else:
            statement = self._since(selection, column, seen.value)
            parts = self._one(server, selection, statement)
        if column is not None:
            parts = seen.passed(parts, column)
        parts = map(self._fitted, parts)
        self._progress = Progress(total=server.estimate() if mark is None else None)
        whole = column is None or mark is None
        return Content(parts, whole, seen.as_json if column is not None else lambda: None, server.close)

    def _compare(self, columns: Schema) -> None:
        """Warn of columns that were added, dropped or changed since the app has started."""
        before, self._known = self._known or self._spec.columns, columns
        if before is None or self._spec.declared:
            return
        shown = f"'{self._spec.shown}'"
        hint = "Restart the app: it then uses the current columns."
        for added in (c.name for c in columns if before.get(c.name) is None):
            self._warn(f"Column '{added}' was added to {shown}: the table does not have it yet.", hint)
        for column in before:
            now = columns.get(column.name)
            if now is None:
                self._warn(f"Column '{column.name}' of {shown} was removed: it is NULL from now on.", hint)
            elif now.type != column.type and column.type is not None:
                self._warn(f"Column '{column.name}' of {shown} has another type now: its values are cast.", hint)

    def _warn(self, message: str, hint: str) -> None:
        self._problems.append(Problem("MP503", message, None, hint, Severity.WARNING))

    def problems(self) -> list[Problem]:
        found, self._problems = self._problems, []
        return found

    def _fitted(self, part: Polled) -> Polled:
        """Rows with the columns that the table was made for."""
        if part.rows.schema.equals(self.schema):
            return part
        rows = fitted(pa.Table.from_batches([part.rows]), Schema.from_arrow(self.schema), self._spec.shown)
        return replace(part, rows=rows.combine_chunks().to_batches()[0] if rows.num_rows else part.rows.slice(0, 0))

    def close(self) -> None:
        self._pool.close()

    def _since(self, selection: Selection, column: str, value: Any) -> Statement:
        """The query of the rows at or above a value."""
        text = self._spec.values.get("poll.query")
        if text is None:
            return selection.where(f"{selection.dialect.name(column)} >= {MARK}", value).statement()
        if len(divided(text)) != 2:
            hint = "Write one `?`, in place of the last value of 'incremental.column'."
            raise SourceError("MP508", f"'poll.query' of '{self._spec.shown}' must have one `?`.", hint=hint)
        return replace(selection, inner=Statement(text, (value,))).statement()

    def _all(self, server: Server, selection: Selection) -> Iterator[Polled]:
        ranges = key_ranges(self._spec, server, server.session)
        if len(ranges) < 2:
            if not self._is_warned:
                self._problems.extend(unparallel(self._spec, server))
            self._is_warned = True
            yield from self._one(server, selection, selection.statement())
            return
        with server.session() as first:
            sessions = [first, *(first.sibling() for _ in ranges[1:])]
            try:
                yield from ahead(list(map(reader_of, sessions, ranges)), self._spec)
            finally:
                for session in sessions[1:]:
                    session.close()

    def _one(self, server: Server, selection: Selection, statement: Statement) -> Iterator[Polled]:
        with server.session() as session:
            yield from ahead([lambda: session.read(selection, statement)], self._spec)

    def progress(self) -> Progress:
        return self._progress


class Edge:
    """The largest value of a column that was read, remembered as JSON with its kind."""

    def __init__(self, mark: Any) -> None:
        self.value = None if mark is None else _from_json(mark)

    def passed(self, parts: Iterator[Polled], column: str) -> Iterator[Polled]:
        """Parts, with their largest value noted."""
        for part in parts:
            most = pc.max(part.rows.column(column)).as_py() if column in part.rows.schema.names else None
            if most is not None and (self.value is None or most > self.value):
                self.value = most
            yield part

    def as_json(self) -> Any:
        return None if self.value is None else _as_json(self.value)


def _as_json(value: Any) -> list[Any]:
    if isinstance(value, Decimal):
        return ["decimal", str(value)]
    if isinstance(value, dt.datetime):
        return ["timestamp", value.astimezone(dt.UTC).isoformat()]
    if isinstance(value, dt.date):
        return ["date", value.isoformat()]
    return ["bytes", value.hex()] if isinstance(value, bytes) else ["plain", value]


_KINDS: dict[str, Callable[[Any], Any]] = {
    "decimal": Decimal,
    "timestamp": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "bytes": bytes.fromhex,
    "plain": lambda value: value,
}


def _from_json(mark: list[Any]) -> Any:
    return _KINDS[mark[0]](mark[1])


def key_ranges(spec: SourceSpec, server: Server, opened: Callable[[], Session]) -> list[Selection]:
    """What each of the 'parallel.readers' reads: ranges of a key that is one whole number; else one reads all."""
    selection, readers = server.selection(), spec.values.get("parallel.readers", 1)
    if readers < 2 or not _is_divisible(spec, server):
        return [selection]
    name = selection.dialect.name(server.columns().key[0])
    with opened() as session:
        source = selection.source()
        least, most = (session.value(Statement(f"SELECT {f}({name}) FROM {source.text}")) for f in ("min", "max"))
    if least is None or most - least < readers:
        return [selection]
    edges = [least + (most - least + 1) * n // readers for n in range(1, readers)]
    # What is added below the first or above the last value meanwhile belongs to the outer ranges.
    first, last = selection.where(f"{name} < {MARK}", edges[0]), selection.where(f"{name} >= {MARK}", edges[-1])
    inner = [selection.where(f"{name} >= {MARK}", a).where(f"{name} < {MARK}", b) for a, b in itertools.pairwise(edges)]
    return [first, *inner, last]


def _is_divisible(spec: SourceSpec, server: Server) -> bool:
    key = server.columns().key
    type_ = server.columns()[key[0]].type if len(key) == 1 else None
    bounded = spec.values.get("limit") is not None or spec.values.get("query")
    return server.is_parallel and not bounded and type_ is not None and pa.types.is_integer(type_)


def unparallel(spec: SourceSpec, server: Server) -> list[Problem]:
    """A warning if 'parallel.readers' have no effect."""
    if spec.values.get("parallel.readers", 1) < 2 or _is_divisible(spec, server):
        return []
    message = f"'{spec.shown}' is read by one connection, although 'parallel.readers' is set."
    hint = "Several read a table whose key is one column of whole numbers, without 'limit'."
    return [Problem("MP303", message, None, hint, Severity.WARNING)]


def reader_of(session: Session, chosen: Selection) -> Reader:
    return lambda: session.read(chosen, chosen.statement())


def ahead(readers: list[Reader], spec: SourceSpec) -> Iterator[Polled]:
    """The rows of readers, 'prefetch.count' portions of each read ahead, each reader in a thread of its own; one alone
    that reads nothing ahead needs none."""
    count = max(int(spec.values["prefetch.count"]), 0) * len(readers)
    if len(readers) == 1 and count == 0:
        yield from (Polled(rows) for rows in readers[0]())
        return
    waiting: queue.Queue[Any] = queue.Queue(max(count, 1))
    stopped = threading.Event()

    def work(read: Reader) -> None:
        try:
            for rows in read():
                if not _put(waiting, rows, stopped):
                    return
            _put(waiting, _END, stopped)
        except BaseException as error:
            _put(waiting, error, stopped)

    threads = [threading.Thread(target=work, args=(read,), daemon=True) for read in readers]
    for thread in threads:
        thread.start()
    try:
        left = len(threads)
        while left:
            found = waiting.get()
            if isinstance(found, BaseException):
                raise found
            if found is _END:
                left -= 1
            else:
                yield Polled(found)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def _put(waiting: queue.Queue[Any], item: Any, stopped: threading.Event) -> bool:
    while not stopped.is_set():
        try:
            waiting.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
