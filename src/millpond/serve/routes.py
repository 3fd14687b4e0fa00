"""All routes of the HTTP API, and the application that serves them."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millpond.serve import (
    answers,
    chart_data,
    completions,
    control,
    graph,
    hooks,
    metrics,
    page,
    server_sent_events,
    status,
)
from millpond.serve.endpoints import Call, Endpoint, Served, answer_json, openapi
from millpond.serve.guard import Guard
from millpond.serve.problems import RequestError


async def describe(call: Call) -> Response:
    return answer_json(openapi(ENDPOINTS))


ENDPOINTS: tuple[Endpoint, ...] = (
    *status.ENDPOINTS,
    *metrics.ENDPOINTS,
    *answers.ENDPOINTS,
    *server_sent_events.ENDPOINTS,
    *control.ENDPOINTS,
    *hooks.ENDPOINTS,
    *graph.ENDPOINTS,
    *chart_data.ENDPOINTS,
    *completions.ENDPOINTS,
    *page.ENDPOINTS,
    Endpoint("GET", "/api", "This description, as an OpenAPI document.", describe),
)


def application(served: Served) -> Starlette:
    """The application for the clients of one address."""
    offered = [e for e in ENDPOINTS if served.policy.local or not e.local]
    routes = [Route(e.path, e.__call__, methods=[e.method]) for e in offered]
    made = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, policy=served.policy)],
        exception_handlers={404: _nothing_here, 405: _other_method},
    )
    made.state.served = served
    return made


async def _nothing_here(request: Request, error: Exception) -> Response:
    raise RequestError(404, "There is nothing here.", hint="GET /api lists what there is.")


async def _other_method(request: Request, error: Exception) -> Response:
    headers = getattr(error, "headers", None) or {}
    hint = f"Use {headers['Allow']}." if "Allow" in headers else "GET /api lists what there is."
    raise RequestError(405, f"{request.method} is not allowed here.", hint=hint, headers=headers)
