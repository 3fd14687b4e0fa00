"""Where a topic's partitions are first read: earliest, the end when the app first started, or what the user names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.errors import SourceError
from millpond.kafka.client import Client

EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
LATEST = "latest"
MEMORY = "starting-offsets.json"

Offsets = dict[str, dict[str, int]]


def starting_offsets(client: Client, topics: tuple[str, ...], values: Mapping[str, Any], folder: Path) -> str:
    """What Spark is told. The end is looked up once and remembered: Spark alone would take the end anew at each start
    until its first batch, and lose what came in between. A partition that came later is read from its beginning."""
    if values["auto.offset.reset"] != LATEST and not values["starting.offsets"]:
        return "earliest"
    file = folder / MEMORY
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(_first(client, topics, values)), "utf-8")
    known: Offsets = json.loads(file.read_text("utf-8"))
    return json.dumps(_filled(known, client.partitions(topics)))


def _first(client: Client, topics: tuple[str, ...], values: Mapping[str, Any]) -> Offsets:
    offsets: Offsets = client.ends(topics) if values["auto.offset.reset"] == LATEST else {}
    if not values["starting.offsets"]:
        return offsets
    for topic, places in read_offsets(values["starting.offsets"], topics).items():
        offsets.setdefault(topic, {}).update(places)
    ends = client.ends(topics)
    return {
        topic: {p: ends[topic].get(p, o) if o == LATEST_OFFSET else o for p, o in places.items()}
        for topic, places in offsets.items()
        if topic in ends
    }


def _filled(known: Offsets, places: list[tuple[str, int]]) -> Offsets:
    filled: Offsets = {}
    for topic, partition in places:
        offset = known.get(topic, {}).get(str(partition), EARLIEST_OFFSET)
        filled.setdefault(topic, {})[str(partition)] = offset
    return filled


def read_offsets(text: str, topics: tuple[str, ...]) -> Offsets:
    """`{"orders": {"0": 23}}`, or `{"0": 23}` where there is one topic; MP508 when it is neither."""
    try:
        found = json.loads(text)
        if all(isinstance(offset, int) for offset in found.values()):
            found = {topics[0]: found}
        return {str(t): {str(int(p)): int(o) for p, o in places.items()} for t, places in found.items()}
    except (ValueError, AttributeError, TypeError, IndexError) as error:
        hint = """Write {"orders": {"0": 23, "1": -2}}: topic, partition, offset; -2 is earliest and -1 is latest."""
        raise SourceError("MP508", "'starting.offsets' cannot be read.", hint=hint) from error
