"""Access control: token, Host and Origin of every request, and the headers of every response."""

from __future__ import annotations

import ipaddress
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.errors import MillpondError
from millpond.serve.policy import Policy
from millpond.serve.problems import RequestError, coded, error_json, status_of

COOKIE = "millpond_session"
# Paths that contain nothing of the app: probes, and the page itself before a login. Hooks have tokens of their own.
OPEN = ("/", "/health", "/ready", "/api/login")
OPEN_BELOW = ("/page/", "/hooks/")

# Nothing is loaded from other sites, the page cannot be embedded, and no referrer is sent.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Runs before everything else: rejects requests by the policy, and converts every error to a response."""

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            self._require(scope["path"], Headers(scope=scope))
            await self._app(scope, receive, send_on)
        except Exception as error:
            if begun:
                # A part was sent already: the connection is closed, which every client notices.
                raise
            await _answer(coded(error))(scope, receive, send_on)

    def _require(self, path: str, headers: Headers) -> None:
        if self._policy.local:
            return
        self._require_host(headers)
        is_open = path in OPEN or path.startswith(OPEN_BELOW)
        if self._policy.token is not None and not is_open and not self._is_known(headers):
            hint = "Send it as 'Authorization: Bearer TOKEN'; a browser logs in on the page."
            raise RequestError(401, "The token is missing or wrong.", hint=hint, headers={"www-authenticate": "Bearer"})

    def _require_host(self, headers: Headers) -> None:
        """421 for an unknown host name, because a foreign name may lead here (DNS rebinding). 403 for a request that a
        browser sends for the page of another site."""
        host = headers.get("host", "")
        if not self._is_own(host_name(host)):
            hint = "Use the name of this machine, or add the name to the setting 'http.hosts'."
            raise RequestError(421, "The host name of this request is not allowed.", hint=hint)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise RequestError(403, "Requests of other sites are rejected.", hint="Open the page of the app itself.")

    def _is_own(self, name: str) -> bool:
        policy = self._policy
        return policy.hosts is None or name in policy.hosts or (policy.numbers and _is_number(name))

    def _is_known(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            # Headers are bytes, which are decoded as Latin-1; a token may be any text.
            return self._policy.is_token(given.strip().encode("latin-1"))
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return found is not None and self._policy.is_session(found.value)


def host_name(host: str) -> str:
    """`Example.org:8080` is `example.org`, `[::1]:8080` is `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _answer(error: MillpondError) -> JSONResponse:
    headers = error.headers if isinstance(error, RequestError) else None
    return JSONResponse(error_json(error), status_of(error), headers)
