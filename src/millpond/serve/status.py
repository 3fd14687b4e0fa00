"""The status of an app: probes for supervisors, statistics and plan."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from millpond.engine.progress import FAILED, READY, STALE, AppProgress
from millpond.plan.explain import explain_text
from millpond.plan.explain_json import explain_json
from millpond.serve.endpoints import Call, Endpoint, Field, answer_json

# States in which an app works, or starts.
ALIVE = ("starting", "loading", "catching up", "running")


async def health(call: Call) -> Response:
    """503 if the app as a whole has failed or is stopping; a failed flow is no reason to restart the others. The loop
    itself responds: clients that wait for a query use it to check that the app is alive."""
    state = call.app.state
    alive = state in ALIVE
    return JSONResponse({"status": "ok" if alive else state, "state": state}, 200 if alive else 503)


async def ready(call: Call) -> Response:
    """503 until every table is loaded and every flow runs."""
    progress, is_ready = await call.served.in_thread(_readiness, call)
    waiting = [{"table": t.name, "state": t.state} for t in progress.tables if t.state not in (READY, STALE)]
    failed: list[dict[str, Any]] = [{"flow": f.name, "state": f.state} for f in progress.flows if f.state == FAILED]
    fine = is_ready and not waiting and not failed
    return JSONResponse({"ready": fine, "state": progress.state, "waiting": waiting + failed}, 200 if fine else 503)


def _readiness(call: Call) -> tuple[AppProgress, bool]:
    return call.app.progress(), call.app.is_ready


async def stats(call: Call) -> Response:
    return answer_json(await call.served.in_thread(_stats, call))


def _stats(call: Call) -> dict[str, Any]:
    progress = call.app.progress()
    warnings = [problem.as_json() for problem in progress.problems]
    return {**progress.as_json(), "warnings": warnings, "writable": call.policy.write}


async def plan(call: Call) -> Response:
    if call.request.query_params.get("format") == "text":
        return PlainTextResponse(await call.served.in_thread(explain_text, call.app.plan))
    return answer_json(await call.served.in_thread(explain_json, call.app.plan))


ENDPOINTS = (
    Endpoint("GET", "/health", "Whether the app works: 200, or 503 when it has failed or stops.", health),
    Endpoint("GET", "/ready", "200 when every table is loaded and every flow runs, 503 until then.", ready),
    Endpoint("GET", "/api/stats", "The figures of the app, its tables, flows, sources and sinks.", stats),
    Endpoint(
        "GET",
        "/api/plan",
        "The plan of the app, as `millpond explain --json` prints it.",
        plan,
        parameters=(Field("format", "string", "text for the plan as people read it.", choices=("json", "text")),),
        answers={"application/json": "The plan.", "text/plain": "The plan for people."},
    ),
)
