"""Ports for the servers of tests."""

import random
import socket

# Below the ports that the system gives to outgoing connections: one of those could take a server's port at any moment,
# also while the server is stopped in the middle of a test.
PORTS = range(15_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as tried:
            if port not in found and tried.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
    return found
