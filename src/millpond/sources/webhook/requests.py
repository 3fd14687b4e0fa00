"""A request to a webhook: whether it may be taken, and the records in its body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from millpond.contracts.source import Posted, Reply
from millpond.sources.http.decoding import CannotDecode, decoder

# The state of a source that has had no request.
UNSENT = "nothing was posted to it yet"
BLANK = re.compile(r"[ \t\r\n]*")
BOM = "\ufeff"
# JSON has no raw line ends but between values, where a space is as good.
LINE_ENDS = str.maketrans("\r\n", "  ")
STRIPE = re.compile(r"\bt=(?P<at>\d{1,15})\b")
STRIPE_SIGNATURE = re.compile(r"\bv1=(?P<signature>[0-9a-fA-F]+)")


class Refused(Exception):
    """The request is answered with an error, and nothing of it is taken."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.reply = Reply(status, message, {name.replace("_", "-"): value for name, value in headers.items()})


def authorize(values: Mapping[str, Any], posted: Posted, clock: Callable[[], float] = time.time) -> None:
    """401 unless the request has the token and the signature that are asked for."""
    token = values["token"]
    if token is not None:
        kind, _, given = posted.headers.get("authorization", "").partition(" ")
        # Headers are bytes, which the server reads as Latin-1.
        sent = given.strip().encode("latin-1", "replace")
        if kind.lower() != "bearer" or not hmac.compare_digest(sent, token.encode()):
            raise Refused(401, "The token is missing or wrong.", www_authenticate="Bearer")
    secret = values["signature.secret"]
    if secret is not None:
        header = values["signature.header"]
        given = posted.headers.get(header.lower(), "")
        if not _is_signed(given, posted.body, secret.encode(), values["signature.tolerance"] / 1e6, clock):
            raise Refused(401, f"The signature in '{header}' is missing, wrong or too old.")


def _is_signed(given: str, body: bytes, secret: bytes, tolerance_s: float, clock: Callable[[], float]) -> bool:
    """As GitHub signs (`sha256=HEX`, or HEX or base64 alone), or as Stripe does (`t=TIME,v1=HEX,...`)."""
    timed = STRIPE.search(given)
    if timed is not None:
        signed = hmac.new(secret, timed["at"].encode() + b"." + body, hashlib.sha256).hexdigest()
        fits = [hmac.compare_digest(signed, v["signature"].lower()) for v in STRIPE_SIGNATURE.finditer(given)]
        return any(fits) and abs(clock() - int(timed["at"])) <= tolerance_s
    digest = hmac.new(secret, body, hashlib.sha256).digest()
    plain = given.strip().removeprefix("sha256=").encode("latin-1", "replace")
    in_hex, in_base64 = digest.hex().encode(), base64.b64encode(digest)
    return hmac.compare_digest(plain.lower(), in_hex) or hmac.compare_digest(plain, in_base64)


def body_of(posted: Posted, bytes_max: int) -> bytes:
    """The body, decompressed; 413 if it is too large then, 415 for a compression that is not known."""
    encoding = posted.headers.get("content-encoding", "")
    if not encoding:
        return posted.body
    found = bytearray()
    try:
        for part in decoder(encoding)([posted.body]):
            found += part
            if len(found) > bytes_max:
                raise Refused(413, f"The body of the request is larger than {bytes_max:,} bytes.")
    except CannotDecode as error:
        status = 415 if "not supported" in str(error) else 400
        raise Refused(status, f"The body cannot be decompressed: {error}.") from error
    return bytes(found)


def records_of(body: bytes) -> list[bytes]:
    """The records of a body, each as one line: one object, a list of objects, or objects in lines. 400 with the reason
    and its place for anything else."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(400, f"The body is not UTF-8: byte {error.start + 1:,} is wrong.") from error
    start = _blank(text, 1 if text.startswith(BOM) else 0)
    if start == len(text):
        raise Refused(400, "The body is empty: send a JSON object, a list of objects, or objects in lines.")
    places = _elements(text, start) if text[start] == "[" else _lines(text, start)
    return [text[first:behind].translate(LINE_ENDS).encode("utf-8") + b"\n" for first, behind in places]


def _elements(text: str, at: int) -> Iterator[tuple[int, int]]:
    at, number = _blank(text, at + 1), 0
    if text[at : at + 1] == "]":
        _require_end(text, at + 1)
        return
    while True:
        number += 1
        end = _object(text, at, f"element {number:,}")
        yield at, end
        at = _blank(text, end)
        if text[at : at + 1] == "]":
            _require_end(text, at + 1)
            return
        if text[at : at + 1] != ",":
            raise _wrong(text, at, f"behind element {number:,}", "a comma or ] is missing")
        at = _blank(text, at + 1)


def _lines(text: str, at: int) -> Iterator[tuple[int, int]]:
    number = 0
    while at < len(text):
        number += 1
        end = _object(text, at, f"record {number:,}")
        yield at, end
        at = _blank(text, end)
        if at < len(text) and "\n" not in text[end:at] and "\r" not in text[end:at]:
            raise _wrong(text, at, f"behind record {number:,}", "a line end is missing")


def _object(text: str, at: int, which: str) -> int:
    """Where the object that begins here ends."""
    if text[at : at + 1] != "{":
        raise _wrong(text, at, which, "it is not a JSON object")
    try:
        _, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _wrong(text, error.pos, which, error.msg) from error
    except ValueError as error:
        raise _wrong(text, at, which, str(error)) from error
    except RecursionError as error:
        raise _wrong(text, at, which, "it is nested too deeply") from error
    return end


def _require_end(text: str, at: int) -> None:
    at = _blank(text, at)
    if at < len(text):
        raise _wrong(text, at, "behind the list", "there is more text")


def _wrong(text: str, at: int, which: str, why: str) -> Refused:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return Refused(400, f"The body is not JSON objects: {which}, line {line:,}, column {column:,}: {why}.")


def _blank(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return at if found is None else found.end()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
