"""The contract of the server of an app: its control socket, its page and the HTTP API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

# The class of the apps that a server serves: this contract does not depend on it.
Served = TypeVar("Served")
Served_contra = TypeVar("Served_contra", contravariant=True)

# Starts a thread that does the work; the app ends if the work raises.
StartThread = Callable[[str, Callable[[], None]], None]


class MakeServer(Protocol[Served_contra]):
    """The class of a server. `socket_path` is None for an app in a temporary directory, `address` that of HTTP."""

    def __call__(
        self, app: Served_contra, socket_path: Path | None, address: str, start_thread: StartThread
    ) -> Server: ...


class Server(Protocol):
    """Created by the app when it locks its state directory; `start` and `stop` are called from one thread, once
    each."""

    @property
    def url(self) -> str | None:
        """The address of the page; None if it is off."""

    @property
    def postgres_port(self) -> int | None:
        """The port for clients of PostgreSQL's protocol; None if it is off."""

    def start(self) -> None:
        """Start to listen. MP716 if an address cannot be used, MP307 if a setting is invalid; then nothing listens."""

    def stop(self) -> None:
        """Stop listening: when it returns, the addresses are free. Responses in progress are cancelled."""
