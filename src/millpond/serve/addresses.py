"""The addresses of an app: HOST:PORT, the first free port, and the Unix socket of its state directory."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import shutil
import socket
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import OptionError, RunError
from millpond.options import host_and_port

OFF, AUTO = "off", "auto"
LOCAL = "127.0.0.1"
# Ports that `auto` tries.
FIRST_PORT, LAST_PORT = 8080, 8179
# Clients that wait for their connection to be accepted.
BACKLOG = 512

# The path of a Unix socket has at most 104 bytes on some systems and 108 on others, including the final zero.
UNIX_ADDRESS_BYTES_MAX = 100


@dataclass(frozen=True)
class Address:
    """A host, by name or number, and a port; port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str, setting: str) -> Address:
    """`127.0.0.1:8080`, `localhost:8080` or `[::1]:8080`; MP307 for anything else."""
    try:
        host, port = host_and_port(text)
    except ValueError as error:
        hint = f"Write HOST:PORT, such as {LOCAL}:{FIRST_PORT}, or [::1]:{FIRST_PORT}."
        raise OptionError("MP307", f"'{text}' is not a valid address for '{setting}'.", hint=hint) from error
    return Address(host or LOCAL, port)


def listen(address: Address, setting: str) -> socket.socket:
    """A listening socket at an address; MP716 if that is not possible."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # The protocol is named, because asyncio sends small answers at once (TCP_NODELAY) only where it is.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A port that was recently in use can be used again; one with a listener cannot.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        hint = f"Choose another HOST:PORT for '{setting}', or turn it off."
        raise RunError(
            "MP716", f"The address {address} cannot be used: {error.strerror or error}.", hint=hint
        ) from error
    return listener


def listen_at_first_free(setting: str) -> socket.socket:
    """A socket at the first free port of this machine; MP716 if there is none."""
    for port in range(FIRST_PORT, LAST_PORT + 1):
        try:
            return listen(Address(LOCAL, port), setting)
        except RunError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    hint = f"Give one with '{setting}', or turn it off."
    raise RunError("MP716", f"None of the ports {FIRST_PORT} to {LAST_PORT} is free.", hint=hint)


# The result of SO_PEERCRED: process, user, group.
_CREDENTIALS = struct.Struct("3i")


def same_user(connection: socket.socket) -> bool:
    """Whether the other end of a Unix socket is a process of the same user."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        # On systems other than Linux, only the mode of the socket's file excludes other users.
        return True
    found = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.getuid())


class UnixSocket:
    """The socket of a state directory, which only the user of the app can open. The caller has locked the directory, so
    an existing socket belongs to a dead process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: str | None = None

    def listen(self) -> socket.socket:
        """Create it and listen; MP805 if it cannot be created."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            address = self._address()
            listener.bind(address)
            # Clients cannot connect before listen(), so the mode is set in time.
            os.chmod(address, 0o600)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            self.remove()
            message = f"The control socket {self._path} cannot be created: {error.strerror}."
            raise RunError("MP805", message, hint="Choose a state directory on a local disk with --state.") from error
        return listener

    def remove(self) -> None:
        """Remove the file, if it exists."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _address(self) -> str:
        """The path to bind: the path itself, or, if it is too long, a short one to which the path is a link."""
        self._path.unlink(missing_ok=True)
        if len(os.fsencode(self._path)) <= UNIX_ADDRESS_BYTES_MAX:
            return str(self._path)
        self._folder = tempfile.mkdtemp(prefix="millpond-")
        address = os.path.join(self._folder, self._path.name)
        self._path.symlink_to(address)
        return address
