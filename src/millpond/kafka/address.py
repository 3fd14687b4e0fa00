"""The address of a kafka:// URI: brokers and topics, and whether a broker can be reached."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.uris import Uri

DEFAULT_BROKERS = "localhost:9092"
# The client's timeouts: in total, and for one request.
ANSWER_MS, REQUEST_MS = "15000", "10000"
# Characters that a topic's name cannot contain, and a pattern nearly always does.
_PATTERN = re.compile(r"[*+?^$|()\[\]{}\\]")


@dataclass(frozen=True)
class Address:
    """`kafka://a:9092,b:9092/t1,t2`; a pattern of topics is one regular expression of Kafka."""

    brokers: str
    topics: tuple[str, ...]

    @property
    def pattern(self) -> str | None:
        return self.topics[0] if len(self.topics) == 1 and _PATTERN.search(self.topics[0]) else None

    @property
    def shown(self) -> str:
        """The topics for messages."""
        return ", ".join(self.topics)


def address_of(uri: Uri, values: Mapping[str, Any]) -> Address:
    """The address of a URI; without a broker, as in `kafka://orders`, the setting `kafka.brokers` is used."""
    brokers, topics = (uri.hosts, uri.path) if uri.path and uri.hosts else ("", uri.path or uri.hosts)
    named = values.get("kafka.bootstrap.servers") or brokers or values.get("brokers") or DEFAULT_BROKERS
    text = topics.strip("/")
    split = (text,) if _PATTERN.search(text) else tuple(t.strip() for t in text.split(",") if t.strip())
    return Address(str(named), split)


def set_by(uri: Uri) -> tuple[str, ...]:
    """The options that a URI with brokers already sets."""
    return ("brokers", "kafka.bootstrap.servers") if uri.path and uri.hosts else ()


def client_properties(address: Address, values: Mapping[str, Any]) -> dict[str, str]:
    """The properties of Kafka's client: the `kafka.*` options without their prefix, and shorter timeouts, because its
    default is to wait a minute for unreachable brokers."""
    given = {n.removeprefix("kafka."): str(v) for n, v in values.items() if n.startswith("kafka.")}
    whole = given.get("default.api.timeout.ms", ANSWER_MS)
    one = min(REQUEST_MS, whole, key=int) if whole.isdigit() else REQUEST_MS
    limits = {"default.api.timeout.ms": whole, "request.timeout.ms": one}
    return {**limits, **given, "bootstrap.servers": address.brokers}


CONNECT_S = 3.0
DEFAULT_PORT = 9092


def places(brokers: str) -> list[tuple[str, int]]:
    """Hosts and ports of a list such as `a:9092,[::1]:9093`; invalid entries are left out."""
    found = []
    for text in brokers.split(","):
        host, _, port = text.strip().rpartition(":")
        if host and port.isdigit():
            found.append((host.strip("[]"), int(port)))
        elif text.strip():
            found.append((text.strip(), DEFAULT_PORT))
    return found


def reachable(address: Address) -> bool:
    """False if nothing listens at any of the brokers; a name that cannot be resolved is reported by Kafka's client."""
    return listens(address) is not False


def listens(address: Address) -> bool | None:
    """Whether any broker listens; None if a name before it cannot be resolved."""
    for host, port in places(address.brokers):
        try:
            socket.create_connection((host, port), CONNECT_S).close()
            return True
        except socket.gaierror:
            return None
        except OSError:
            continue
    return False
