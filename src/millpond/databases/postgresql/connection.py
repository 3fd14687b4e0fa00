"""Connections to PostgreSQL, the meaning of its errors, and the queries of its catalog for columns and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.databases.address import Address, address_of
from millpond.errors import MillpondError, SourceError
from millpond.redact import redact

if TYPE_CHECKING:
    import psycopg

PORT = 5432
SCHEME = "postgresql"
# Texts as they are expected here, whatever the server or the user is set to.
SETTINGS = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
# States by their beginning -> our code. The first that fits decides, so the narrow ones stand first.
SORTS = (
    ("28", "MP507"),
    ("3D000", "MP508"),
    ("42501", "MP507"),
    ("42P01", "MP508"),
    ("42703", "MP508"),
    ("3F000", "MP508"),
    ("42", "MP508"),
    ("22", "MP502"),
    ("57014", "MP502"),
    ("08", "MP506"),
    ("57", "MP506"),
    ("53", "MP506"),
    ("40", "MP506"),
    ("25006", "MP506"),
    ("58", "MP506"),
    ("XX", "MP502"),
)
NO_PRIVILEGE = "42501"
# Words of libpq where there is no state, because no server has answered.
LOGIN_WORDS = ("password authentication failed", "no password supplied", "role ", "pg_hba.conf", "authentication")
TLS = "TLS"
TLS_WORDS = ("SSL", "certificate", "sslmode", "root.crt")
# Words of a connection that was lost or not made, whether it was to be encrypted or not.
AWAY_WORDS = (
    "refused",
    "timeout",
    "closed",
    "terminating",
    "EOF detected",
    "reset by peer",
    "timed out",
    "could not translate",
    "could not receive",
    "could not send",
    "could not connect",
)


def connection_values(values: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """What libpq is given: where the server is, who logs in, and how long to wait."""
    address = address_of(SCHEME, values, PORT)
    settings = dict(SETTINGS)
    if values.get("query.timeout") is not None:
        settings["statement_timeout"] = f"{values['query.timeout'] // 1000}"
    found: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "dbname": address.database,
        "user": address.username,
        "password": address.password,
        "sslmode": values.get("ssl.mode"),
        # libpq accepts whole seconds only, and treats one as two.
        "connect_timeout": max(round((values.get("connect.timeout") or 10_000_000) / 1e6), 2),
        "application_name": "millpond",
        "options": " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items()),
    }
    if values.get("socket.timeout") is not None:
        milliseconds = values["socket.timeout"] // 1000
        found |= {"tcp_user_timeout": milliseconds, "keepalives_idle": max(milliseconds // 2000, 1)}
    for name, option in (("sslrootcert", "ssl.root.cert"), ("sslcert", "ssl.cert"), ("sslkey", "ssl.key")):
        if values.get(option) is not None:
            found[name] = str(base / Path(values[option]).expanduser())
    return {name: value for name, value in found.items() if value is not None}


def connect(values: Mapping[str, Any], base: Path, **more: Any) -> psycopg.Connection[Any]:
    """A connection whose statements are committed at once, unless `more` sets that."""
    try:
        import adbc_driver_postgresql  # noqa: F401
        import psycopg
    except ModuleNotFoundError as error:
        message = f"PostgreSQL needs the package '{error.name}', which is not installed."
        raise SourceError("MP309", message, hint="Run: pip install 'millpond[postgresql]'") from error
    with translated(address_of(SCHEME, values, PORT)):
        return psycopg.connect(**connection_values(values, base), **{"autocommit": True, **more})


@contextmanager
def translated(address: Address, what: str = "") -> Iterator[None]:
    """Errors of the drivers as ours; `what` is the table or query that was read."""
    import psycopg

    try:
        yield
    except MillpondError:
        raise
    except psycopg.Error as error:
        raise failure(address, error.sqlstate, str(error), what) from error
    except Exception as error:
        state = getattr(error, "sqlstate", None)
        # Arrow's stream over ADBC raises the errors of its library as OSError.
        if type(error).__module__.startswith("adbc_driver_manager") or "[libpq]" in str(error):
            raise failure(address, state, str(error), what) from error
        raise


def failure(address: Address, state: str | None, text: str, what: str = "") -> SourceError:
    """The coded error for a message of the server or of libpq."""
    reported = _reported(text)
    code = _code(state, text)
    shown = what or address.shown
    hints = {
        "MP506": f"Start it, or correct host and port. pg_isready -h {address.host} -p {address.port} checks them.",
        "MP507": "Correct 'username' and 'password', or grant the user the required privileges.",
        "MP508": "Correct the name in the URI or in WITH.",
        "MP502": "Correct the query, or raise 'query.timeout' if it takes longer.",
    }
    messages = {
        "MP506": f"PostgreSQL at {address.shown} cannot be reached: {reported}",
        "MP507": f"PostgreSQL at {address.shown} rejects the login: {reported}",
        "MP508": f"PostgreSQL cannot read {shown}: {reported}",
        "MP502": f"PostgreSQL cannot read {shown}: {reported}",
    }
    if state == NO_PRIVILEGE:
        messages[code] = f"PostgreSQL at {address.shown} denies access: {reported}"
        hints[code] = f"Grant the user '{address.username or ''}' what it needs, such as SELECT on the table."
    if code == TLS:
        code = "MP508"
        hints[code] = (
            "Correct the 'ssl.*' options: 'ssl.mode', and the files of 'ssl.root.cert', 'ssl.cert', 'ssl.key'."
        )
        messages[code] = f"The encrypted connection to {address.shown} cannot be made: {reported}"
    return SourceError(code, messages[code], hint=hints[code])


def _code(state: str | None, text: str) -> str:
    if state:
        return next((code for start, code in SORTS if state.startswith(start)), "MP502")
    if re.search('database ".*" does not exist', text):
        return "MP508"
    if any(word in text for word in LOGIN_WORDS) and "FATAL" in text:
        return "MP507"
    if "ERROR:" in text:
        return "MP502"
    is_away = any(word in text for word in AWAY_WORDS)
    return TLS if any(word in text for word in TLS_WORDS) and not is_away else "MP506"


def _reported(text: str) -> str:
    """What the server reported, in one sentence and without secrets."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if "FATAL:" in line or "ERROR:" in line), lines[0] if lines else "")
    found = found.rpartition("FATAL:")[2].rpartition("ERROR:")[2].strip()
    return redact(found)[:300].rstrip(".") + "."


COLUMNS_QUERY = """
SELECT a.attname, a.atttypid::bigint, a.atttypmod, t.typelem::bigint, t.typcategory, t.typname,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
KEYS_QUERY = """
SELECT i.indisprimary, array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum))
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indisprimary
"""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
