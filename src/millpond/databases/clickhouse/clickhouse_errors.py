"""What errors of ClickHouse and of its drivers mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.databases.address import Address
from millpond.databases.clickhouse.stored_values import UnstorableError
from millpond.errors import MillpondError, SourceError
from millpond.redact import redact

LOGIN = (192, 193, 194, 497, 516)
WRONG = (36, 46, 47, 53, 60, 62, 81, 115, 386)
AWAY = (3, 159, 160, 202, 203, 209, 210, 236, 241, 242, 373)
# Errors of a row: a constraint, or a value that does not fit.
REJECTED = (6, 26, 27, 38, 41, 43, 69, 70, 72, 131, 321, 349, 376, 407, 469, 675, 676, 691)
# Errors of the driver of the server's own protocol for a value that a column cannot store.
REJECTED_BY_DRIVER = ("TypeMismatchError", "LogicalError", "StructPackException", "ColumnTypeMismatchException")


@contextmanager
def translated(place: Address, what: str = "") -> Iterator[None]:
    """Errors of the drivers as ours; `what` is the table or query that was read."""
    try:
        yield
    except (MillpondError, ModuleNotFoundError):
        raise
    except Exception as error:
        if not _is_of_driver(error):
            raise
        raise failure(place, code_of(error), str(error), what) from error


def _is_of_driver(error: Exception) -> bool:
    module = type(error).__module__
    return module.startswith(("clickhouse_connect", "clickhouse_driver", "urllib3")) or isinstance(
        error, OSError | EOFError
    )


def code_of(error: BaseException) -> int | None:
    """The number of an error of the server; None if no server has responded."""
    code = getattr(error, "code", None)
    if isinstance(code, int) and type(error).__name__ == "ServerException":
        return code
    found = re.search(r"Code:\s*(\d+)|error code (\d+)", str(error))
    return int(found[1] or found[2]) if found else None


def failure(place: Address, code: int | None, text: str, what: str = "") -> SourceError:
    """One of ours for an error of the server or a driver."""
    reported = " ".join(redact(text).partition("Stack trace")[0].split())[:300].rstrip(".")
    if code in LOGIN:
        hint = "Correct 'username' and 'password', or grant the user the required privileges."
        return SourceError("MP507", f"The server at {place.shown} rejects the login: {reported}.", hint=hint)
    if code in WRONG:
        hint = "Correct the name in the URI or in WITH."
        return SourceError("MP508", f"{what or place.shown} cannot be read: {reported}.", hint=hint)
    if code is None or code in AWAY:
        hint = f"Start it, or correct host and port: {place.host} {place.port}."
        return SourceError("MP506", f"The server at {place.shown} cannot be reached: {reported}.", hint=hint)
    hint = "Correct the query, or raise 'query.timeout' if it takes longer."
    return SourceError("MP502", f"{what or place.shown} cannot be read: {reported}.", hint=hint)


def rejection(error: Exception) -> str | None:
    """The reason why a row cannot be stored; None for an error of another kind."""
    if isinstance(error, UnstorableError):
        return str(error)
    if code_of(error) not in REJECTED and type(error).__name__ not in REJECTED_BY_DRIVER:
        return None
    reported = " ".join(redact(str(error)).partition("Stack trace")[0].split())[:300].rstrip(".")
    return f"ClickHouse rejects the row: {reported}."
