"""Requests to an HTTP server: GET with redirects, proxy and TLS; failures become coded errors.

Redirects and pages stay at the origin of the URI (scheme, host and port) unless another one is allowed, and the headers
of the user are sent nowhere else: the response of a server must not determine which other servers are contacted."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, NewConnectionError, ProtocolError, SSLError, TimeoutError
from urllib3.response import BaseHTTPResponse

from millpond.contracts.source import SourceSpec
from millpond.errors import SourceError
from millpond.redact import MASK, redact
from millpond.sources.http.decoding import CannotDecode, decoder
from millpond.uris import Uri

HEADER = "http.header."
READ_BYTES = 1 << 18
REDIRECTS_MAX = 10
REDIRECTS = (301, 302, 303, 307, 308)
# The time limit of a whole response, as a multiple of 'http.timeout'.
TIMEOUTS_MAX = 20
# How often, and for how long in total, one poll waits as requested by Retry-After; a longer wait is reported, and the
# request is repeated at that time.
RETRY_AFTER_TIMES, RETRY_AFTER_S_MAX = 5, 30.0
# The maximal wait, even if a server requests more.
PAUSE_S_MAX = 86_400.0
SHOWN_BYTES = 200
# Statuses that may be temporary, in addition to 5xx.
PASSING = (408, 425, 429)
UNREACHABLE = "MP506"


@dataclass(frozen=True)
class Validators:
    """The validators of a response: ETag and Last-Modified."""

    etag: str | None = None
    modified: str | None = None

    def headers(self) -> dict[str, str]:
        found = {"If-None-Match": self.etag, "If-Modified-Since": self.modified}
        return {name: value for name, value in found.items() if value}


class Answer:
    """A response whose body is not read yet."""

    def __init__(self, client: Client, response: BaseHTTPResponse, url: str) -> None:
        self._client, self._response, self.url = client, response, url

    @property
    def is_unchanged(self) -> bool:
        return self._response.status == 304

    def header(self, name: str) -> str:
        return str(self._response.headers.get(name, ""))

    @property
    def validators(self) -> Validators:
        return Validators(self.header("ETag") or None, self.header("Last-Modified") or None)

    def save(self, out: BinaryIO) -> None:
        """Write the body, decompressed; MP502 if it is larger than 'max.bytes' or cannot be decompressed."""
        for data in self._client.body(self._response, self.url):
            out.write(data)


class Client:
    """The requests of one source; used by one thread at a time."""

    def __init__(self, spec: SourceSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec, self._clock = spec, clock
        self.url = address(spec.uri)
        self._origin = origin_of(self.url)
        self._timeout_s = spec.values["http.timeout"] / 1e6
        self._headers = {n.removeprefix(HEADER): v for n, v in spec.values.items() if n.startswith(HEADER)}
        if spec.uri.user is not None and "authorization" not in self._headers:
            login = f"{spec.uri.user}:{spec.uri.password or ''}"
            self._headers["authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        self._secrets = sorted(_secrets(self._headers, spec.uri), key=len, reverse=True)
        self._pool = _pool(spec, self.url)
        self._not_before = 0.0
        self._waiting = threading.Event()

    @contextmanager
    def get(self, url: str, validators: Validators | None = None) -> Iterator[Answer]:
        """The response to GET: 200, or 304 for validators. MP506 for a temporary failure."""
        if self._clock() < self._not_before:
            raise self._error(UNREACHABLE, f"'{self._shown(url)}' limits the rate of requests.", "")
        response, url = self._asked(url, {} if validators is None else validators.headers())
        try:
            yield Answer(self, response, url)
        finally:
            # The rest of a body is not read, so the connection cannot be used again.
            response.close()

    def _asked(self, url: str, conditions: Mapping[str, str]) -> tuple[BaseHTTPResponse, str]:
        waited_s = 0.0
        for _ in range(RETRY_AFTER_TIMES):
            response, url = self._followed(url, conditions)
            if response.status == 200 or (response.status == 304 and conditions):
                return response, url
            pause_s = self._pause_s(response)
            if pause_s is None or waited_s + pause_s > RETRY_AFTER_S_MAX:
                self._not_before = self._clock() + min(pause_s or 0.0, PAUSE_S_MAX)
                break
            response.close()
            waited_s += pause_s
            self._waiting.wait(pause_s)
        with response:
            raise self._refused(response, url)

    def _pause_s(self, response: BaseHTTPResponse) -> float | None:
        """The wait that a server requests by Retry-After, with 429 and 503."""
        text = response.headers.get("Retry-After", "").strip()
        if response.status not in (429, 503) or not text:
            return None
        if text.isascii() and text.isdigit():
            return float(text)
        try:
            return max((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds(), 0.0)
        except (ValueError, TypeError):
            return None

    def _followed(self, url: str, conditions: Mapping[str, str]) -> tuple[BaseHTTPResponse, str]:
        """The first response that is not a redirect, and its address."""
        for _ in range(REDIRECTS_MAX):
            response = self._request(url, conditions)
            target = response.headers.get("Location")
            if response.status not in REDIRECTS or not target:
                return response, url
            response.close()
            url = self.allowed(url, target, "redirects to")
        message = f"'{self._shown(self.url)}' redirects more than {REDIRECTS_MAX} times."
        raise self._error("MP502", message, "Write the address at the end of the redirects.")

    def allowed(self, base: str, target: str, how: str) -> str:
        """An address from a response; MP502 for another origin, unless it is allowed."""
        try:
            url = urljoin(base, target)
            other = origin_of(url)
        except ValueError as error:
            message = f"'{self._shown(self.url)}' {how} '{self.beginning(target.encode())}', which is not an address."
            raise self._error("MP502", message, "Correct the server.") from error
        host = urlsplit(url).hostname or ""
        if other != self._origin and not {host, other} & set(self._spec.values["http.redirect.to"] or ()):
            message = f"'{self._shown(self.url)}' {how} {self._shown(other)}, which is another host, port or scheme."
            hint = f"Write that address in the URI, or allow it WITH ('http.redirect.to' = '{self._shown(other)}')."
            raise self._error("MP502", message, hint)
        return url

    def _request(self, url: str, conditions: Mapping[str, str]) -> BaseHTTPResponse:
        headers = {"User-Agent": "millpond", "Accept": "*/*", "Accept-Encoding": "gzip, deflate, br"}
        headers |= conditions
        if origin_of(url) == self._origin:
            headers |= self._headers
        with self._coded(url):
            return self._pool.request(
                "GET",
                url,
                headers=headers,
                timeout=urllib3.Timeout(self._timeout_s),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )

    def body(self, response: BaseHTTPResponse, url: str) -> Iterator[bytes]:
        """The decompressed body, in parts."""
        limit, size, until = self._spec.values["max.bytes"], 0, self._clock() + TIMEOUTS_MAX * self._timeout_s
        first = head = b""
        try:
            decode = decoder(response.headers.get("Content-Encoding", ""))
            raw = self._raw(response, url, until)
            first = next(raw, b"")
            for data in decode(chain([first], raw)):
                size, head = size + len(data), head or data
                if size > limit:
                    raise self.refused_body(f"is larger than {limit:,} bytes ('max.bytes')", url, head)
                yield data
        except CannotDecode as error:
            # What was never compressed is shown as it was sent.
            sent = first if first.isascii() else head or first
            raise self.refused_body(f"cannot be decompressed: {error}", url, sent) from error
        except ProtocolError as error:
            raise self.refused_body("is cut off", url, head, UNREACHABLE) from error

    def _raw(self, response: BaseHTTPResponse, url: str, until: float) -> Iterator[bytes]:
        while True:
            with self._coded(url, passing=ProtocolError):
                data = response.read1(READ_BYTES, decode_content=False)
            if not data:
                return
            yield data
            if self._clock() > until:
                message = (
                    f"The response of '{self._shown(url)}' was not complete within {TIMEOUTS_MAX} times 'http.timeout'."
                )
                raise self._error(UNREACHABLE, message, "Raise 'http.timeout'.")

    @contextmanager
    def _coded(self, url: str, passing: type[HTTPError] | tuple[()] = ()) -> Iterator[None]:
        """Converts failures of the connection to coded errors, except those in `passing`."""
        try:
            yield
        except passing:
            raise
        except (SSLError, LocationParseError) as error:
            verified = "certificate" in str(error).lower() or isinstance(error, LocationParseError)
            message = f"'{self._shown(url)}' cannot be read: {self._masked(_reason(error))}."
            hint = "Check the certificate and the clock, or set WITH ('http.ca' = 'ca.pem')."
            raise self._error("MP508" if verified else UNREACHABLE, message, hint) from error
        except (HTTPError, OSError) as error:
            # A connection that was refused is one of urllib3's timeouts.
            if isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError):
                message = f"'{self._shown(url)}' did not respond within {self._timeout_s:g} s."
                raise self._error(UNREACHABLE, message, "Increase 'http.timeout' if it needs longer.") from error
            message = f"'{self._shown(url)}' cannot be reached: {self._masked(_reason(error))}."
            raise self._error(UNREACHABLE, message, "Check the address, and that the server runs.") from error

    def _refused(self, response: BaseHTTPResponse, url: str) -> SourceError:
        """The error for a status, with the beginning of the body."""
        status = response.status
        found = b""
        with suppress(SourceError):
            for part in self.body(response, url):
                found += part
                if len(found) >= SHOWN_BYTES:
                    break
        reported = f": {self.beginning(found)}" if found.strip() else ""
        message = f"'{self._shown(url)}' answered {status} {response.reason or ''}".rstrip() + reported
        if status >= 500 or status in PASSING:
            return self._error(UNREACHABLE, message, "The request is repeated later.")
        if status in (401, 403):
            return self._error("MP507", message, "Set a header, such as 'http.header.Authorization'.")
        if status in (404, 410):
            return self._error("MP501", message, "Check the address.")
        return self._error("MP502", message, "Check the address and the options.")

    def refused_body(self, why: str, url: str, body: bytes | None, code: str = "MP502") -> SourceError:
        """The error for a body that is not what was promised, with its beginning unless there is none to show."""
        shown = "" if body is None else f" It begins with: {self.beginning(body)}" if body.strip() else " It is empty."
        hint = "The request is repeated later." if code == UNREACHABLE else "Check the address and the options."
        return self._error(code, f"The answer of '{self._shown(url)}' {why}.{shown}", hint)

    def beginning(self, body: bytes) -> str:
        """The first bytes of a body on one line, without secrets."""
        text = body[:SHOWN_BYTES].decode("utf-8", "replace")
        return redact(self._masked(re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", text).strip()))

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def _shown(self, url: str) -> str:
        return self._spec.shown if url == self.url else redact(self._masked(url))

    def _error(self, code: str, message: str, hint: str) -> SourceError:
        return SourceError(code, message, hint=hint)


def address(uri: Uri) -> str:
    """The address of the request: the URI without its login and fragment."""
    scheme, _, rest = uri.text.partition("://")
    rest = rest.partition("#")[0]
    end = min((at for at in map(rest.find, "/?") if at >= 0), default=len(rest))
    host, path = rest[:end].rpartition("@")[2], rest[end:]
    before, asked, query = path.partition("?")
    if '"' in query:
        # Quotes around a value are those of the URI's own syntax.
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in uri.params)
    return f"{scheme.lower()}://{host}{before or '/'}{asked}{query}"


def origin_of(url: str) -> str:
    """Scheme, host and port, without the default port."""
    parts = urlsplit(url)
    with suppress(ValueError):
        port = parts.port
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        suffix = "" if port is None or port == usual else f":{port}"
        return f"{parts.scheme}://{(parts.hostname or '').lower()}{suffix}"
    return f"{parts.scheme}://"


def _secrets(headers: Mapping[str, str], uri: Uri) -> Iterator[str]:
    for value in headers.values():
        yield from (part for part in {value, value.rpartition(" ")[2]} if part)
    yield from (value for _, value in uri.params if len(value) > 3)
    if uri.password:
        yield uri.password


def _pool(spec: SourceSpec, url: str) -> urllib3.PoolManager:
    scheme, host = urlsplit(url).scheme, urlsplit(url).hostname or ""
    proxy = spec.values["http.proxy"] or ("" if proxy_bypass(host) else getproxies().get(scheme, ""))
    given: dict[str, Any] = {"num_pools": 2, "maxsize": 1}
    if spec.values["http.ca"]:
        given["ca_certs"] = str(spec.base / spec.values["http.ca"])
    if not proxy:
        return urllib3.PoolManager(**given)
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            given["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=login)
        return urllib3.ProxyManager(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", **given)
    except (HTTPError, ValueError) as error:
        # The address may contain a login and is not shown.
        message = f"The proxy for '{spec.shown}' is not an address of an HTTP proxy."
        hint = "Write http://host:port in 'http.proxy', or correct the proxy of the environment."
        raise SourceError("MP508", message, hint=hint) from error


def _reason(error: BaseException) -> str:
    """The reason of an error, without the names of Python objects."""
    cause = error.args[-1] if error.args and isinstance(error.args[-1], BaseException) else error
    text = getattr(cause, "strerror", None) or str(cause)
    text = re.sub(r"<[^>]*>[:,]? ?|\[Errno -?\d+\] |\(_ssl\.c:\d+\)", "", str(text))
    return text.removeprefix("Failed to establish a new connection: ").strip().rstrip(".") or type(error).__name__
