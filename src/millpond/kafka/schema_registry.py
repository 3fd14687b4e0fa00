"""The client of a schema registry over HTTP: reads schemas by number, and registers new ones."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from millpond.errors import SourceError

ANSWER_S = 10
# The status codes of a rejected login, and the first one of a failure of the registry itself.
REFUSED, BROKEN = (401, 403), 500
JSON_TYPE = "application/vnd.schemaregistry.v1+json"


def wrong_url(registry: str) -> str | None:
    """The error of a registry's URL as a sentence, or None."""
    parts = urllib.parse.urlsplit(registry)
    if parts.scheme in ("http", "https") and parts.hostname:
        return None
    return "'schema.registry.url' must be the address of a registry, such as http://localhost:8081."


def schema_of(registry: str, number: int) -> str:
    """The text of a schema; ValueError if the registry has none of this number, MP506 or MP507 if it does not
    respond."""
    try:
        return str(_asked(registry, f"/schemas/ids/{number}")["schema"])
    except urllib.error.HTTPError as error:
        raise ValueError(f"the schema registry has no schema {number} ({error.code})") from error


def number_of(registry: str, subject: str, schema: str) -> int:
    """The number of a schema, which is registered under a subject if it is new; MP508 if the registry rejects it."""
    path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
    try:
        return int(_asked(registry, path, {"schema": schema})["id"])
    except urllib.error.HTTPError as error:
        message = f"The schema registry rejected the schema of '{subject}' ({error.code}): {_reason(error)}"
        raise SourceError("MP508", message, hint="Change the columns, or the compatibility of the subject.") from error


def _asked(registry: str, path: str, body: dict[str, str] | None = None) -> Any:
    """Send a request and return the JSON answer; a login in the URL is sent as a header."""
    parts = urllib.parse.urlsplit(registry)
    host = parts.hostname or ""
    place = f"{host}:{parts.port}" if parts.port else host
    url = urllib.parse.urlunsplit((parts.scheme, place, parts.path.rstrip("/") + path, "", ""))
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
    request.add_header("Content-Type", JSON_TYPE)
    if parts.username is not None:
        login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code in REFUSED:
            hint = "Set the login: 'schema.registry.url' = 'http://user:password@host:8081'."
            message = f"The schema registry at {place} rejected the login ({error.code})."
            raise SourceError("MP507", message, hint=hint) from error
        if error.code < BROKEN:
            raise
        raise _silent(f"{parts.scheme}://{place}", f" ({error.code})") from error
    except (OSError, ValueError) as error:
        raise _silent(f"{parts.scheme}://{place}") from error


def _silent(address: str, code: str = "") -> SourceError:
    hint = f"Start it, or correct 'schema.registry.url'; check it with: curl {address}/subjects"
    return SourceError("MP506", f"The schema registry at {address} does not respond{code}.", hint=hint)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])[:300]
    except (ValueError, KeyError, OSError):
        return str(error.reason)
