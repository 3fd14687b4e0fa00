"""Where a kafka:// URI points: brokers and topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.uris import Uri

DEFAULT_BROKERS = "localhost:9092"
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


def client_properties(address: Address, values: Mapping[str, Any]) -> dict[str, str]:
    """What Kafka's own client is told, by its own names: the `kafka.*` options without their prefix."""
    given = {n.removeprefix("kafka."): str(v) for n, v in values.items() if n.startswith("kafka.")}
    return {**given, "bootstrap.servers": address.brokers}
