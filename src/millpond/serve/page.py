"""The page of an app: its files, and the login for an app that requires a token."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from pathlib import PurePosixPath

from starlette.responses import JSONResponse, Response

from millpond.serve.endpoints import Call, Endpoint, Field
from millpond.serve.guard import COOKIE
from millpond.serve.problems import RequestError

INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """The files of the page by name, each with its tag."""
    folder = resources.files("millpond.serve") / "assets"
    found = {file.name: file.read_bytes() for file in folder.iterdir() if PurePosixPath(file.name).suffix in TYPES}
    return {name: (content, f'"{hashlib.sha256(content).hexdigest()[:16]}"') for name, content in found.items()}


async def index(call: Call) -> Response:
    return _file(call, INDEX)


async def file(call: Call) -> Response:
    return _file(call, call.request.path_params["name"])


def _file(call: Call, name: str) -> Response:
    found = _files().get(name)
    if found is None:
        raise RequestError(404, "There is nothing here.", hint="GET /api lists what there is.")
    content, tag = found
    # A browser requests each time whether its copy is of this version.
    headers = {"etag": tag, "cache-control": "no-cache"}
    if call.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers={**headers, "content-type": TYPES[PurePosixPath(name).suffix]})


async def login(call: Call) -> Response:
    """The page sends the token once; afterwards the browser sends a cookie, which scripts cannot read."""
    if not call.policy.is_token(call.body["token"].encode()):
        raise RequestError(401, "The token is wrong.", hint="It is the value of --http-token or MILLPOND_HTTP_TOKEN.")
    response = JSONResponse({})
    response.set_cookie(COOKIE, call.policy.session, httponly=True, samesite="strict", path="/")
    return response


ENDPOINTS = (
    Endpoint("GET", "/", "The page.", index, answers={"text/html": "The page."}),
    Endpoint(
        "GET",
        "/page/{name}",
        "A file of the page.",
        file,
        parameters=(Field("name", "string", "Its name."),),
        answers={"text/css": "A style sheet.", "text/javascript": "A script.", "image/svg+xml": "A picture."},
    ),
    Endpoint(
        "POST",
        "/api/login",
        "Log a browser in: sets a cookie.",
        login,
        body=(Field("token", "string", "The token of the app.", required=True),),
    ),
)
