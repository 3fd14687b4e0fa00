"""How many messages a batch holds and how far batches are done, told by the offsets that Spark wrote down."""

from __future__ import annotations

import json
from pathlib import Path

Offsets = dict[str, dict[str, int]]


def batch_size(checkpoint: Path) -> int | None:
    """About how many messages are between the newest two offsets of a checkpoint; None when that cannot be told. The
    first batch counts from the beginning of each partition: too many rather than too few."""
    numbers = sorted(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*") if file.name.isdigit())
    if not numbers:
        return None
    end = _offsets(checkpoint / "offsets" / str(numbers[-1]))
    start = _offsets(checkpoint / "offsets" / str(numbers[-2])) if len(numbers) > 1 else {}
    if end is None or start is None:
        return None
    return sum(o - start.get(topic, {}).get(p, 0) for topic, places in end.items() for p, o in places.items())


def committed_offsets(checkpoint: Path) -> Offsets:
    """Up to where batches are done, by topic and partition."""
    numbers = [int(file.name) for file in (checkpoint / "commits").glob("[0-9]*") if file.name.isdigit()]
    return (_offsets(checkpoint / "offsets" / str(max(numbers))) if numbers else None) or {}


def _offsets(file: Path) -> Offsets | None:
    """The last line of an offset file is the source's own."""
    try:
        found = json.loads(file.read_text("utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return found if isinstance(found, dict) else None
