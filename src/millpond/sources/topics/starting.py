"""Where a topic's partitions are first read: earliest, the end when the app first started, or what the user names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.errors import SourceError
from millpond.kafka.client import Client
from millpond.small_files import read_sealed, write_sealed

EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
LATEST = "latest"
MEMORY = "starting-offsets.json"

Offsets = dict[str, dict[str, int]]


def starting_offsets(client: Client, topics: tuple[str, ...], values: Mapping[str, Any], folder: Path) -> str:
    """What Spark is told. The end is looked up once and remembered: Spark alone would take the end anew at each start
    until its first batch, and lose what came in between. A partition that came later is read from its beginning."""
    known = first_offsets(client, topics, values, folder)
    return "earliest" if known is None else json.dumps(_filled(known, client.partitions(topics)))


def first_offsets(client: Client, topics: tuple[str, ...], values: Mapping[str, Any], folder: Path) -> Offsets | None:
    """Where this state directory has begun, by topic and partition; None for the beginning of all."""
    if values["auto.offset.reset"] != LATEST and not values["starting.offsets"]:
        return None
    file = folder / MEMORY
    if not file.exists():
        write_sealed(file, _first(client, topics, values))
    known: Offsets = read_sealed(file)
    return known


def _first(client: Client, topics: tuple[str, ...], values: Mapping[str, Any]) -> Offsets:
    offsets: Offsets = client.ends(topics) if values["auto.offset.reset"] == LATEST else {}
    if not values["starting.offsets"]:
        return offsets
    named, ends = read_offsets(values["starting.offsets"], topics), client.ends(topics)
    _require_there(named, client.ends(topics, earliest=True), ends)
    for topic, places in named.items():
        offsets.setdefault(topic, {}).update(places)
    return {
        topic: {p: ends[topic][p] if o == LATEST_OFFSET else o for p, o in places.items()}
        for topic, places in offsets.items()
    }


def _require_there(named: Offsets, starts: Offsets, ends: Offsets) -> None:
    """MP508 for an offset that no message has or will have next: Spark would look for it for minutes."""
    for topic, places in named.items():
        for partition, offset in places.items():
            first, behind = starts.get(topic, {}).get(partition), ends.get(topic, {}).get(partition)
            if first is None or behind is None:
                message = f"'starting.offsets' names partition {partition} of '{topic}', which is not there."
                there = ", ".join(f"{name}: {', '.join(sorted(found, key=int))}" for name, found in ends.items())
                raise SourceError("MP508", message, hint=f"There are: {there}.")
            if offset >= 0 and not first <= offset <= behind:
                message = f"'starting.offsets' names offset {offset} of partition {partition} of '{topic}'."
                raise SourceError(
                    "MP508", message, hint=f"It may be {first} to {behind}; -2 is earliest, -1 is latest."
                )


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
        hint = (
            """Write {"orders": {"0": 23, "1": -2}}: topic, partition, offset; -2 is earliest and -1 is latest."""
            " For all partitions there is 'auto.offset.reset'."
        )
        raise SourceError("MP508", "'starting.offsets' cannot be read.", hint=hint) from error
