"""Whether a topic is still the one that was read: one that was made anew counts its messages from 0 again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from millpond.errors import SourceError
from millpond.small_files import read_sealed, write_sealed
from millpond.sources.topics.sizes import Offsets

MEMORY = "topics.json"


class Identity:
    """The ids of a source's topics, remembered in its folder from the first start on."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / MEMORY
        # The flow asks when it starts, and beside it the thread that looks how far the topics reach.
        self._lock = threading.Lock()

    def require(self, found: Mapping[str, str], done: Offsets) -> None:
        """MP511 for a topic that is not the one of which something is in the tables; others are remembered."""
        with self._lock:
            self._require(found, done)

    def _require(self, found: Mapping[str, str], done: Offsets) -> None:
        known = self._known()
        other = [topic for topic, id_ in found.items() if known.get(topic, id_) != id_]
        for topic in other:
            if any(done.get(topic, {}).values()):
                raise made_anew(topic)
        if any(known.get(topic) != id_ for topic, id_ in found.items()):
            write_sealed(self._file, {**known, **found})

    def _known(self) -> dict[str, str]:
        try:
            return dict(read_sealed(self._file))
        except FileNotFoundError:
            return {}


def made_anew(topic: str) -> SourceError:
    message = f"Topic '{topic}' was deleted and made anew: how far the old one was read says nothing about it."
    hint = "Start with a new state directory to read what there is now; what the tables hold is of the old topic."
    return SourceError("MP511", message, hint=hint)
