"""How far topics reach beyond what is read: asked at the start, then now and then by a thread that nobody waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.errors import SourceError
from millpond.kafka.address import Address
from millpond.kafka.client import Client, connected
from millpond.sources.topics.identity import Identity
from millpond.sources.topics.oldest import Oldest, Place, looking_for_oldest
from millpond.sources.topics.sizes import Offsets, committed_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S = 1.0
# Without `look` for so long the thread ends: the flow was stopped.
WANTED_S = 10.0
MISSING, ANOTHER = "MP501", "MP511"


class Reach:
    """`look` says that somebody is interested; `lag`, `oldest` and `away` may be read by any thread."""

    def __init__(self, address: Address, values: Mapping[str, Any], checkpoint: Path, identity: Identity) -> None:
        self._address, self._values, self._checkpoint = address, values, checkpoint
        self._identity = identity
        self._looked = 0.0
        self._ends: Offsets | None = None
        self._starts: Offsets = {}
        # Where reading begins in partitions of which nothing is done yet, unless it is their beginning.
        self._begin: Offsets = {}
        # When the oldest message that is not in the tables was written, in seconds since the epoch, if that is known.
        self.oldest: float | None = None
        self._thread: threading.Thread | None = None
        # What is wrong with the brokers at the moment, and since when.
        self.away: SourceError | None = None
        self._away_since = 0.0

    def note(self, client: Client, topics: tuple[str, ...], begin: Offsets) -> None:
        """How far topics reach when they are opened, so that the lag is known before the first batch."""
        self._begin = begin
        self._starts, self._ends = client.ends(topics, earliest=True), client.ends(topics)

    def look(self, spark: SparkSession, topics: tuple[str, ...]) -> None:
        self._looked = time.monotonic()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, args=(spark, topics), daemon=True)
            self._thread.start()

    def _run(self, spark: SparkSession, topics: tuple[str, ...]) -> None:
        """In a thread of its own, which ends when nobody looks any more, or when Java is not there to be asked: the app
        notices that by itself, and says so."""
        from py4j.protocol import Py4JError

        try:
            self._watch(spark, topics)
        except Py4JError:
            return

    def _watch(self, spark: SparkSession, topics: tuple[str, ...]) -> None:
        while time.monotonic() - self._looked < WANTED_S:
            try:
                with (
                    connected(spark, self._address, self._values) as client,
                    looking_for_oldest(spark, self._address, self._values) as oldest,
                ):
                    self._starts = client.ends(topics, earliest=True)
                    while time.monotonic() - self._looked < WANTED_S:
                        self._identity.require(client.ids(topics), committed_offsets(self._checkpoint))
                        self._ends, self.away = client.ends(topics), None
                        self._find_oldest(oldest)
                        time.sleep(INTERVAL_S)
            except SourceError as error:
                if self.away is None or self.away.code != error.code:
                    self._away_since = time.monotonic()
                self.away = error
                time.sleep(INTERVAL_S)

    def gone(self, limit_s: float) -> SourceError | None:
        """MP501 for topics that have been missing for longer than a limit: Spark would look for them for minutes; MP511
        for one that is another now."""
        error = self.away
        if error is not None and error.code == ANOTHER:
            return error
        is_missing = error is not None and error.code == MISSING
        return error if is_missing and time.monotonic() - self._away_since >= limit_s else None

    def _find_oldest(self, oldest: Oldest) -> None:
        """Of the partitions that are furthest behind."""
        waiting = sorted(self._waiting(), key=lambda found: found[1], reverse=True)
        self.oldest = oldest.written_at(place for place, _ in waiting) if waiting else None

    @property
    def lag(self) -> int | None:
        """Messages that are there and not in the tables yet; None while nobody has answered."""
        return None if self._ends is None else sum(behind for _, behind in self._waiting())

    def _waiting(self) -> Iterator[tuple[Place, int]]:
        """The first message of each partition that is not in the tables yet, and how many there are from it on."""
        done = committed_offsets(self._checkpoint)
        for topic, partitions in (self._ends or {}).items():
            for partition, end in partitions.items():
                places = [found.get(topic, {}).get(partition) for found in (done, self._begin)]
                first = next((place for place in places if place is not None), 0)
                first = max(first, self._starts.get(topic, {}).get(partition, 0))
                if end > first:
                    yield (topic, int(partition), first), end - first
