"""The login by password: SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

ITERATIONS = 4096
MECHANISM = "SCRAM-SHA-256"


class ScramError(Exception):
    """The login has failed."""


class Scram:
    """One login: `first` answers the first message of the client, `last` its second one."""

    def __init__(self, password: str) -> None:
        self._salt = secrets.token_bytes(16)
        self._salted = hashlib.pbkdf2_hmac("sha256", password.encode(), self._salt, ITERATIONS)
        self._nonce = ""
        self._exchange = ""

    def first(self, message: str) -> str:
        header, _, bare = message.partition(",,")
        fields = _fields(bare)
        if header not in ("n", "y") or "r" not in fields:
            raise ScramError("the first message of the login cannot be read")
        self._nonce = fields["r"] + secrets.token_urlsafe(18)
        answer = f"r={self._nonce},s={base64.b64encode(self._salt).decode()},i={ITERATIONS}"
        self._exchange = f"{bare},{answer}"
        return answer

    def last(self, message: str) -> str:
        """The final message of the server; ScramError for a wrong password."""
        bare, _, proof = message.rpartition(",p=")
        fields = _fields(bare)
        try:
            given = base64.b64decode(proof, validate=True)
            binding = base64.b64decode(fields.get("c", ""), validate=True)
        except ValueError as error:
            raise ScramError("the second message of the login cannot be read") from error
        if binding not in (b"n,,", b"y,,") or not hmac.compare_digest(
            fields.get("r", "").encode(), self._nonce.encode()
        ):
            raise ScramError("the second message of the login does not follow the first")
        exchange = f"{self._exchange},{bare}".encode()
        key = _mac(self._salted, b"Client Key")
        signature = _mac(hashlib.sha256(key).digest(), exchange)
        if not hmac.compare_digest(given, bytes(a ^ b for a, b in zip(key, signature, strict=True))):
            raise ScramError("the password is wrong")
        return f"v={base64.b64encode(_mac(_mac(self._salted, b'Server Key'), exchange)).decode()}"


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, "sha256").digest()
