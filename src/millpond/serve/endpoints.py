"""The endpoints of the HTTP API, declared once: for routes, validation and the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from millpond import __version__
from millpond.errors import did_you_mean
from millpond.serve.policy import Policy
from millpond.serve.problems import RequestError

if TYPE_CHECKING:
    from millpond.app.app import App

BODY_BYTES_MAX = 4 * 1024 * 1024
# The time limit for the body of a request.
BODY_S = 30.0

T = TypeVar("T")
BOOLEANS = ("true", "false", "1", "0")
JSON_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


@dataclass(frozen=True)
class Field:
    """A value of a JSON body, or a parameter of a path or query."""

    name: str
    type: str
    help: str
    required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Served:
    """An app and what the clients of one address may do with it. `stopping` is set when the server ends."""

    app: App
    policy: Policy
    pool: Executor
    stopping: asyncio.Event
    working: set[Future[Any]] = field(default_factory=set)
    # Statistics of the last minutes, oldest first.
    samples: deque[Any] = field(default_factory=deque)
    # Rounds of events that several clients receive, by what they contain.
    events: dict[Any, asyncio.Future[Any]] = field(default_factory=dict)

    async def in_thread(self, work: Callable[..., T], *given: Any, **named: Any) -> T:
        """Run work that takes time in a thread, so that other clients do not wait."""
        future = self.pool.submit(work, *given, **named)
        self.working.add(future)
        future.add_done_callback(self.working.discard)
        return await asyncio.wrap_future(future)


@dataclass(frozen=True)
class Call:
    """One request: `body` has been validated."""

    served: Served
    request: Request
    body: Mapping[str, Any]

    @property
    def app(self) -> App:
        return self.served.app

    @property
    def policy(self) -> Policy:
        return self.served.policy


@dataclass(frozen=True)
class Endpoint:
    """An endpoint. `writes`: only if changes are allowed; `local`: only for processes of the same user; `open`:
    requires no token. If `body` is None, none is read."""

    method: str
    path: str
    summary: str
    handle: Callable[[Call], Awaitable[Response]] = field(repr=False)
    body: tuple[Field, ...] | None = None
    parameters: tuple[Field, ...] = ()
    answers: Mapping[str, str] = field(default_factory=lambda: {"application/json": "The answer."})
    writes: bool = False
    local: bool = False

    async def __call__(self, request: Request) -> Response:
        """Validate a request and respond to it."""
        served: Served = request.app.state.served
        if self.writes and not served.policy.write:
            hint = "Run the app with --http-write to allow changes over HTTP."
            raise RequestError(403, "Over HTTP this app is read-only.", hint=hint)
        if self.method == "GET" and self.path.startswith("/api"):
            _require_known(request, self.parameters)
        body = validated(await _json_body(request), self.body) if self.body is not None else {}
        return await self.handle(Call(served, request, body))


def _require_known(request: Request, fields: tuple[Field, ...]) -> None:
    """400 for a parameter of the query that does not exist, and for a value that it cannot have."""
    known = {f.name: f for f in fields if f.name not in request.path_params and f.name != "Last-Event-ID"}
    for name, value in request.query_params.items():
        if name not in known:
            hint = did_you_mean(name, known) or (f"There are: {', '.join(known)}." if known else "There are none.")
            raise RequestError(400, f"There is no parameter '{name}'.", hint=hint)
        choices = known[name].choices or (BOOLEANS if known[name].type == "boolean" else ())
        if choices and value.lower() not in choices:
            raise RequestError(400, f"The parameter '{name}' must be {' | '.join(choices)}.", hint=known[name].help)


async def read_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The body of a request; 413 if it is too large, 408 if it does not arrive in time."""
    too_large = RequestError(413, f"The body of the request is larger than {bytes_max:,} bytes.")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > bytes_max:
        raise too_large
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                found += chunk
                if len(found) > bytes_max:
                    raise too_large
    except TimeoutError as error:
        raise RequestError(408, f"The body of the request did not arrive within {BODY_S:g} s.") from error
    except ClientDisconnect as error:
        raise RequestError(400, "The request ended before its body did.") from error
    return bytes(found)


async def _json_body(request: Request) -> Any:
    body = await read_body(request)
    try:
        return json.loads(body, parse_float=_exact) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "The body of the request is not JSON in UTF-8.") from error


def _exact(text: str) -> Decimal | float:
    """`1.50` is a decimal, as in SQL; a number with an exponent is a double."""
    return float(text) if "e" in text.lower() else Decimal(text)


def validated(body: Any, fields: tuple[Field, ...]) -> dict[str, Any]:
    """The values of a body by name; 400 for missing and unknown values, and for other types."""
    if not isinstance(body, dict):
        raise RequestError(400, "The body of the request must be a JSON object.")
    known = {field.name: field for field in fields}
    for name in body:
        if name not in known:
            hint = did_you_mean(name, known) or f"There are: {', '.join(known)}."
            raise RequestError(400, f"There is no field '{name}'.", hint=hint)
    for found in fields:
        _require(found, body.get(found.name))
    return {name: body.get(name) for name in known}


def _require(field: Field, value: Any) -> None:
    if value is None:
        if field.required:
            raise RequestError(400, f"The field '{field.name}' is missing.", hint=field.help)
        return
    is_right = isinstance(value, JSON_TYPES[field.type]) and (field.type == "boolean" or not isinstance(value, bool))
    if not is_right or (field.choices and value not in field.choices):
        wanted = " | ".join(field.choices) or field.type
        raise RequestError(400, f"The field '{field.name}' must be {wanted}.", hint=field.help)


def openapi(endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    """The OpenAPI document of the endpoints for clients other than the user of this machine."""
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        if not endpoint.local:
            paths.setdefault(endpoint.path.replace(":path", ""), {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Millpond", "version": __version__, "summary": "SQL tables kept up to date from streams."},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
        "security": [{}, {"token": []}],
    }


_ERROR = {
    "type": "object",
    "properties": {
        "exit_code": {"type": "integer"},
        "problems": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": ["string", "null"]} for name in ("code", "message", "hint", "file")},
            },
        },
    },
}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    content = {kind: {"schema": _answer(kind, text)} for kind, text in endpoint.answers.items()}
    refused = {"description": "An error.", "content": {"application/json": {"schema": _reference("Error")}}}
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "responses": {"200": {"description": endpoint.summary, "content": content}, "default": refused},
    }
    if endpoint.parameters:
        found["parameters"] = [_parameter(p, endpoint.path) for p in endpoint.parameters]
    if endpoint.body is not None:
        schema = {
            "type": "object",
            "properties": {f.name: _schema(f) for f in endpoint.body},
            "required": [f.name for f in endpoint.body if f.required],
            "additionalProperties": False,
        }
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found


def _answer(kind: str, text: str) -> dict[str, str]:
    """The schema of an answer: any JSON value, or text."""
    return {"description": text} if kind == "application/json" else {"type": "string", "description": text}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(field: Field, path: str) -> dict[str, Any]:
    is_in_path = f"{{{field.name}}}" in path.replace(":path", "")
    place = "path" if is_in_path else "header" if field.name == "Last-Event-ID" else "query"
    return {"name": field.name, "in": place, "required": place == "path", "schema": _schema(field)}


def _schema(field: Field) -> dict[str, Any]:
    found: dict[str, Any] = {"type": field.type, "description": field.help}
    return found | ({"enum": list(field.choices)} if field.choices else {})


def answer_json(value: Any) -> JSONResponse:
    """A JSON response of an endpoint."""
    return JSONResponse(value)
