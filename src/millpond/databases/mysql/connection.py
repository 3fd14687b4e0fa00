"""Connections to MySQL and MariaDB, what their errors mean, and their types as Arrow's."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.databases.address import Address, address_of
from millpond.errors import MillpondError, SourceError
from millpond.redact import redact
from millpond.schema import TIMESTAMP

PORT = 3306
SCHEME = "mysql"
# Numbers of errors -> our code; all others are MP502.
LOGIN = (1044, 1045, 1095, 1142, 1143, 1227, 1370, 1698)
WRONG = (1049, 1054, 1064, 1102, 1109, 1146, 1149, 1305)
AWAY = (0, 1040, 1053, 1077, 1078, 1079, 1080, 1129, 1152, 1153, 1158, 1159, 1160, 1161, 1205, 1213, 1290)
TLS_ERROR = 2026
# Numbers from here on are the client's: no server has answered.
CLIENT_ERRORS = 2000
# The number of the character set of bytes.
BINARY = 63
UNSIGNED = 32
DIGITS_MAX = 38
# Types of the protocol.
DECIMAL, TINY, SHORT, LONG, FLOAT, DOUBLE, STAMP, LONGLONG, INT24 = 0, 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, BIT, JSON, NEWDECIMAL = 10, 11, 12, 13, 16, 245, 246
WHOLE = {
    TINY: (pa.int8(), pa.int16()),
    SHORT: (pa.int16(), pa.int32()),
    INT24: (pa.int32(), pa.int32()),
    LONG: (pa.int32(), pa.int64()),
    LONGLONG: (pa.int64(), pa.decimal128(20, 0)),
    YEAR: (pa.int16(), pa.int16()),
}
PLAIN = {FLOAT: pa.float32(), DOUBLE: pa.float64(), DATE: pa.date32(), DATETIME: TIMESTAMP, STAMP: TIMESTAMP}


def type_of(field: Any) -> pa.DataType:
    """The type of a column of a result, as the server describes it."""
    code, unsigned = field.type_code, bool(field.flags & UNSIGNED)
    if code in WHOLE:
        return WHOLE[code][unsigned]
    if code in PLAIN:
        return PLAIN[code]
    if code in (DECIMAL, NEWDECIMAL):
        digits = field.length - (field.scale > 0) - (not unsigned)
        return pa.decimal128(min(max(digits, field.scale, 1), DIGITS_MAX), min(field.scale, DIGITS_MAX))
    if code == BIT or (field.charsetnr == BINARY and code not in (JSON, TIME)):
        return pa.binary()
    return pa.string()


def connect(values: Mapping[str, Any], base: Path, *, decodes: bool = True) -> Any:
    """A connection in UTC whose statements are committed at once; without `decodes` its values are bytes."""
    try:
        import pymysql
        from pymysql.converters import conversions
    except ModuleNotFoundError as error:
        message = f"MySQL requires the package '{error.name}', which is not installed."
        raise SourceError("MP309", message, hint="Run: pip install 'millpond[mysql]'") from error
    address = address_of(SCHEME, values, PORT)
    # A time of day is a text, as it is written; so is a duration of more than a day.
    decode = {k: convert for k, convert in conversions.items() if k != TIME and (decodes or not isinstance(k, int))}
    with translated(address):
        connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.username,
            password=address.password or "",
            database=address.database,
            charset="utf8mb4",
            connect_timeout=max(round(values["connect.timeout"] / 1e6), 1),
            read_timeout=_seconds(values.get("socket.timeout")),
            write_timeout=_seconds(values.get("socket.timeout")),
            conv=decode,
            use_unicode=decodes,
            autocommit=True,
            **_tls(values, base),
        )
        with connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            if values.get("query.timeout") is not None:
                _limit(cursor, connection, values["query.timeout"])
    return connection


def _seconds(span_us: int | None) -> int | None:
    return None if span_us is None else max(round(span_us / 1e6), 1)


def _limit(cursor: Any, connection: Any, span_us: int) -> None:
    """How long a query may take; MariaDB and MySQL have different settings for it."""
    if "MariaDB" in connection.get_server_info():
        cursor.execute("SET max_statement_time = %s", [span_us / 1e6])
    else:
        cursor.execute("SET max_execution_time = %s", [max(span_us // 1000, 1)])


def _tls(values: Mapping[str, Any], base: Path) -> dict[str, Any]:
    mode = values["ssl.mode"]
    if mode == "disable":
        return {"ssl_disabled": True}
    if mode == "prefer" and values.get("ssl.root.cert") is None:
        return {}
    verifies = mode.startswith("verify")
    try:
        root = values.get("ssl.root.cert")
        context = ssl.create_default_context(cafile=None if root is None else str(base / Path(root).expanduser()))
        context.check_hostname = mode == "verify-full"
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        if values.get("ssl.cert") is not None:
            key = values.get("ssl.key")
            files = [None if f is None else str(base / Path(f).expanduser()) for f in (values["ssl.cert"], key)]
            context.load_cert_chain(str(files[0]), files[1])
    except (OSError, ssl.SSLError) as error:
        hint = "Correct 'ssl.root.cert', 'ssl.cert' and 'ssl.key'."
        raise SourceError("MP508", f"The files of the 'ssl.*' options cannot be read: {error}.", hint=hint) from error
    return {"ssl": context}


@contextmanager
def translated(address: Address, what: str = "") -> Iterator[None]:
    """Errors of the driver as ours; `what` is the table or query that was read."""
    import pymysql

    try:
        yield
    except MillpondError:
        raise
    except pymysql.err.Error as error:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = str(error.args[-1]) if error.args else str(error)
        raise failure(address, number, text, what) from error
    except (OSError, ssl.SSLError) as error:
        raise failure(address, CLIENT_ERRORS, str(error), what) from error


def failure(address: Address, number: int, text: str, what: str = "") -> SourceError:
    """One of ours for an error of the server or the driver."""
    reported = redact(text)[:300].rstrip(".")
    if number == TLS_ERROR or "certificate" in text or "SSL" in text:
        message = f"The encrypted connection to {address.shown} cannot be made: {reported}."
        return SourceError("MP508", message, hint="Correct the 'ssl.*' options.")
    if number in LOGIN:
        hint = "Correct 'username' and 'password', or grant the user the required privileges."
        return SourceError("MP507", f"The server at {address.shown} rejects the login: {reported}.", hint=hint)
    if number in WRONG:
        message = f"{what or address.shown} cannot be read: {reported}."
        return SourceError("MP508", message, hint="Correct the name in the URI or in WITH.")
    if number in AWAY or (number >= CLIENT_ERRORS and number < CLIENT_ERRORS + 100):
        hint = f"Start it, or correct host and port: {address.host} {address.port}."
        return SourceError("MP506", f"The server at {address.shown} cannot be reached: {reported}.", hint=hint)
    hint = "Correct the query, or raise 'query.timeout' if it takes longer."
    return SourceError("MP502", f"{what or address.shown} cannot be read: {reported}.", hint=hint)
