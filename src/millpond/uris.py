"""Parsed URIs: scheme, login, hosts, path and parameters, percent-decoded, and a form without secrets for output."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote

from millpond.errors import Place, SqlError
from millpond.redact import redact, without_logins


@dataclass(frozen=True)
class Uri:
    """`kafka://host:9092/topic?x=1`: hosts `host:9092`, path `topic`, params x = 1; `file:in.csv` has path `in.csv`."""

    scheme: str
    hosts: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    text: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        """The URI as it may be printed."""
        return redact(self.text)

    @property
    def identity(self) -> str:
        """The URI without passwords, to compare sources: a new password does not make it another. Not for output."""
        return without_logins(self.text)


def parse_uri(text: str, place: Place | None = None) -> Uri:
    """Parse a URI; MP105 if the text is not one."""
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme or not scheme[0].isalpha():
        hint = "A URI looks like file://./in.csv or kafka://localhost:9092/topic."
        raise SqlError("MP105", f"'{redact(text)}' is not a URI.", place=place, hint=hint)
    rest, _, query = _split_query(rest)
    if not rest.startswith("//"):
        return Uri(scheme.lower(), "", unquote(rest), _params(query), text=text)
    authority, slash, path = rest[2:].partition("/")
    if scheme.lower() == "file":
        # file://./in.csv and file:///abs.csv: the whole of it is a path, there is no host.
        return Uri("file", "", unquote(authority + slash + path), _params(query), text=text)
    if scheme.lower() == "sql":
        # sql://driver:rest, where the rest is SQLAlchemy's, with a login of its own.
        return Uri("sql", "", unquote(authority + slash + path), _params(query), text=text)
    login, at, hosts = authority.rpartition("@")
    if not at and "@" in path + query and _may_be_login(authority.partition("#")[0]):
        message = f"'{redact(text)}' cannot be parsed: its login contains a '/', '?' or '#'."
        raise SqlError("MP105", message, place=place, hint="In a login, write these characters as %2F, %3F and %23.")
    user, colon, password = login.partition(":")
    return Uri(
        scheme.lower(),
        unquote(hosts),
        unquote(path),
        _params(query),
        unquote(user) if at else None,
        unquote(password) if colon else None,
        text,
    )


def _may_be_login(text: str) -> bool:
    """Whether the text before the first slash can be the beginning of a login: after a host's colon only a number can
    follow, its port."""
    return any(not part.rpartition(":")[2].isdigit() for part in text.split(",") if ":" in part)


def _split_query(rest: str) -> tuple[str, str, str]:
    return rest.partition("?")


def _params(query: str) -> tuple[tuple[str, str], ...]:
    """`a=1&b="x & y"`: an ampersand inside double quotes belongs to the value."""
    return tuple((unquote(name), _value(value)) for part in _parts(query) for name, _, value in [part.partition("=")])


def _parts(query: str) -> list[str]:
    parts, current, quoted, escaped = [], "", False, False
    for char in query:
        if char == '"' and not escaped:
            quoted = not quoted
        escaped = char == "\\" and not escaped
        if char == "&" and not quoted:
            parts.append(current)
            current = ""
        else:
            current += char
    return [p for p in [*parts, current] if p]


def _value(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"')
    return unquote(text)
