"""Permissions of the clients of an address: all for processes of the same user, what the settings allow for others."""

from __future__ import annotations

import hmac
import secrets
import socket
from dataclasses import dataclass, field

from millpond.errors import OptionError
from millpond.serve.addresses import Address
from millpond.settings import Settings

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Policy:
    """The permissions of the clients of one address. `hosts` are the allowed host names, None for any; `local`: they
    are processes of the same user and may do what that user may."""

    local: bool = True
    write: bool = True
    token: str | None = field(default=None, repr=False)
    hosts: frozenset[str] | None = None
    numbers: bool = False
    rows_max: int | None = None
    timeout_s: float | None = None
    # Generated in each run: a session ends with the run.
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @property
    def session(self) -> str:
        """The cookie of a browser that has logged in."""
        return hmac.new(self.key, (self.token or "").encode(), "sha256").hexdigest()

    def is_token(self, given: bytes) -> bool:
        """Whether this is the token; the comparison takes constant time."""
        return self.token is not None and hmac.compare_digest(given, self.token.encode())

    def is_session(self, given: str) -> bool:
        """Whether this is the cookie of a login."""
        return hmac.compare_digest(given.encode(), self.session.encode())


def network_policy(address: Address, settings: Settings) -> Policy:
    """The policy of an address that others can reach; MP307 if a token is missing."""
    token = settings["http.token"] or None
    if token is None and not address.is_local:
        hint = "Give one with --http-token or MILLPOND_HTTP_TOKEN, or listen at 127.0.0.1."
        raise OptionError("MP307", f"Listening at {address}, which is not local, requires a token.", hint=hint)
    named = {name.strip().lower() for name in (settings["http.hosts"] or "").split(",") if name.strip()}
    own = set() if address.is_local else {address.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return Policy(
        local=False,
        write=settings["http.write"],
        token=token,
        hosts=LOCAL_HOSTS | named | own,
        numbers=not address.is_local,
        rows_max=settings["http.rows.max"],
        timeout_s=settings["http.query.timeout"] / 1_000_000,
    )
