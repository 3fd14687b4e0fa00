"""Lag of Kafka topics: the number of unread messages, the age of the oldest one, and topics that were recreated."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.disk import read_sealed, write_sealed
from millpond.errors import SourceError
from millpond.kafka.address import Address, client_properties
from millpond.kafka.admin import Client, connected
from millpond.kafka.kafka_errors import translated
from millpond.sources.kafka.offsets import COMMITTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Offsets = dict[str, dict[str, int]]


def batch_size(checkpoint: Path) -> int | None:
    """The approximate number of messages between the newest two offsets of a checkpoint; None if unknown. The first
    batch counts from the beginning of each partition: rather too many than too few."""
    numbers = sorted(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*") if file.name.isdigit())
    if not numbers:
        return None
    end = _offsets(checkpoint / "offsets" / str(numbers[-1]))
    start = _offsets(checkpoint / "offsets" / str(numbers[-2])) if len(numbers) > 1 else {}
    if end is None or start is None:
        return None
    return sum(o - start.get(topic, {}).get(p, 0) for topic, places in end.items() for p, o in places.items())


def committed_offsets(checkpoint: Path) -> Offsets:
    """The offsets after the last committed batch, by topic and partition."""
    numbers = [int(file.name) for file in (checkpoint / "commits").glob("[0-9]*") if file.name.isdigit()]
    return (_offsets(checkpoint / "offsets" / str(max(numbers))) if numbers else None) or {}


def _offsets(file: Path) -> Offsets | None:
    """The offsets in a file of Spark's checkpoint, whose last line is the source's own."""
    try:
        return offsets_in(file.read_text("utf-8"))
    except OSError:
        return None


def offsets_in(text: str) -> Offsets | None:
    """Those of an offset file's text."""
    try:
        found = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return found if isinstance(found, dict) else None


# The maximal number of partitions per check, and the timeout for each.
PLACES_MAX, ANSWER_MS = 16, 500
BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
# Fetch one message at a time, and as few bytes as possible.
CONSUMER = {
    "key.deserializer": BYTES,
    "value.deserializer": BYTES,
    "enable.auto.commit": "false",
    "max.poll.records": "1",
    "max.partition.fetch.bytes": "1",
    **{name.removeprefix("kafka."): value for name, value in COMMITTED.items()},
}

# Topic, partition, and the offset of the first message that is not read yet.
Place = tuple[str, int, int]


class Oldest:
    """Finds the oldest unread message; used by one thread, inside `looking_for_oldest`; connects on first use."""

    def __init__(self, spark: SparkSession, address: Address, values: Mapping[str, Any]) -> None:
        self._jvm, self._address, self._values = spark._jvm, address, values
        self._consumer: Any = None

    def written_at(self, places: Iterable[Place]) -> float | None:
        """The time of the oldest message, in seconds since the epoch; None if none was fetched in time."""
        with translated(self._address):
            times = [self._time(place) for place in list(places)[:PLACES_MAX]]
        return min((time for time in times if time is not None), default=None)

    def _time(self, place: Place) -> float | None:
        topic, partition, offset = place
        consumer, at = self._connected(), self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        consumer.assign(self._jvm.java.util.Collections.singletonList(at))
        consumer.seek(at, offset)
        found = consumer.poll(self._jvm.java.time.Duration.ofMillis(ANSWER_MS)).iterator()
        return int(found.next().timestamp()) / 1000 if found.hasNext() else None

    def _connected(self) -> Any:
        if self._consumer is None:
            properties = self._jvm.java.util.Properties()
            for name, value in {**client_properties(self._address, self._values), **CONSUMER}.items():
                properties.setProperty(name, value)
            self._consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
        return self._consumer

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close(self._jvm.java.time.Duration.ofSeconds(1))


@contextmanager
def looking_for_oldest(spark: SparkSession, address: Address, values: Mapping[str, Any]) -> Iterator[Oldest]:
    """A finder that is closed afterwards."""
    oldest = Oldest(spark, address, values)
    try:
        yield oldest
    finally:
        oldest.close()


MEMORY = "topics.json"


