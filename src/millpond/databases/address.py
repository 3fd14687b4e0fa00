"""Where a database is and what of it is read: the URI, the options beside it, and named connections, put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.databases.options import PARAMETERS, PLACE
from millpond.errors import MillpondError, OptionError, did_you_mean
from millpond.uris import Uri, parse_uri


@dataclass(frozen=True)
class Address:
    """One database; `shown` names it in messages."""

    scheme: str
    host: str
    port: int
    database: str | None
    username: str | None
    password: str | None = field(repr=False)

    @property
    def shown(self) -> str:
        place = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{place}:{self.port}" + (f"/{self.database}" if self.database else "")

    @property
    def identity(self) -> str:
        """The same for every source of this database."""
        return self.shown.lower()


def address_of(scheme: str, values: Mapping[str, Any], default_port: int) -> Address:
    """The address that completed values give."""
    port = values.get("port") or default_port
    names = ("database", "username", "password")
    return Address(scheme, values.get("host") or "localhost", port, *(values.get(name) for name in names))


def set_by(uri: Uri) -> tuple[str, ...]:
    """The options that a URI gives by itself."""
    return tuple(_of_uri(uri, named=False))


def completed(scheme: str, uri: Uri, given: Mapping[str, Any], connections: Mapping[str, str]) -> dict[str, Any]:
    """The values with those of the URI, and with those of the connection that it names. MP306 for what is given twice,
    MP508 for a connection that cannot be used here."""
    own = {**{PARAMETERS[name.lower()]: text for name, text in uri.params if name.lower() in PARAMETERS}, **given}
    name = uri.hosts.lower()
    text = connections.get(name) if uri.user is None else None
    asked = "table" in own or "query" in own
    if text is None:
        found = _of_uri(uri, named=False)
        if len(_segments(uri)) == 1 and not asked and "database" not in given:
            # One segment, and nothing else names what to read: it is the table of the default database.
            found["table"] = found.pop("database")
        return {**given, **found}
    found = {**_connection(scheme, name, text), **_of_uri(uri, named=True)}
    for option in PLACE:
        if option in found and option in given:
            hint = f"The connection '{name}' sets it too: keep one of them."
            raise OptionError("MP306", f"Option '{option}' is given twice.", hint=hint)
    return {**given, **found}


# The parameters that the URI of a sink may have.
SINK_PARAMETERS = ("table", "schema")


def set_by_sink(uri: Uri) -> tuple[str, ...]:
    """The options that the URI of a sink gives by itself."""
    return (*set_by(uri), *(name.lower() for name, _ in uri.params))


def located_sink(
    scheme: str,
    uri: Uri,
    given: Mapping[str, Any],
    connections: Mapping[str, str],
    known: tuple[str, ...] = SINK_PARAMETERS,
) -> dict[str, Any]:
    """The values of a sink with those of its URI."""
    own = {name.lower(): text for name, text in uri.params if name.lower() in known}
    return completed(scheme, uri, {**own, **given}, connections)


def wrong_sink(uri: Uri, values: Mapping[str, Any], known: tuple[str, ...] = SINK_PARAMETERS) -> str | None:
    """What is wrong with what is written, as a sentence."""
    names = [name.lower() for name, _ in uri.params]
    if any(name not in known for name in names):
        return f"The URI of a database that is written has the parameters {' and '.join(known)} only."
    if len(set(names)) < len(names):
        return "A parameter of the URI is given twice."
    return wrong_address(uri, values)


def _connection(scheme: str, name: str, text: str) -> dict[str, Any]:
    """What a named connection gives."""
    try:
        uri = parse_uri(text)
    except MillpondError as error:
        message = f"The connection '{name}' is not a URI."
        raise OptionError("MP508", message, hint=f"SET connection.{name} = '{scheme}://host/database';") from error
    from millpond.registry import SCHEME_ALIASES

    if SCHEME_ALIASES.get(uri.scheme, uri.scheme) != scheme:
        message = f"The connection '{name}' is for {uri.scheme}, not for {scheme}."
        raise OptionError("MP508", message, hint=f"Write {uri.scheme}://{name}/..., or another connection.")
    if len(_segments(uri)) > 1 or uri.params:
        message = f"The connection '{name}' names more than a database."
        hint = f"It has the form {scheme}://user:password@host:port/database; the table is in the statement."
        raise OptionError("MP508", message, hint=hint)
    return _of_uri(uri, named=False)


def _segments(uri: Uri) -> list[str]:
    return [part for part in uri.path.split("/") if part]


def _of_uri(uri: Uri, *, named: bool) -> dict[str, Any]:
    """The place that a URI names, and what is read there; `named`: its host is the name of a connection."""
    found: dict[str, Any] = {}
    segments = _segments(uri)
    if not named:
        host, port = _host(uri.hosts)
        parts = {"host": host, "port": port, "username": uri.user, "password": uri.password}
        found |= {name: value for name, value in parts.items() if value is not None}
        if segments:
            found["database"] = segments.pop(0)
    if segments:
        found["table"] = segments.pop(0)
    return found


def _host(text: str) -> tuple[str | None, int | None]:
    """`host:port`; an IPv6 address stands in brackets, and several hosts keep their ports."""
    if not text:
        return None, None
    host, colon, port = text.rpartition(":")
    if "," in text or not colon or not port.isdigit() or (":" in host and not host.endswith("]")):
        return text.strip("[]"), None
    return host.strip("[]"), int(port)


def wrong_address(uri: Uri, values: Mapping[str, Any]) -> str | None:
    """What is wrong with what is read, as a sentence."""
    if uri.scheme != "sql" and len(_segments(uri)) > 2:
        return "A database URI has a database and a table at most: scheme://host/database/table?schema=s."
    if values.get("query") and values.get("table"):
        return "A database URI names a table or a query, not both."
    if values.get("query") and values.get("where"):
        return "'where' is for a table; write the condition into the query."
    if values.get("query") and values.get("schema"):
        return "'schema' is for a table; write it into the query."
    if not values.get("query") and not values.get("table"):
        return f"A database URI names what is read: {uri.scheme}://host/database?table=t."
    return None


def parameters(values: Mapping[str, Any]) -> list[Any]:
    """The values of a query's `?`: a JSON list, or one text."""
    text = values.get("query.params")
    if text is None:
        return []
    try:
        found = json.loads(text)
    except ValueError:
        return [text]
    return found if isinstance(found, list) else [text]


def unknown_table(shown: str, table: str, known: list[str]) -> tuple[str, str]:
    """Message and hint for a table that does not exist."""
    near = did_you_mean(table, known)
    names = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
    hint = near or (f"There are: {names}." if known else "The database has no tables that this user may see.")
    return f"There is no table or view '{table}' in {shown}.", hint
