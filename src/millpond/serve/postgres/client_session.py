"""One session of a PostgreSQL client: its statements, portals and transaction, and the answers that it gets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from millpond.app.queries import Cancellation
from millpond.errors import MillpondError, RunError
from millpond.serve.answers import READING, read_statements
from millpond.serve.endpoints import Served
from millpond.serve.postgres import protocol as wire
from millpond.serve.postgres.catalog_functions import SETTINGS
from millpond.serve.postgres.pg_catalog import Catalog, mentions_catalog
from millpond.serve.postgres.sqlstate import READ_ONLY, ClientError, error_fields
from millpond.serve.postgres.statement_text import own_strings, own_words, parameter_count, with_literals
from millpond.serve.postgres.wire_values import TEXT, data_rows, parameter, shapes
from millpond.sql.split import first_word, split_statements

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.app.user_transaction import AppTransaction

T = TypeVar("T")
IDLE, IN_TRANSACTION, FAILED = b"I", b"T", b"E"
# How often a query looks whether its client has gone.
LOOK_S = 0.5
BEGINS, ENDS = ("BEGIN", "START"), ("COMMIT", "END", "ROLLBACK", "ABORT")
# What changes nothing here, and is answered as if it did.
IGNORED = ("SET", "RESET", "DISCARD", "DEALLOCATE", "CLOSE", "LISTEN", "UNLISTEN", "SAVEPOINT", "RELEASE", "CHECKPOINT")
_SHOW = re.compile(r"^\s*show\s+(?:session\s+)?(.+?)\s*$", re.I | re.S)


@dataclass(frozen=True)
class Statement:
    """A prepared statement: its text, and the types of its parameters as far as the client named them."""

    sql: str
    oids: tuple[int, ...] = ()

    @property
    def parameters(self) -> int:
        return parameter_count(self.sql)

    def oid(self, number: int) -> int:
        """Of a parameter; text if the client did not name one."""
        given = self.oids[number] if number < len(self.oids) else 0
        return given or TEXT


@dataclass
class Portal:
    """A statement with its parameters, and its answer once there is one."""

    statement: Statement
    values: list[Any]
    formats: tuple[int, ...] = ()
    answer: Answer | None = None
    sent: int = 0


@dataclass(frozen=True)
class Answer:
    """Rows, or None; and the words that complete the statement."""

    tag: str
    rows: pa.Table | None = None


class Transaction:
    """An open transaction of the app. It is used by one thread, as a transaction is."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="millpond-pg-transaction")
        self._context: AbstractContextManager[AppTransaction] | None = None
        self._tx: AppTransaction | None = None

    async def execute(self, sql: str) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._execute, sql)

    def _execute(self, sql: str) -> int:
        if self._tx is None:
            self._context = self._app.transaction()
            self._tx = self._context.__enter__()
        return self._tx.execute(sql)

    async def end(self, *, commit: bool) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._end, commit)
        finally:
            self._threads.shutdown(wait=False)

    def _end(self, commit: bool) -> None:
        context, self._context, self._tx = self._context, None, None
        if context is None:
            return
        if commit:
            context.__exit__(None, None, None)
            return
        undo = RunError("MP710", "The transaction was rolled back.")
        with suppress(RunError):
            context.__exit__(RunError, undo, None)


