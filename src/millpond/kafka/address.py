"""Where a kafka:// URI points: brokers and topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.uris import Uri

DEFAULT_BROKERS = "localhost:9092"
# How long the client waits for an answer in all, and for one request.
ANSWER_MS, REQUEST_MS = "15000", "10000"
# Letters that no topic's name has, and a pattern of names nearly always does.
_PATTERN = re.compile(r"[*+?^$|()\[\]{}\\]")


@dataclass(frozen=True)
class Address:
    """`kafka://a:9092,b:9092/t1,t2`; topics that are a pattern are one regular expression, as Kafka reads it."""

    brokers: str
    topics: tuple[str, ...]

    @property
    def pattern(self) -> str | None:
        return self.topics[0] if len(self.topics) == 1 and _PATTERN.search(self.topics[0]) else None

    @property
    def shown(self) -> str:
        """The topics as people name them."""
        return ", ".join(self.topics)


def address_of(uri: Uri, values: Mapping[str, Any]) -> Address:
    """Without a broker in the URI, `kafka://orders`, it is the `kafka.brokers` of the app."""
    brokers, topics = (uri.hosts, uri.path) if uri.path and uri.hosts else ("", uri.path or uri.hosts)
    named = values.get("kafka.bootstrap.servers") or brokers or values.get("brokers") or DEFAULT_BROKERS
    text = topics.strip("/")
    split = (text,) if _PATTERN.search(text) else tuple(t.strip() for t in text.split(",") if t.strip())
    return Address(str(named), split)


def said_by(uri: Uri) -> tuple[str, ...]:
    """The options that a URI with brokers leaves nothing to say to."""
    return ("brokers", "kafka.bootstrap.servers") if uri.path and uri.hosts else ()


def client_properties(address: Address, values: Mapping[str, Any]) -> dict[str, str]:
    """What Kafka's own client is told, by its own names: the `kafka.*` options without their prefix. By itself it would
    wait a minute for brokers that are away."""
    given = {n.removeprefix("kafka."): str(v) for n, v in values.items() if n.startswith("kafka.")}
    whole = given.get("default.api.timeout.ms", ANSWER_MS)
    one = min(REQUEST_MS, whole, key=int) if whole.isdigit() else REQUEST_MS
    limits = {"default.api.timeout.ms": whole, "request.timeout.ms": one}
    return {**limits, **given, "bootstrap.servers": address.brokers}
