"""`POST /hooks/<name>`: records that are sent to a source, which answers for itself."""

from __future__ import annotations

import asyncio
import time

from starlette.responses import JSONResponse, Response

from millpond.contracts.feeder import Feeder
from millpond.contracts.source import Hook, Posted
from millpond.serve.endpoints import Call, Endpoint, Field, read_body
from millpond.serve.problems import RequestError

# A smaller body is parsed faster than it is passed to a thread.
SMALL_BYTES = 16 << 10


# How long a request waits for an app that is starting; after that it is answered 503.
STARTING_S, LOOK_S = 30.0, 0.05


async def post(call: Call) -> Response:
    name = call.request.path_params["name"]
    hook, readers = await opened(call, name)
    posted = Posted(dict(call.request.headers), await read_body(call.request, hook.bytes_max))
    if len(posted.body) <= SMALL_BYTES:
        taken = hook.take(readers, posted)
    else:
        taken = await call.served.in_thread(hook.take, readers, posted)
    reply = await asyncio.wrap_future(taken)
    return JSONResponse({"message": reply.message}, reply.status, dict(reply.headers))


async def opened(call: Call, name: str) -> tuple[Hook, list[Feeder]]:
    """The hook and its readers, as soon as the app has opened them; 404 if nothing reads it."""
    until = time.monotonic() + STARTING_S
    while True:
        found = call.app.hook(name)
        if found is None:
            hint = "Read it in the app's file: CREATE STREAM ... FROM webhook://NAME."
            raise RequestError(404, f"No statement reads the hook '{name}'.", hint=hint)
        if found[1]:
            return found
        if time.monotonic() > until or call.served.stopping.is_set():
            raise RequestError(503, f"The hook '{name}' is not read yet.", headers={"retry-after": "1"})
        await asyncio.sleep(LOOK_S)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/hooks/{name}",
        "Send records to the source of this name; 200 when they are durable.",
        post,
        parameters=(Field("name", "string", "The name of the hook, as in webhook://NAME."),),
    ),
)
