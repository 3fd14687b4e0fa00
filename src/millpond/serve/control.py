"""Commands for an app: replay dead letters, restart a flow, apply an edited file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.responses import Response

from millpond.app.planning import AppText
from millpond.serve.endpoints import Call, Endpoint, Field, answer_json


async def replay(call: Call) -> Response:
    return answer_json(await call.served.in_thread(_replay, call))


def _replay(call: Call) -> dict[str, int]:
    return asdict(call.app.replay_dead_letters(call.body["where"], repair=call.body["repair"]))


async def restart(call: Call) -> Response:
    return answer_json(await call.served.in_thread(_restart, call))


def _restart(call: Call) -> dict[str, Any]:
    call.app.restart(call.body["flow"])
    return {"flows": _flow_states(call)}


async def apply(call: Call) -> Response:
    return answer_json(await call.served.in_thread(_apply, call))


def _apply(call: Call) -> dict[str, Any]:
    body = call.body
    text = AppText(body["text"], body["file"], body["name"], Path(body["base"]))
    changes = call.app.apply_text(text, body["variables"] or {}, accept=bool(body["accept"]))
    return {"changes": changes, "flows": _flow_states(call)}


def _flow_states(call: Call) -> dict[str, str]:
    return {flow.name: flow.state for flow in call.app.progress().flows}


ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/dead-letters/replay",
        "Replay dead letters through the statements that rejected them.",
        replay,
        body=(
            Field("where", "string", "Which of them, such as code = 'MP504'; all without it."),
            Field("repair", "string", "An expression for what raw should have been."),
        ),
        writes=True,
    ),
    Endpoint(
        "POST",
        "/api/restart",
        "Restart a failed flow after its last committed batch.",
        restart,
        body=(Field("flow", "string", "The flow, as SHOW FLOWS names it.", required=True),),
        writes=True,
    ),
    # A file can name any other file, so only a user who could run it may apply it.
    Endpoint(
        "POST",
        "/api/apply",
        "Take an edited file.",
        apply,
        body=(
            Field("text", "string", "The text of the file.", required=True),
            Field("file", "string", "Its path, for messages.", required=True),
            Field("name", "string", "The name of the app.", required=True),
            Field("base", "string", "The folder at which relative paths start.", required=True),
            Field("variables", "object", "Values of ${NAME}."),
            Field("accept", "boolean", "Whether what the file no longer defines may be dropped."),
        ),
        writes=True,
        local=True,
    ),
)
