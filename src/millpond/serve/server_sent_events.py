"""`GET /api/changes/<table>`: the changes of a table as server-sent events, which a client can resume.

The id of an event is the table's version after a commit. A client that reconnects sends the last id that it received as
Last-Event-ID, and gets the changes since then; if they are no longer available, an event `reset`, after which it must
read the table again. After a lost connection an event may be sent twice, but none is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pyarrow as pa
from starlette.responses import Response, StreamingResponse

from millpond.contracts.table import Table
from millpond.engine.table_changes import with_operations
from millpond.errors import MillpondError, TableError
from millpond.rendering import json_lines
from millpond.serve.endpoints import Call, Endpoint, Field, Served
from millpond.serve.problems import RequestError

# How often a table is checked, which costs a microsecond.
LOOK_S = 0.1
# How often an event stream sends a sign of life, and looks up its table by name again.
ALIVE_S = 15.0
FIND_S = 1.0
# Rows of one event; a larger commit is several events, of which only the last has an id.
ROWS_PER_EVENT = 500
# The number of commits that are sent at a time, so that a client that is far behind does not fill the memory.
COMMITS_PER_ROUND = 50
# Rounds that are kept for clients that are slightly behind the others.
ROUNDS_KEPT = 16


@dataclass(frozen=True)
class Sent:
    """What one round sends, and the version that the client has afterwards."""

    text: str
    version: int


async def changes(call: Call) -> Response:
    name = call.request.path_params["table"]
    table = await call.served.in_thread(_table, call, name)
    since = _version(call.request.headers.get("last-event-id") or call.request.query_params.get("since"))
    wants_rows = call.request.query_params.get("snapshot", "false").lower() in ("true", "1")
    events = _events(call, table, since, wants_rows)
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _events(call: Call, table: Table, since: int | None, wants_rows: bool) -> AsyncIterator[str]:
    served, loop = call.served, asyncio.get_running_loop()
    yield "retry: 1000\n\n"
    if since is not None:
        version = since
    elif wants_rows:
        snapshot = table.snapshot()
        version = snapshot.version
        parts = _parts("snapshot", snapshot.to_arrow(), version)
        while (text := await served.in_thread(next, parts, None)) is not None:
            yield text
    else:
        version = table.version
        yield _event("start", {"version": version}, version)
    alive_at = found_at = loop.time()
    try:
        while not served.stopping.is_set():
            if table.version != version:
                sent = await _next(served, table, version)
                yield sent.text
                version, alive_at = sent.version, loop.time()
                continue
            if loop.time() - alive_at > ALIVE_S:
                yield ": alive\n\n"
                alive_at = loop.time()
            if loop.time() - found_at > FIND_S:
                table = await served.in_thread(_table, call, table.name)
                found_at = loop.time()
            await asyncio.sleep(LOOK_S)
    except MillpondError as error:
        # It was dropped; a table that was created again is another one.
        yield _event("gone", {"message": error.problems[0].message})


async def _next(served: Served, table: Table, version: int) -> Sent:
    """The events after a version, created once for all clients that wait for the same."""
    key = (table.name, version, table.version)
    making = served.events.get(key)
    if making is None:
        making = served.events[key] = asyncio.ensure_future(served.in_thread(_since, table, version))
        for old in list(served.events)[:-ROUNDS_KEPT]:
            del served.events[old]
    # The client that began it may disconnect: the others still wait for it.
    return await asyncio.shield(making)


def _table(call: Call, name: str) -> Table:
    try:
        table = call.app.table(name)
        if not table.spec.hidden:
            return table
        hint = ""
    except TableError as error:
        hint = error.hint
    raise RequestError(404, f"There is no table '{name}'.", hint=hint, code="MP201")


def _version(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise RequestError(400, "Last-Event-ID is not the version of a table.", hint="It is the id of an event.")
    return int(text)


def _since(table: Table, version: int) -> Sent:
    """The events of the next commits after a version."""
    found = table.changes_since(version)
    if found is None:
        now = table.version
        return Sent(
            _event(
                "reset",
                {"version": now, "message": f"The changes since version {version} are no longer available."},
                now,
            ),
            now,
        )
    texts: list[str] = []
    for change in found[:COMMITS_PER_ROUND]:
        rows = with_operations(change, table.schema)
        texts += _parts("change", rows, change.version)
        version = change.version
    return Sent("".join(texts), version)


def _parts(kind: str, rows: pa.Table, version: int) -> Iterator[str]:
    """Rows as events; the id comes with the last, so that a client that is cut off before it gets all again."""
    for start in range(0, max(rows.num_rows, 1), ROWS_PER_EVENT):
        part = rows.slice(start, ROWS_PER_EVENT)
        last = start + ROWS_PER_EVENT >= rows.num_rows
        lines = ", ".join(json_lines(part))
        head = f'{{"version": {version}, "complete": {str(last).lower()}, "rows": [{lines}]}}'
        yield _text(kind, head, version if last else None)


def _event(kind: str, data: dict[str, object], version: int | None = None) -> str:
    return _text(kind, json.dumps(data), version)


def _text(kind: str, data: str, version: int | None) -> str:
    # Rendered JSON has no line break in it: those of values are escaped.
    id_ = "" if version is None else f"id: {version}\n"
    return f"{id_}event: {kind}\ndata: {data}\n\n"


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/changes/{table:path}",
        "What commits do to a table, as server-sent events: each row with its _op, insert, update or delete.",
        changes,
        parameters=(
            Field("table", "string", "The name of a table or view."),
            Field("Last-Event-ID", "string", "The id of the last event that was seen: what came after it is sent."),
            Field("since", "integer", "The same, for clients that cannot send headers."),
            Field("snapshot", "boolean", "Begin with all rows of the table, as events of the kind snapshot."),
        ),
        answers={"text/event-stream": "Events of the kinds start, snapshot, change, reset and gone."},
    ),
)
