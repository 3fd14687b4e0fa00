"""Whether any broker of an address can be reached: asked by the network itself, so that the answer comes at once."""

from __future__ import annotations

import socket

from millpond.kafka.address import Address

CONNECT_S = 3.0
DEFAULT_PORT = 9092


def places(brokers: str) -> list[tuple[str, int]]:
    """Hosts and ports of a list such as `a:9092,[::1]:9093`; what is no place is left out."""
    found = []
    for text in brokers.split(","):
        host, _, port = text.strip().rpartition(":")
        if host and port.isdigit():
            found.append((host.strip("[]"), int(port)))
        elif text.strip():
            found.append((text.strip(), DEFAULT_PORT))
    return found


def reachable(address: Address) -> bool:
    """False when nobody listens at any place; a name that does not resolve is left to Kafka's client to tell."""
    return listens(address) is not False


def listens(address: Address) -> bool | None:
    """Whether anybody listens at any place; None when a name before it does not resolve."""
    for host, port in places(address.brokers):
        try:
            socket.create_connection((host, port), CONNECT_S).close()
            return True
        except socket.gaierror:
            return None
        except OSError:
            continue
    return False