class Session:
    """Answers the messages of one client, one after another."""

    def __init__(self, served: Served, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._served = served
        self._reader, self._writer = reader, writer
        self.user, self.database = "millpond", "millpond"
        self.cancellation: Cancellation | None = None
        self._status = IDLE
        self._transaction: Transaction | None = None
        self._statements: dict[str, Statement] = {}
        self._portals: dict[str, Portal] = {}
        self._coming: asyncio.Task[wire.Message] | None = None
        # After an error of the extended protocol everything is skipped until Sync.
        self._skipping = False

    @property
    def app(self) -> App:
        return self._served.app

    async def run(self) -> None:
        """Until the client leaves."""
        handlers = {
            b"Q": self._query,
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
            b"S": self._sync,
            b"H": self._flush,
        }
        self._writer.write(wire.ready(IDLE))
        try:
            while True:
                await self._writer.drain()
                message = await self._next_message()
                if message.kind == b"X":
                    return
                if self._skipping and message.kind != b"S":
                    continue
                handler = handlers.get(message.kind)
                if handler is None:
                    raise wire.ProtocolError(f"there is no message {message.kind!r}")
                await self._guarded(message, handler)
        finally:
            if self._coming is not None:
                self._coming.cancel()
            if self._transaction is not None:
                await self._transaction.end(commit=False)

    async def _next_message(self) -> wire.Message:
        coming = self._coming_message()
        message = await coming
        self._coming = None
        return message

    def _coming_message(self) -> asyncio.Task[wire.Message]:
        """The next message; it may come while a query runs."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(wire.read_message(self._reader))
        return self._coming

    def _has_gone(self) -> bool:
        """Whether the client has left, or has sent that it leaves."""
        coming = self._coming_message()
        if not coming.done():
            return False
        return coming.exception() is not None or coming.result().kind == b"X"

    async def _guarded(self, message: wire.Message, handler: Callable[[wire.Body], Any]) -> None:
        try:
            await handler(message.body)
        except (MillpondError, ClientError) as error:
            self._report(error, "", 0)
            if message.kind == b"Q":
                self._writer.write(wire.ready(self._status))
            else:
                self._skipping = True

    def _report(self, error: Exception, sql: str, start: int) -> None:
        if self._status == IN_TRANSACTION:
            self._status = FAILED
        self._writer.write(wire.error(error_fields(error, sql, start)))

    # Simple queries

    async def _query(self, body: wire.Body) -> None:
        text = own_strings(body.text())
        portions, rest = split_statements(f"{text}\n;")
        if rest:
            raise ClientError("42601", "A string, a quoted name or a comment has no end.")
        if not portions:
            self._writer.write(wire.EMPTY)
        for portion in portions:
            try:
                answer = await self._answered(portion.text, [])
                if answer.rows is not None:
                    columns = shapes(answer.rows.schema, ())
                    self._writer.write(wire.row_description(columns))
                    await self._send(data_rows(answer.rows, columns))
                self._writer.write(wire.complete(answer.tag))
            except (MillpondError, ClientError) as error:
                self._report(error, text, portion.start)
                break
        self._writer.write(wire.ready(self._status))

    async def _send(self, pieces: Iterator[bytes]) -> None:
        while (piece := await self._served.in_thread(next, pieces, None)) is not None:
            self._writer.write(piece)
            await self._writer.drain()

    # Extended queries

    async def _parse(self, body: wire.Body) -> None:
        name, sql = body.text(), own_strings(body.text())
        oids = tuple(body.int32() for _ in range(body.int16()))
        portions, rest = split_statements(f"{sql}\n;")
        if len(portions) > 1 or rest:
            raise ClientError("42601", "A prepared statement can have only one statement.")
        self._statements[name] = Statement(sql.rstrip().rstrip(";"), oids)
        self._writer.write(wire.PARSED)

    async def _bind(self, body: wire.Body) -> None:
        portal, name = body.text(), body.text()
        statement = self._statement(name)
        forms = [body.int16() for _ in range(body.int16())]
        values = []
        for number in range(body.int16()):
            form = forms[number] if len(forms) > 1 else forms[0] if forms else 0
            values.append(parameter(body.sized(), statement.oid(number), form == 1))
        if len(values) < statement.parameters:
            raise ClientError("08P01", f"The statement has {statement.parameters} parameters, not {len(values)}.")
        formats = tuple(body.int16() for _ in range(body.int16()))
        self._portals[portal] = Portal(statement, values, formats)
        self._writer.write(wire.BOUND)

    def _statement(self, name: str) -> Statement:
        if name not in self._statements:
            raise ClientError("26000", f"There is no prepared statement '{name}'.")
        return self._statements[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise ClientError("34000", f"There is no portal '{name}'.")
        return self._portals[name]

    async def _describe(self, body: wire.Body) -> None:
        kind, name = body.take(1), body.text()
        if kind == b"S":
            statement = self._statement(name)
            count = statement.parameters
            self._writer.write(wire.parameter_description([statement.oid(n) for n in range(count)]))
            schema, formats = await self._shape(statement), ()
        else:
            portal = self._portal(name)
            if self._returns_rows(portal.statement.sql):
                portal.answer = portal.answer or await self._of_portal(portal)
            rows = portal.answer.rows if portal.answer is not None else None
            schema, formats = (None if rows is None else rows.schema), portal.formats  # type: ignore[assignment]
        self._writer.write(wire.NO_DATA if schema is None else wire.row_description(shapes(schema, formats)))

    async def _shape(self, statement: Statement) -> pa.Schema | None:
        """The columns of a statement before it has parameters."""
        if not self._returns_rows(statement.sql):
            return None
        answer = await self._answered(statement.sql, [None] * statement.parameters, limit=0)
        return None if answer.rows is None else answer.rows.schema

    def _returns_rows(self, sql: str) -> bool:
        return first_word(sql) in ("SELECT", "WITH", "VALUES", "SHOW", "DESCRIBE", "EXPLAIN", "(", "TABLE", "DESC")

    async def _execute(self, body: wire.Body) -> None:
        name, most = body.text(), body.int32()
        portal = self._portal(name)
        if not portal.statement.sql.strip():
            self._writer.write(wire.EMPTY)
            return
        portal.answer = portal.answer or await self._of_portal(portal)
        rows = portal.answer.rows
        if rows is None:
            self._writer.write(wire.complete(portal.answer.tag))
            return
        part = rows.slice(portal.sent, most) if most > 0 else rows.slice(portal.sent)
        await self._send(data_rows(part, shapes(rows.schema, portal.formats)))
        portal.sent += part.num_rows
        more = portal.sent < rows.num_rows
        self._writer.write(wire.SUSPENDED if more else wire.complete(f"SELECT {part.num_rows}"))

    async def _of_portal(self, portal: Portal) -> Answer:
        sql = portal.statement.sql
        try:
            return await self._answered(sql, portal.values)
        except (MillpondError, ClientError) as error:
            raise ClientError.of(error_fields(error, sql, 0)) from error

    async def _close(self, body: wire.Body) -> None:
        kind, name = body.take(1), body.text()
        if kind == b"S":
            self._statements.pop(name, None)
        else:
            self._portals.pop(name, None)
        self._writer.write(wire.CLOSED)

    async def _sync(self, body: wire.Body) -> None:
        self._skipping = False
        self._writer.write(wire.ready(self._status))

    async def _flush(self, body: wire.Body) -> None:
        """Everything is sent at once anyway."""

    # Statements

    async def _answered(self, sql: str, values: list[Any], limit: int | None = None) -> Answer:
        """The answer to one statement, in the session's transaction if there is one."""
        word = first_word(sql).rstrip(";")
        if word in ENDS:
            return await self._ended(word)
        if self._status == FAILED:
            raise ClientError("25P02", "The transaction has failed: statements are rejected until ROLLBACK.")
        if word in BEGINS:
            self._status = IN_TRANSACTION
            return Answer("BEGIN")
        if word in IGNORED:
            return Answer(word)
        shown = _setting(sql) if word == "SHOW" else None
        if shown is not None:
            return Answer("SHOW", shown)
        if word in ("SELECT", "WITH", "VALUES") and mentions_catalog(sql):
            return _selected(await self._cancellable(lambda _: self._of_catalog(sql, values)))
        text, ordered = own_words(sql, values)
        statements = await self._served.in_thread(read_statements, text, self._served.policy)
        if not statements or isinstance(statements[0], READING):
            return _selected(
                await self._cancellable(lambda c: self.app.answer(text, ordered, limit=limit, cancellation=c))
            )
        return await self._changed(word, sql, values)

    async def _changed(self, word: str, sql: str, values: list[Any]) -> Answer:
        if not self._served.policy.write:
            raise ClientError(READ_ONLY, "Over this connection the app is read-only.", "Run it with --pg-write.")
        text = with_literals(sql, values)
        if self._status == IN_TRANSACTION and word in ("INSERT", "UPDATE", "DELETE", "UPSERT", "MERGE"):
            self._transaction = self._transaction or Transaction(self.app)
            count = await self._transaction.execute(text)
        else:
            count = await self._served.in_thread(self.app.execute, text)
        tags = {"INSERT": f"INSERT 0 {count}", "UPSERT": f"INSERT 0 {count}"}
        counted = word in ("UPDATE", "DELETE", "MERGE")
        return Answer(tags.get(word) or (f"{word} {count}" if counted else " ".join(text.split()[:2]).upper()))

    async def _ended(self, word: str) -> Answer:
        commit = word in ("COMMIT", "END") and self._status != FAILED
        transaction, self._transaction, self._status = self._transaction, None, IDLE
        if transaction is not None:
            await transaction.end(commit=commit)
        return Answer("COMMIT" if commit else "ROLLBACK")

    def _of_catalog(self, sql: str, values: list[Any]) -> pa.Table:
        catalog = Catalog(self.app, self.database, self.user)
        try:
            return catalog.answer(with_literals(sql, values, catalog=True))
        finally:
            catalog.close()

    async def _cancellable(self, work: Callable[[Cancellation], T]) -> T:
        """What the work returns; it is cancelled by a request of the client, when the client goes, or the app stops."""
        cancellation = self.cancellation = Cancellation()
        working = asyncio.ensure_future(self._served.in_thread(work, cancellation))
        try:
            while not (await asyncio.wait({working}, timeout=LOOK_S))[0]:
                if self._has_gone() or self._served.stopping.is_set():
                    cancellation.cancel("The client has gone.")
            return working.result()
        finally:
            self.cancellation = None


def _selected(rows: pa.Table) -> Answer:
    return Answer(f"SELECT {rows.num_rows}", rows)


def _setting(sql: str) -> pa.Table | None:
    """The value of a setting of PostgreSQL; None for a SHOW of Millpond."""
    found = _SHOW.match(sql)
    name = "_".join((found[1] if found else "").rstrip(";").split()).lower()
    name = {"transaction_isolation_level": "transaction_isolation", "time_zone": "timezone"}.get(name, name)
    values = {key.lower(): value for key, value in SETTINGS.items()}
    return pa.table({name: [values[name]]}) if name in values else None


@dataclass(frozen=True)
class Sessions:
    """The sessions of a server, by the numbers that a request to cancel names."""

    by_key: dict[tuple[int, int], Session] = field(default_factory=dict)

    def cancel(self, process: int, secret: int) -> None:
        session = self.by_key.get((process, secret))
        if session is not None and session.cancellation is not None:
            session.cancellation.cancel("The query was cancelled by the client.")