class Identity:
    """The ids of a source's topics, stored in its folder at the first start."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / MEMORY
        # Used by the flow when it starts, and by the thread that measures the lag.
        self._lock = threading.Lock()

    def require(self, found: Mapping[str, str], done: Offsets) -> None:
        """MP511 for a topic that was recreated after some of its messages were read; the ids of others are stored."""
        with self._lock:
            self._require(found, done)

    def _require(self, found: Mapping[str, str], done: Offsets) -> None:
        known = self._known()
        other = [topic for topic, id_ in found.items() if known.get(topic, id_) != id_]
        for topic in other:
            if any(done.get(topic, {}).values()):
                raise recreated(topic)
        if any(known.get(topic) != id_ for topic, id_ in found.items()):
            write_sealed(self._file, {**known, **found})

    def _known(self) -> dict[str, str]:
        try:
            return dict(read_sealed(self._file))
        except FileNotFoundError:
            return {}


def recreated(topic: str) -> SourceError:
    message = f"Topic '{topic}' was deleted and created again, so the stored offsets do not apply to it."
    hint = "Start with a new state directory to read the new topic; the tables contain rows of the old one."
    return SourceError("MP511", message, hint=hint)


INTERVAL_S = 1.0
# The thread ends after this long without `look`, because the flow was stopped.
WANTED_S = 10.0
MISSING, ANOTHER = "MP501", "MP511"


class Reach:
    """Measures the lag in a thread, as long as `look` is called; `lag`, `oldest` and `away` may be read by any
    thread."""

    def __init__(self, address: Address, values: Mapping[str, Any], checkpoint: Path, identity: Identity) -> None:
        self._address, self._values, self._checkpoint = address, values, checkpoint
        self._identity = identity
        self._looked = 0.0
        self._ends: Offsets | None = None
        self._starts: Offsets = {}
        # The first offsets of partitions of which nothing was read yet, unless it is their beginning.
        self._begin: Offsets = {}
        # The time of the oldest unread message, in seconds since the epoch, if known.
        self.oldest: float | None = None
        self._thread: threading.Thread | None = None
        # The current error of the brokers, and since when.
        self.away: SourceError | None = None
        self._away_since = 0.0

    def note(self, client: Client, topics: tuple[str, ...], begin: Offsets) -> None:
        """Record the end offsets of topics when they are opened, so that the lag is known before the first batch."""
        self._begin = begin
        self._starts, self._ends = client.ends(topics, earliest=True), client.ends(topics)

    def look(self, spark: SparkSession, topics: tuple[str, ...]) -> None:
        self._looked = time.monotonic()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, args=(spark, topics), daemon=True)
            self._thread.start()

    def _run(self, spark: SparkSession, topics: tuple[str, ...]) -> None:
        """Runs in a thread, which ends when `look` is no longer called, or when Java has ended, which the app reports
        itself."""
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
        """MP501 for topics that have been missing for longer than a limit, because Spark would wait for them for
        minutes; MP511 for one that was recreated."""
        error = self.away
        if error is not None and error.code == ANOTHER:
            return error
        is_missing = error is not None and error.code == MISSING
        return error if is_missing and time.monotonic() - self._away_since >= limit_s else None

    def _find_oldest(self, oldest: Oldest) -> None:
        """Find the oldest message in the partitions with the largest lag."""
        waiting = sorted(self._waiting(), key=lambda found: found[1], reverse=True)
        self.oldest = oldest.written_at(place for place, _ in waiting) if waiting else None

    @property
    def lag(self) -> int | None:
        """The number of messages that are not in the tables yet; None until the brokers have responded."""
        return None if self._ends is None else sum(behind for _, behind in self._waiting())

    def _waiting(self) -> Iterator[tuple[Place, int]]:
        """The first unread message of each partition, and the number of messages from it on."""
        done = committed_offsets(self._checkpoint)
        for topic, partitions in (self._ends or {}).items():
            for partition, end in partitions.items():
                places = [found.get(topic, {}).get(partition) for found in (done, self._begin)]
                first = next((place for place in places if place is not None), 0)
                first = max(first, self._starts.get(topic, {}).get(partition, 0))
                if end > first:
                    yield (topic, int(partition), first), end - first
