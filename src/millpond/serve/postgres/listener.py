"""The port for PostgreSQL's clients: TLS, login, requests to cancel, and a session for each connection."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass

from millpond.errors import OptionError
from millpond.serve.addresses import Address
from millpond.serve.endpoints import Served
from millpond.serve.policy import Policy
from millpond.serve.postgres import protocol as wire
from millpond.serve.postgres.catalog_functions import SETTINGS
from millpond.serve.postgres.client_session import Session, Sessions
from millpond.serve.postgres.scram import MECHANISM, Scram, ScramError
from millpond.serve.problems import coded
from millpond.settings import Settings

LOGIN_S = 30.0
SESSIONS_MAX = 200
# Parameters that a client gets without asking.
REPORTED = (
    "server_version",
    "server_encoding",
    "client_encoding",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
    "is_superuser",
    "application_name",
)


@dataclass(frozen=True)
class PostgresPolicy:
    """What clients of the port may do, and how they log in."""

    policy: Policy
    password: str | None
    tls: ssl.SSLContext | None


def postgres_policy(address: Address, settings: Settings) -> PostgresPolicy:
    """MP307 when a password is missing, or the certificate cannot be used."""
    password = settings["pg.password"] or settings["http.token"] or None
    if password is None and not address.is_local:
        hint = "Give one with MILLPOND_PG_PASSWORD, or listen at 127.0.0.1."
        raise OptionError("MP307", f"To listen at {address}, which is not local, needs a password.", hint=hint)
    return PostgresPolicy(Policy(local=False, write=settings["pg.write"]), password, _tls(settings))


def _tls(settings: Settings) -> ssl.SSLContext | None:
    certificate, key = settings["pg.tls.cert"], settings["pg.tls.key"]
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        message = f"The certificate '{certificate}' cannot be used: {error.strerror or error}."
        raise OptionError("MP307", message, hint="Check 'pg.tls.cert' and 'pg.tls.key': both are PEM files.") from error
    return context


class PostgresListener:
    """Made and run in the server's loop."""

    def __init__(self, served: Served, policy: PostgresPolicy, listener: socket.socket) -> None:
        self._served = served
        self._policy = policy
        self._listener = listener
        self._sessions = Sessions()
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the server stops."""
        server = await asyncio.start_server(self._connected, sock=self._listener)
        try:
            await self._served.stopping.wait()
        finally:
            server.close()
            # Before the end of the server, which waits for its connections since Python 3.12.
            for connection in list(self._connections):
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._served_client(reader, writer)
        except (wire.ProtocolError, ScramError, TimeoutError) as error:
            words = str(error) or "the login took too long"
            state = "28P01" if isinstance(error, ScramError) else "08P01"
            await _end_session(writer, state, f"{words[0].upper()}{words[1:]}.")
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, asyncio.CancelledError):
            # The client has gone, or the server stops.
            pass
        except Exception as error:
            # A bug ends this connection, and is not printed into the terminal of the app.
            problem = coded(error).problems[0]
            await _end_session(writer, "XX000", f"{problem.message} ({problem.code})")
        finally:
            self._connections.discard(task)
            with suppress(ConnectionError, ssl.SSLError):
                writer.close()

    async def _served_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(LOGIN_S):
            code, body = await self._first(reader, writer)
            if code == wire.CANCEL:
                self._sessions.cancel(body.int32(), body.int32())
                return
            if code != wire.PROTOCOL_3:
                raise wire.ProtocolError("only version 3.0 of the protocol is known")
            session = Session(self._served, reader, writer)
            _take_names(session, body)
            if len(self._sessions.by_key) >= SESSIONS_MAX:
                raise wire.ProtocolError("too many clients are connected")
            if self._policy.password is not None:
                await self._login(reader, writer, self._policy.password)
        key = (secrets.randbelow(2**31), secrets.randbelow(2**31))
        self._sessions.by_key[key] = session
        try:
            writer.write(wire.authentication(0))
            for name in REPORTED:
                writer.write(wire.parameter_status(name, SETTINGS[name]))
            writer.write(wire.message(b"K", struct.pack(">ii", *key)))
            await session.run()
        finally:
            del self._sessions.by_key[key]

    async def _first(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, wire.Body]:
        """The first message after those that ask for encryption."""
        encrypted = False
        while True:
            code, body = await wire.read_startup(reader)
            if code == wire.TLS and self._policy.tls is not None and not encrypted:
                writer.write(b"S")
                await writer.start_tls(self._policy.tls)
                encrypted = True
            elif code in (wire.TLS, wire.GSS):
                writer.write(b"N")
            else:
                return code, body

    async def _login(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, password: str) -> None:
        scram = Scram(password)
        writer.write(wire.authentication(10, wire.texts(MECHANISM) + b"\0"))
        first = (await self._password_message(reader)).body
        if first.text() != MECHANISM:
            raise wire.ProtocolError(f"the login must be by {MECHANISM}")
        writer.write(wire.authentication(11, scram.first(_utf8(first.sized() or b"")).encode()))
        last = (await self._password_message(reader)).body
        writer.write(wire.authentication(12, scram.last(_utf8(last.rest())).encode()))

    async def _password_message(self, reader: asyncio.StreamReader) -> wire.Message:
        message = await wire.read_message(reader)
        if message.kind != b"p":
            raise wire.ProtocolError("a message of the login was expected")
        return message


async def _end_session(writer: asyncio.StreamWriter, state: str, message: str) -> None:
    with suppress(ConnectionError):
        writer.write(wire.error({"S": "FATAL", "V": "FATAL", "C": state, "M": message}))
        await writer.drain()


def _take_names(session: Session, body: wire.Body) -> None:
    given: dict[str, str] = {}
    while name := body.text():
        given[name] = body.text()
    session.user = given.get("user") or session.user
    session.database = given.get("database") or session.user


def _utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ScramError("the login is not UTF-8") from error
